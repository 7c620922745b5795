"""Matrix instructions against two descriptions of their fragments that know nothing of the emulator.

The PTX ISA gives row and column of element i of a lane's fragment by formulas.  CuTe (NVIDIA CUTLASS,
``mma_traits_sm70.hpp``, ``mma_traits_sm75.hpp``) gives the same maps as shapes and strides of (lane,
element) into a column-major matrix.  The tests hold both against each other and the emulator against
them.
"""

import itertools

import numpy as np
import pytest
import torch

LANE = np.arange(32)[:, None]
GROUP, IN_GROUP = LANE // 4, LANE % 4


def element(n):
    return np.arange(n)[None, :]


def pairs(rows, columns):
    return np.broadcast_arrays(rows, columns)


# PTX ISA, "Matrix Fragments for mma.m8n8k4", "... m16n8k8", "... m8n8k16".
i2, i4, i8 = element(2), element(4), element(8)
PTX = {
    "m16n8k8 a": pairs(np.where(i4 < 2, GROUP, GROUP + 8), IN_GROUP * 2 + (i4 & 1)),
    "m16n8k8 b": pairs(IN_GROUP * 2 + i2, GROUP),
    "m16n8k8 c": pairs(np.where(i4 < 2, GROUP, GROUP + 8), IN_GROUP * 2 + (i4 & 1)),
    "m8n8k16 a": pairs(GROUP, IN_GROUP * 4 + i4),
    "m8n8k16 b": pairs(IN_GROUP * 4 + i4, GROUP),
    "m8n8k16 c": pairs(GROUP, IN_GROUP * 2 + i2),
    "m8n8k4 a": pairs(np.where(LANE < 16, LANE % 4, LANE % 4 + 4), i4),
    "m8n8k4 b col": pairs(i4, np.where(LANE < 16, LANE % 4, LANE % 4 + 4)),
    "m8n8k4 b row": pairs(LANE % 4, np.where(LANE < 16, i4, i4 + 4)),
    "m8n8k4 c": pairs(
        np.where(LANE < 16, (LANE & 1) + (i8 & 2), (LANE & 1) + (i8 & 2) + 4),
        (i8 & 4) + (LANE & 2) + (i8 & 1),
    ),
}

# (lane shape, lane strides), (element shape, element strides), rows of the column-major matrix.  CuTe
# writes B as N x K; the first number of its index is the column.
QUAD_PAIR = ((4, 4, 2), (1, 0, 4))  # lane % 4, quad pair, upper half of the warp
CUTE = {
    "m16n8k8 a": (((4, 8), (32, 1)), ((2, 2), (16, 8)), 16),
    "m16n8k8 b": (((4, 8), (16, 1)), ((2,), (8,)), 8),
    "m16n8k8 c": (((4, 8), (32, 1)), ((2, 2), (16, 8)), 16),
    "m8n8k16 a": (((4, 8), (32, 1)), ((4,), (8,)), 8),
    "m8n8k16 b": (((4, 8), (32, 1)), ((4,), (8,)), 8),
    "m8n8k16 c": (((4, 8), (16, 1)), ((2,), (8,)), 8),
    "m8n8k4 a": (QUAD_PAIR, ((4,), (8,)), 8),
    "m8n8k4 b col": (QUAD_PAIR, ((4,), (8,)), 8),
    "m8n8k4 b row": (((4, 4, 2), (8, 0, 4)), ((4,), (1,)), 8),
    "m8n8k4 c": (((2, 2, 4, 2), (1, 16, 0, 4)), ((2, 2, 2), (8, 2, 32)), 8),
}


def offsets(shape, strides):
    """Offsets of a CuTe layout; the first mode runs fastest."""
    modes = itertools.product(*(range(n) for n in reversed(shape)))
    return np.array([sum(i * s for i, s in zip(reversed(index), strides, strict=True)) for index in modes])


@pytest.mark.parametrize("fragment", CUTE)
def test_both_descriptions_agree(fragment):
    lane, value, rows = CUTE[fragment]
    index = offsets(*lane)[:, None] + offsets(*value)[None, :]
    first, second = index % rows, index // rows
    row, column = PTX[fragment]
    transposed = " b" in fragment
    np.testing.assert_array_equal(column if transposed else row, first)
    np.testing.assert_array_equal(row if transposed else column, second)


def registers(fragment, matrix):
    """Fragments of a matrix, packed into 32-bit registers: (32, registers)."""
    values = matrix[PTX[fragment]]
    return torch.from_numpy(np.ascontiguousarray(values).view(np.int32).copy())


def quad_registers(fragment, matrices):
    """Each of the four quad pairs works on a matrix of its own."""
    values = np.stack(
        [matrices[lane // 4 % 4][PTX[fragment][0][lane], PTX[fragment][1][lane]] for lane in range(32)]
    )
    return torch.from_numpy(values.view(np.int32).copy() if values.dtype == np.float16 else values.copy())


def halves(*shape):
    """Small integers: products and sums are exact in every order."""
    return np.random.default_rng(sum(shape)).integers(-8, 9, shape).astype(np.float16)


def test_m16n8k8(matrices):
    a, b, c = halves(16, 8), halves(8, 8), halves(16, 8).astype(np.float32)
    d = torch.zeros(32, 4)
    args = [
        registers("m16n8k8 a", a),
        registers("m16n8k8 b", b),
        registers("m16n8k8 c", c).view(torch.float32),
        d,
    ]
    matrices("mma_1688", args)
    expected = a.astype(np.float32) @ b.astype(np.float32) + c
    np.testing.assert_array_equal(d.numpy(), expected[PTX["m16n8k8 c"]])


@pytest.mark.parametrize("layout", ["col", "row"])
def test_m8n8k4(matrices, layout):
    a, b, c = halves(4, 8, 4), halves(4, 4, 8), halves(4, 8, 8).astype(np.float32)
    d = torch.zeros(32, 8)
    args = [
        quad_registers("m8n8k4 a", a),
        quad_registers(f"m8n8k4 b {layout}", b),
        quad_registers("m8n8k4 c", c),
        d,
    ]
    matrices("mma_884", [*args, int(layout == "row")])
    expected = a.astype(np.float32) @ b.astype(np.float32) + c
    np.testing.assert_array_equal(d.numpy(), quad_registers("m8n8k4 c", expected).numpy())


def test_m8n8k16_s8(matrices):
    random = np.random.default_rng(0)
    a, b = (random.integers(-128, 128, shape).astype(np.int8) for shape in ((8, 16), (16, 8)))
    c = random.integers(-(2**30), 2**30, (8, 8)).astype(np.int32)
    d = torch.zeros(32, 2, dtype=torch.int32)
    matrices("mma_8816", [registers("m8n8k16 a", a), registers("m8n8k16 b", b), registers("m8n8k16 c", c), d])
    expected = a.astype(np.int32) @ b.astype(np.int32) + c
    np.testing.assert_array_equal(d.numpy(), expected[PTX["m8n8k16 c"]])


def test_products_of_halves_are_exact_in_fp32(matrices):
    """No rounding to half on the way: 2048 + 1 survives, and so do subnormal halves."""
    a, b, c = (np.zeros(shape, np.float16) for shape in ((16, 8), (8, 8), (16, 8)))
    a[:, 0], b[0, :], a[:, 1], b[1, :] = 2048, 1, 2.0**-24, 1
    d = torch.zeros(32, 4)
    c32 = registers("m16n8k8 c", c.astype(np.float32)).view(torch.float32)
    matrices("mma_1688", [registers("m16n8k8 a", a), registers("m16n8k8 b", b), c32 + 1, d])
    assert (d == 2049).all()
    a[:, 0] = 0
    matrices("mma_1688", [registers("m16n8k8 a", a), registers("m16n8k8 b", b), c32, d])
    assert (d == 2.0**-24).all()


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", [False, True])
def test_ldmatrix(matrices, count, trans):
    """Lane l gets elements 2 (l % 4) and the next of row l / 4; of the transposed matrix with .trans."""
    x = torch.randperm(512).to(torch.int16)
    rows = torch.randperm(64)[:32].int() * 8
    y = torch.zeros(32, count, dtype=torch.int32)
    matrices(f"ldmatrix_{'trans_' if trans else ''}{count}", [x, rows, y])
    for m in range(count):
        matrix = torch.stack([x[first : first + 8] for first in rows[8 * m : 8 * m + 8].tolist()])
        expected = (matrix.T if trans else matrix).reshape(32, 2)
        assert torch.equal(y[:, m].contiguous().view(torch.int16).reshape(32, 2), expected)
