"""Each detector of illegal memory accesses finds its planted bug, and nothing in the kernel without it."""

import pytest
import torch

from titan_kernels.emulator import emulated
from titan_kernels.errors import EmulatorError, LaunchError
from titan_kernels.launch import Packed

# kernel, rule, thread, part of the message
BUGS = [
    ("load_beyond_end", "out-of-bounds", 50, "load of element 50 of `x`, which has 50 elements"),
    ("store_before_begin", "out-of-bounds", 0, "store of element -1 of `y`, which has 64 elements"),
    ("misaligned_vector", "misaligned", 0, "load of 16 bytes at elements 2 to 5 of `x`"),
    ("null_pointer", "null-pointer", 5, "load through a null pointer"),
    ("stray_address", "out-of-bounds", 0, "in none of the launch's tensors"),
    (
        "shared_beyond_end",
        "out-of-bounds",
        63,
        "store of element 64 of `first` in shared memory, which has 64 elements",
    ),
    ("shared_misaligned", "misaligned", 0, "store of 16 bytes at elements 1 to 4 of `data`"),
    (
        "uninitialised_shared",
        "uninitialised",
        0,
        "load of element 63 of `data` in shared memory, which no thread",
    ),
    ("dynamic_beyond_end", "out-of-bounds", 63, "element 128 of `dynamic shared memory`"),
    (
        "too_much_shared",
        "shared-memory-limit",
        None,
        "static shared memory comes to 65536 bytes with `larger`",
    ),
    ("division_by_zero", "division-by-zero", None, "integer division by zero"),
    ("stack_overflow", "stack-overflow", None, "exceed the thread's stack"),
    ("trap", "trap", 9, "__trap()"),
]


def arguments(n=50):
    return [torch.arange(64, dtype=torch.float32)[:n], torch.zeros(64), n]


@pytest.mark.parametrize(("name", "rule", "thread", "words"), BUGS, ids=[bug[0] for bug in BUGS])
def test_planted_bug(memory_bugs, name, rule, thread, words):
    n = 50 if name == "load_beyond_end" else 64
    with pytest.raises(EmulatorError) as caught:
        memory_bugs(f"{name}_bug", arguments(n), block=64, shared=256, seed=3)
    error = caught.value
    assert error.rule == rule
    assert words in str(error)
    assert error.line == memory_bugs.line(f"BUG {name}")
    assert thread is None or error.thread == (thread, 0, 0)
    assert str(error).startswith(
        f"{name}_bug, block (0,0,0), thread ({error.thread[0]},0,0), kernels/memory_bugs.cu:{error.line}: "
    )
    assert "seed 3" in str(error)
    for seed in range(3):
        memory_bugs(f"{name}_ok", arguments(64), block=64, shared=256, seed=seed)


def test_no_line_of_another_block_is_named(memory_bugs):
    for seed in range(4):  # in both orders of the blocks
        with pytest.raises(EmulatorError, match="before the thread's first synchronisation") as caught:
            memory_bugs(
                "early_division_bug", [torch.zeros(64), torch.zeros(128), 64], grid=2, block=64, seed=seed
            )
        assert (caught.value.block, caught.value.line) == ((1, 0, 0), 0)
    memory_bugs("early_division_ok", [torch.zeros(64), torch.zeros(128), 64], grid=2, block=64)


def test_forgotten_element_stays_poisoned(memory_bugs):
    """Outputs that a kernel forgets hold NaN, not what was there by luck."""
    for kernel, forgotten in (("forgotten_element_bug", True), ("forgotten_element_ok", False)):
        with emulated() as session:
            y = torch.empty(64)
            session.run(memory_bugs.path, kernel, (1, 1, 1), (64, 1, 1), [torch.ones(64), y, 64])
        assert bool(y[63].isnan()) is forgotten
        assert bool((y[:63] == 1).all())


def test_poisoning_ends_with_the_session(memory_bugs):
    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory
    with pytest.raises(ValueError, match="inside"), emulated():
        raise ValueError("inside")
    assert before == (
        torch.are_deterministic_algorithms_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
    )


def test_strided_view_ends_at_its_last_element(memory_bugs):
    """The extent is that of the view: the column's last element, not its storage's."""
    with pytest.raises(EmulatorError, match=r"store of element \d+ of `y`, which has 1 element "):
        memory_bugs("load_beyond_end_ok", [torch.zeros(64), torch.zeros(64, 4)[:1, 0], 64], block=64)


def test_without_checks_nothing_is_reported(memory_bugs):
    memory_bugs("uninitialised_shared_bug", arguments(64), block=64, check=False)


LAUNCHES = [
    ("load_beyond_end_ok", [torch.zeros(4)], {}, "takes 3 arguments .*, but got 1"),
    (
        "load_beyond_end_ok",
        [torch.zeros(4), torch.zeros(4), 1.5],
        {},
        "parameter `n` takes an integer, but got a float",
    ),
    ("load_beyond_end_ok", [torch.zeros(4), 3, 4], {}, "parameter `y` takes a tensor, but got an integer"),
    (
        "load_beyond_end_ok",
        [torch.zeros(4), torch.zeros(4), 2**31],
        {},
        r"parameter `n` \(2147483648\) does not fit in 32 bits",
    ),
    (
        "load_beyond_end_ok",
        [torch.zeros(4).half(), torch.zeros(4), 4],
        {},
        "`x` points to elements of 4 bytes, .* have 2 bytes",
    ),
    (
        "load_beyond_end_ok",
        [Packed([1], 2), torch.zeros(4), 4],
        {},
        "parameter `x` takes a tensor, but got packed integers",
    ),
    ("no_such_kernel", [], {}, "no such kernel; it has: load_beyond_end_bug, "),
    ("load_beyond_end_ok", [torch.zeros(4), torch.zeros(4), 4], {"block": 65}, "compiled for at most 64"),
    ("load_beyond_end_ok", [torch.zeros(4), torch.zeros(4), 4], {"block": (8, 1, 65)}, "at most 64 in z"),
    ("load_beyond_end_ok", [torch.zeros(4), torch.zeros(4), 4], {"grid": (1, 65536, 1)}, "65535 in y"),
    ("load_beyond_end_ok", [torch.zeros(4), torch.zeros(4), 4], {"shared": 65537}, "limit of 65536 bytes"),
]


@pytest.mark.parametrize(
    ("kernel", "args", "options", "words"), LAUNCHES, ids=[each[3][:30] for each in LAUNCHES]
)
def test_launch_that_does_not_fit_the_kernel(memory_bugs, kernel, args, options, words):
    with pytest.raises(LaunchError, match=words):
        memory_bugs(kernel, args, **options)


def test_integers_of_32_bits_fit(memory_bugs):
    for n in (-(2**31), 2**31 - 1):
        memory_bugs("trap_ok", [torch.zeros(4), torch.zeros(4), n])
