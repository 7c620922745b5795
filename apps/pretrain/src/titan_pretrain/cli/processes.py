"""How many processes: what the command line, or the launcher that started this process, says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from titan_pretrain.errors import UsageError

if TYPE_CHECKING:
    from titan_pretrain.config import World

__all__ = ["LaunchOptions", "is_rank", "world_of_rank"]


def is_rank(env: Mapping[str, str]) -> bool:
    """Whether a launcher started this process as one of several."""
    return "TORCHELASTIC_RUN_ID" in env or ("RANK" in env and "WORLD_SIZE" in env)


@dataclass(frozen=True)
class LaunchOptions:
    """How many processes, and torchrun's options.

    Attributes:
        nproc: a number, or a word torchrun counts devices for (gpu, cpu, auto).
        flags: torchrun's options as given; None for a switch.
    """

    nproc: str
    flags: Mapping[str, str | None]

    @property
    def is_single(self) -> bool:
        """Whether one process is enough: this one."""
        return self.nproc == "1" and not self.flags

    @property
    def processes(self) -> int:
        """Processes on this node."""
        if self.nproc.isdigit() and int(self.nproc) > 0:
            return int(self.nproc)
        if self.nproc not in ("gpu", "cpu", "auto", "xpu"):
            raise UsageError(f"--nproc ({self.nproc}): must be a number from 1 on, gpu, cpu or auto")
        from torch.distributed.run import determine_local_world_size

        try:
            return int(determine_local_world_size(self.nproc))
        except ValueError as error:
            hint = "give a number; --nproc 1 trains on the CPU"
            raise UsageError(f"--nproc ({self.nproc}): {error}", hint=hint) from None

    @property
    def nodes(self) -> tuple[int, int]:
        """Smallest and largest number of nodes."""
        text = self.flags.get("--nnodes") or "1"
        low, _, high = text.partition(":")
        if low.isdigit() and (high or low).isdigit() and 0 < int(low) <= int(high or low):
            return int(low), int(high or low)
        raise UsageError(f"--nnodes ({text}): must be a number from 1 on, or MIN:MAX")

    def world(self) -> World:
        """The processes of all nodes; with a range of nodes the fewest."""
        from titan_pretrain.config import World

        nodes = self.nodes[0]
        origin = f"--nproc {self.nproc}" if nodes == 1 else f"--nnodes {nodes} --nproc {self.nproc}"
        return World(nodes * self.processes, origin)


def world_of_rank(env: Mapping[str, str]) -> World:
    """The world that a launcher told this process about."""
    from titan_pretrain.config import World

    size = env.get("WORLD_SIZE", "1")
    if not size.isdigit() or int(size) < 1:
        raise UsageError(f"WORLD_SIZE ({size}): must be a number from 1 on; a launcher sets it")
    return World(int(size), f"WORLD_SIZE={size}")
