"""Sessions: who sees them, what they note, and launches from several threads."""

import pickle
import threading

import pytest
import torch

from titan_kernels import prefer
from titan_kernels.emulator import active, emulated
from titan_kernels.errors import EmulatorError, LaunchError
from titan_kernels.launch import launch
from titan_kernels.ops import embedding, relu2


def test_active_is_the_innermost_session_of_the_thread():
    assert active() is None
    with emulated() as outer:
        assert active() is outer
        with emulated(seed=5) as inner:
            assert active() is inner
        assert active() is outer
        seen = []
        thread = threading.Thread(target=lambda: seen.append(active()))
        thread.start()
        thread.join()
        assert seen == [None]
    assert active() is None


@pytest.mark.parametrize("multiprocessors", [1, 40, 80])
def test_blocks_that_loop_are_as_many_as_the_card_holds(multiprocessors):
    x = torch.zeros(1 << 21)
    with emulated(check=False, blocks=1, multiprocessors=multiprocessors) as session, prefer("cuda"):
        relu2(x)
    assert session.launches[0].grid == (8 * multiprocessors, 1, 1)
    assert session.multiprocessors_used


def test_a_grid_of_the_data_alone_does_not_depend_on_the_card():
    with emulated(check=False, blocks=1) as session, prefer("cuda"):
        embedding(torch.zeros(8, dtype=torch.int64), torch.zeros(4, 8))
    assert not session.multiprocessors_used


def test_leaving_one_of_two_equal_sessions_leaves_the_inner_one():
    with emulated() as outer:
        with emulated():
            pass
        assert active() is outer


def poison_settings():
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
    )


def test_poison_lasts_as_long_as_any_session():
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = False
    before = poison_settings()
    first, second = emulated(), emulated()
    first.__enter__()
    second.__enter__()  # as another thread does
    first.__exit__(None, None, None)
    assert torch.empty(3).isnan().all()
    second.__exit__(None, None, None)
    assert poison_settings() == before


def test_session_ends_with_an_error():
    with pytest.raises(ZeroDivisionError), emulated():
        _ = 1 / 0
    assert active() is None


def test_launches_are_noted_in_order(counting):
    x = torch.zeros(64)
    with emulated(count=True) as session:
        for grid in (1, 2):
            session.run(counting.path, "copy_4", (grid, 1, 1), (32, 1, 1), [x, torch.zeros(64), 1, 0])
    assert [(each.kernel, each.grid, each.block, each.blocks_run) for each in session.launches] == [
        ("copy_4", (1, 1, 1), (32, 1, 1), 1),
        ("copy_4", (2, 1, 1), (32, 1, 1), 2),
    ]
    assert session.launches[1].counters.global_load_requests == 2


def test_launch_leads_here_for_cpu_tensors(counting):
    x, y = torch.arange(64.0), torch.empty(64)
    with emulated() as session:
        launch(str(counting.path), "copy_4", 2, 32, [x, y, 1, 0])
    assert torch.equal(x, y)
    assert len(session.launches) == 1
    with pytest.raises(LaunchError, match=r"inside `with titan_kernels.emulated\(\):`"):
        launch(str(counting.path), "copy_4", 2, 32, [x, y, 1, 0])


def test_threads_launch_at_the_same_time(warps):
    """Launches of one unit wait for each other; sessions stay apart."""
    problems = []

    def work(number):
        x = torch.full((256,), float(number))
        for seed in range(5):
            y = torch.empty(2, 256)
            warps("reductions_f32", [x, y], block=256, seed=seed, poison=False)
            if not ((y[0] == 256 * number).all() and (y[1] == number).all()):
                problems.append((number, seed))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_launch_after_an_error_is_clean(memory_bugs):
    """A failed launch leaves nothing behind: no fibers, no poisoned state, no signal handlers."""
    good = [torch.ones(64), torch.zeros(64), 64]
    for kernel in ("stack_overflow", "division_by_zero", "uninitialised_shared", "too_much_shared"):
        with pytest.raises(EmulatorError):
            memory_bugs(f"{kernel}_bug", good, block=64)
        memory_bugs(f"{kernel}_ok", good, block=64)


def test_shared_limit(counting):
    with pytest.raises(
        LaunchError, match=r"dynamic shared memory \(81920 bytes\) exceeds the limit of 65536"
    ):
        counting("shared_4", [1, 1], shared=80 * 1024)
    counting("shared_4", [1, 1], shared=80 * 1024, shared_limit=96 * 1024)


def test_errors_pass_between_processes(memory_bugs):
    with pytest.raises(EmulatorError) as caught:
        memory_bugs("division_by_zero_bug", [torch.ones(64), torch.zeros(64), 64], block=64, seed=5)
    other = pickle.loads(pickle.dumps(caught.value))
    assert (type(other), str(other)) == (EmulatorError, str(caught.value))
    assert (other.rule, other.seed, other.line) == ("division-by-zero", 5, caught.value.line)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seed": 1.5}, r"seed \(1.5\): it must be an integer"),
        ({"blocks": 0}, r"blocks \(0\): it must be how many \(at least 1\), or a list"),
        ({"blocks": -1}, r"blocks \(-1\)"),
        ({"blocks": []}, r"blocks \(\[\]\)"),
        ({"blocks": [3, -1]}, r"blocks \(\[3, -1\]\)"),
        ({"time_limit": -1.0}, r"time_limit \(-1.0\): it must not be negative; 0 is no limit"),
        ({"time_limit": float("nan")}, r"time_limit \(nan\)"),
        ({"shared_limit": 2**40}, r"shared_limit \(1099511627776\): it must be a number of bytes"),
        ({"multiprocessors": 0}, r"multiprocessors \(0\): a GPU has at least one"),
        ({"multiprocessors": 1.5}, r"multiprocessors \(1.5\)"),
        ({"blocks": 0, "shared_limit": -1}, r"shared_limit \(-1\).*; blocks \(0\)"),
    ],
)
def test_options_that_have_no_such_value(options, words):
    with pytest.raises(ValueError, match=words), emulated(**options):
        pass
    assert active() is None


def test_a_block_that_is_asked_for_twice_runs_once(counting):
    report = counting("copy_4", [torch.zeros(64), torch.zeros(64), 1, 0], grid=2, blocks=[0, 0])
    assert report.blocks_run == 1
