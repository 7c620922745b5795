import pytest
import torch

from titan_bench.kernels.timers import CpuTimer, CudaTimer, interleave


class Noted:
    """A runner that writes down its calls."""

    def __init__(self, name, events):
        self.name, self.events = name, events

    def before(self):
        self.events.append(f"before {self.name}")

    def run(self):
        self.events.append(self.name)


def test_runners_take_turns_at_being_first():
    events = []
    timed = interleave({name: Noted(name, events) for name in "abc"}, CpuTimer(), rounds=4, warmup=0)
    assert [each for each in events if len(each) == 1] == [*"abc", *"bca", *"cab", *"abc"]
    assert events[:2] == ["before a", "a"]
    assert {name: len(each) for name, each in timed.seconds.items()} == {"a": 4, "b": 4, "c": 4}


def test_warm_up_is_not_counted():
    events = []
    timed = interleave({"a": Noted("a", events)}, CpuTimer(), rounds=4, warmup=2)
    assert events.count("a") == 6
    assert len(timed.seconds["a"]) == 4


def test_nobody_left_is_no_error():
    assert interleave({}, CpuTimer(), rounds=4).seconds == {}


@pytest.mark.gpu
def test_events_time_the_device_and_not_the_host():
    timer = CudaTimer(torch.device("cuda"))
    x = torch.zeros(2**28, dtype=torch.uint8, device="cuda")
    small, large = (min(timer.start(part.zero_)() for _ in range(5)) for part in (x[: 2**26], x))
    assert 2.0 < large / small < 6.0  # 64 and 256 MiB
