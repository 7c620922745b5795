import pytest

from titan_parallel.errors import TopologyError
from titan_parallel.mesh import ParallelDims
from titan_parallel.testing import run_ranks


@pytest.mark.parametrize(
    ("world", "replicate", "shard", "expected"), [(1, 1, -1, 1), (8, 2, -1, 4), (8, 8, 1, 1), (6, 1, 6, 6)]
)
def test_rest_is_filled_in(world, replicate, shard, expected):
    dims = ParallelDims.resolve(world, dp_replicate=replicate, dp_shard=shard)
    assert (dims.dp_replicate, dims.dp_shard, dims.dp_size) == (replicate, expected, world)


@pytest.mark.parametrize(
    ("world", "replicate", "shard"), [(4, 3, -1), (4, 2, 4), (4, 0, -1), (4, 1, 0), (2, 4, -1)]
)
def test_impossible_degrees_name_the_values(world, replicate, shard):
    with pytest.raises(TopologyError, match=rf"dp_replicate \({replicate}\)"):
        ParallelDims.resolve(world, dp_replicate=replicate, dp_shard=shard)


def test_mesh_axes():
    def axes():
        mesh = ParallelDims.resolve(4, dp_replicate=2).build("cpu")
        return mesh.mesh_dim_names, mesh.get_local_rank("dp_replicate"), mesh.get_local_rank("dp_shard")

    names = ("dp_replicate", "dp_shard")
    assert run_ranks(4, axes) == [(names, 0, 0), (names, 0, 1), (names, 1, 0), (names, 1, 1)]
