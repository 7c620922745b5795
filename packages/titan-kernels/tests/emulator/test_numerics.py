"""16-bit floats bit by bit, math functions, integer intrinsics."""

import bisect
import math
from fractions import Fraction

import pytest
import torch

ALL_16_BITS = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}


def bits(x):
    """The bits of floats, with one pattern for all NaNs."""
    integers = x.view({2: torch.int16, 4: torch.int32}[x.element_size()])
    return torch.where(x.isnan(), torch.full_like(integers, -1), integers)


def elementwise(run, kernel, *tensors):
    n = tensors[0].numel()
    assert n % 256 == 0
    run(kernel, list(tensors), grid=n // 256, block=256)


@pytest.mark.parametrize("name", DTYPES)
def test_every_16_bit_float_widens_as_in_torch(numerics, name):
    x = ALL_16_BITS.view(DTYPES[name])
    y = torch.empty(x.numel())
    elementwise(numerics, f"widen_{name}", x, y)
    assert torch.equal(bits(y), bits(x.float()))


def floats_around(dtype):
    """Every value of a 16-bit type, the midpoints to the next, and the fp32 neighbours of both."""
    x = ALL_16_BITS.view(dtype).float()
    midpoints = (x.double() + torch.roll(x, -1).double()) / 2
    x = torch.cat([x, midpoints.float()])
    up, down = (torch.nextafter(x, torch.full_like(x, to)) for to in (math.inf, -math.inf))
    return torch.cat([x, up, down, torch.randint(-(2**31), 2**31, (2**17,)).int().view(torch.float32)])


@pytest.mark.parametrize("name", DTYPES)
def test_floats_round_as_in_torch(numerics, name):
    x = floats_around(DTYPES[name])
    y = torch.empty(x.numel(), dtype=DTYPES[name])
    elementwise(numerics, f"narrow_{name}", x, y)
    assert torch.equal(bits(y), bits(x.to(DTYPES[name])))


FINITE_HALVES = sorted(
    (Fraction(float(x)), int(b))
    for x, b in zip(ALL_16_BITS.view(torch.float16).double(), ALL_16_BITS, strict=True)
    if math.isfinite(x) and int(b) != -(2**15)
)


def nearest_half(exact):
    """The bits of the nearest half; on a tie the even one.  The value itself decides, no float does."""
    k = bisect.bisect_left(FINITE_HALVES, (exact, -(2**16)))
    if k == len(FINITE_HALVES) or (k == 0 and exact < FINITE_HALVES[0][0]):
        return None  # overflow: not in this test
    (low, low_bits), (high, high_bits) = FINITE_HALVES[max(k - 1, 0)], FINITE_HALVES[k]
    if exact - low == high - exact:
        return low_bits if low_bits % 2 == 0 else high_bits
    return low_bits if exact - low < high - exact else high_bits


def test_fused_multiply_add_rounds_once(numerics):
    torch.manual_seed(0)
    a, b = (torch.randn(4096).mul(torch.randn(4096).mul(3).exp()).half() for _ in range(2))
    # Close to a tie: the product's last bits lie far below the addend's.
    c = torch.where(
        torch.arange(4096) % 2 == 0, torch.randn(4096).half(), (a.float() * b.float() * -(2.0**11)).half()
    )
    y = torch.empty(7, 4096, dtype=torch.float16)
    numerics("half_arithmetic_f16", [a, b, c, y, 4096], grid=16, block=256)
    checked = 0
    for i in range(4096):
        if not math.isfinite(a[i] * b[i]) or not math.isfinite(c[i]):
            continue
        exact = Fraction(a[i].item()) * Fraction(b[i].item()) + Fraction(c[i].item())
        expected = nearest_half(exact)
        if expected is not None and exact != 0:
            checked += 1
            assert int(y[4, i].view(torch.int16)) in (expected, expected if expected else -(2**15)), i
    assert checked > 3000


def test_half_arithmetic_as_in_torch(numerics):
    torch.manual_seed(1)
    a, b, c = (ALL_16_BITS[torch.randint(2**16, (2**15,))].view(torch.float16) for _ in range(3))
    y = torch.empty(7, 2**15, dtype=torch.float16)
    numerics("half_arithmetic_f16", [a, b, c, y, 2**15], grid=128, block=256)
    exact = a.double(), b.double()
    for row, result in enumerate([exact[0] + exact[1], exact[0] - exact[1], exact[0] * exact[1]]):
        # fp64 holds these exactly, so one rounding is left.
        assert torch.equal(bits(y[row]), bits(result.half())), row
    assert torch.equal(bits(y[3]), bits((a.float() / b.float()).half()))
    assert torch.equal(bits(y[5]), bits(torch.fmax(a, b)))
    assert torch.equal(bits(y[6]), bits(torch.fmin(a, b)))


def test_pairs_are_halves_side_by_side(numerics):
    torch.manual_seed(2)
    a, b, c = (torch.randn(1024).half() for _ in range(3))
    single, pairs = torch.empty(7, 1024, dtype=torch.float16), torch.empty(7, 512, dtype=torch.float32)
    numerics("half_arithmetic_f16", [a, b, c, single, 1024], grid=4, block=256)
    numerics(
        "packed_arithmetic_f16", [*(x.view(torch.float32) for x in (a, b, c)), pairs, 512], grid=2, block=256
    )
    pairs = pairs.view(torch.float16)
    assert torch.equal(pairs[:5], single[:5])
    assert torch.equal(pairs[5], torch.stack([a[0::2], b[1::2]], 1).flatten())
    assert torch.equal(pairs[6], torch.stack([a[1::2], a[0::2]], 1).flatten())


def positive(x):
    return x.abs() + 0.5


MATH = [
    torch.exp, torch.exp2, lambda x: positive(x).log(), lambda x: positive(x).log2(),
    lambda x: positive(x).log1p(), torch.tanh, torch.erf, torch.sin, torch.cos, lambda x: positive(x).sqrt(),
    lambda x: positive(x).rsqrt(), torch.floor, torch.ceil, torch.trunc, torch.round,
    lambda x: x / positive(x), lambda x: x * x + 1, lambda x: x.clamp(0, 1),
]  # fmt: skip


def test_math_functions(numerics):
    torch.manual_seed(3)
    x = torch.randn(1024) * 8
    y = torch.empty(len(MATH), 1024)
    numerics("math_f32", [x, y, 1024], grid=4, block=256)
    for row, function in enumerate(MATH):
        torch.testing.assert_close(y[row].double(), function(x.double()), rtol=3e-7, atol=1e-7)


def test_extrema_ignore_nan(numerics):
    a = torch.tensor([1.0, math.nan, 2.0, math.nan] * 64)
    b = torch.tensor([2.0, 3.0, math.nan, math.nan] * 64)
    y = torch.empty(3, 256)
    numerics("extrema_f32", [a, b, y, 256], block=256)
    assert torch.equal(y[0, :4].nan_to_num(9.0), torch.tensor([2.0, 3.0, 2.0, 9.0]))
    assert torch.equal(y[1, :4].nan_to_num(9.0), torch.tensor([1.0, 3.0, 2.0, 9.0]))
    assert torch.equal(bits(y[2]), bits(y[0]))


def signed(x, width=32):
    return (x + 2 ** (width - 1)) % 2**width - 2 ** (width - 1)


def byte(x, i):
    return x >> (8 * i) & 0xFF


def integer_truth(x, z):
    """What the CUDA Math API says of each intrinsic, in Python's integers."""
    ux, uz = x % 2**32, z % 2**32
    as_float = torch.tensor(x, dtype=torch.int32).view(torch.float32).item()
    if math.isnan(as_float):
        rounded = 0
    else:
        rounded = max(-(2**31), min(2**31 - 1, round(as_float) if math.isfinite(as_float) else as_float))
    return [
        signed(ux * uz >> 32), signed(x * z >> 32), bin(ux).count("1"), 32 - ux.bit_length(),
        (ux & -ux).bit_length(), signed(int(f"{ux:032b}"[::-1], 2)), signed(((uz << 32 | ux) << 7) >> 32),
        signed(byte(ux, 0) | byte(uz, 0) << 8 | byte(ux, 1) << 16 | byte(uz, 1) << 24), min(x, z), max(x, z),
        rounded, signed(3 + sum(signed(byte(ux, i), 8) * signed(byte(uz, i), 8) for i in range(4))),
    ]  # fmt: skip


def test_integer_intrinsics(numerics):
    torch.manual_seed(4)
    special = torch.tensor([0, 1, -1, 2**31 - 1, -(2**31), 0x7FC00000, 0x4EFFFFFF, 0x4F000000])
    a, b = (
        torch.cat([special[torch.randperm(8)], torch.randint(-(2**31), 2**31, (248,))]).int()
        for _ in range(2)
    )
    y = torch.empty(12, 256, dtype=torch.int32)
    numerics("integers_i32", [a, b, y, 256], block=256)
    expected = [integer_truth(x, z) for x, z in zip(a.tolist(), b.tolist(), strict=True)]
    assert torch.equal(y, torch.tensor(expected).T.int())
