"""How the world's ranks are divided into data-parallel groups."""

from __future__ import annotations

from dataclasses import dataclass

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from titan_parallel.errors import TopologyError

__all__ = ["ParallelDims"]


@dataclass(frozen=True)
class ParallelDims:
    """Degrees of the parallel dimensions; their product is the world size.

    Attributes:
        dp_replicate: groups that hold a full copy of the weights each.
        dp_shard: ranks over which FSDP2 shards each copy.
    """

    dp_replicate: int
    dp_shard: int

    @classmethod
    def resolve(cls, world_size: int, *, dp_replicate: int = 1, dp_shard: int = -1) -> ParallelDims:
        """Fill in ``dp_shard=-1`` (all ranks that remain) and check the product.

        Raises:
            TopologyError: the degrees don't multiply to ``world_size``.
        """
        if dp_replicate < 1 or (dp_shard < 1 and dp_shard != -1):
            raise TopologyError(
                f"dp_replicate ({dp_replicate}) and dp_shard ({dp_shard}) must be at least 1; "
                "dp_shard may be -1 for all ranks that remain"
            )
        if dp_shard == -1 and world_size % dp_replicate == 0:
            dp_shard = world_size // dp_replicate
        if dp_replicate * dp_shard != world_size:
            raise TopologyError(
                f"dp_replicate ({dp_replicate}) * dp_shard ({dp_shard}) must be the number of ranks "
                f"({world_size}); choose divisors of {world_size}"
            )
        return cls(dp_replicate, dp_shard)

    @property
    def dp_size(self) -> int:
        """Ranks that see different data."""
        return self.dp_replicate * self.dp_shard

    def build(self, device_type: str) -> DeviceMesh:
        """The device mesh with axes ``dp_replicate`` and ``dp_shard``."""
        return init_device_mesh(
            device_type, (self.dp_replicate, self.dp_shard), mesh_dim_names=("dp_replicate", "dp_shard")
        )
