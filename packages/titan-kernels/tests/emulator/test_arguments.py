"""Arguments and grids that cannot be launched are refused in words, before anything runs."""

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from titan_kernels.emulator import emulated
from titan_kernels.errors import LaunchError
from titan_kernels.launch import Packed, launch


class Wrapper(torch.Tensor):
    """A tensor that holds another one, as DTensor does."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise NotImplementedError


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
@pytest.mark.parametrize(
    ("replace", "words"),
    [
        ({2: 2**63}, "argument 2: the number does not fit in 64 bits"),
        ({3: "text"}, "argument 3: str is no tensor, number, Packed or None"),
        ({0: np.int64(3)}, "argument 0: int64 is no tensor"),
        ({0: Wrapper(torch.zeros(64))}, "argument 0: the tensor has no memory of its own"),
        (
            {0: FakeTensorMode().from_tensor(torch.zeros(64))},
            "argument 0: the tensor has no memory of its own",
        ),
        ({1: torch.zeros(64, device="meta")}, "argument 1: the tensor is on meta, the first one on the CPU"),
        ({0: Packed(["text"], 1)}, "argument 0: str is no tensor, number or None"),
    ],
)
def test_a_wrong_argument_is_named(counting, replace, words):
    args = [torch.zeros(64), torch.zeros(64), 1, 0]
    for position, value in replace.items():
        args[position] = value
    with pytest.raises(LaunchError, match=words):
        counting("copy_4", args)


@pytest.mark.parametrize("grid", [-1, 2**32 + 1, (1, 2**24, 2), (1, 1), (1, 1, 1, 1), [1, 1, 1], 1.5, None])
def test_impossible_grids(counting, grid):
    with pytest.raises(LaunchError, match=r"no grid or block has the size|1 to 65535"):
        counting("copy_4", [torch.zeros(64), torch.zeros(64), 1, 0], grid=grid)


@pytest.mark.parametrize("grid", [(1, 1), [1, 1, 1], 1.5, "1", None, np.int64(1)])
def test_what_is_no_grid_at_all(grid):
    with emulated(), pytest.raises(LaunchError, match="kernel any: no grid or block has the size"):
        launch("glu", "any", grid, 32, (torch.zeros(64),))


@pytest.mark.parametrize("shared", [-1, 1.5])
def test_what_is_no_size_of_shared_memory(counting, shared):
    with pytest.raises(LaunchError, match=rf"dynamic shared memory \({shared}\) is a number of bytes"):
        counting("copy_4", [torch.zeros(64), torch.zeros(64), 1, 0], shared=shared)


def test_a_grid_too_large_to_emulate(counting):
    args = [torch.zeros(64), torch.zeros(64), 1, 0]
    with pytest.raises(LaunchError, match=r"more than 2\^24 blocks, .* \(blocks\)"):
        counting("copy_4", args, grid=2**31 - 1)
    counting("copy_4", args, grid=2**31 - 1, blocks=[0])


def test_numbers_are_converted_as_for_a_gpu(warps):
    one, y = torch.ones(1), torch.zeros(3, 32)
    warps("packed_f32", [Packed([one] * 3, 3), Packed([1] * 3, 3), Packed([1, 0.5, 1e300], 3), y])
    assert y[:, 0].tolist() == [1.0, 0.5, float("inf")]
