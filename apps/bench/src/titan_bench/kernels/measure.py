"""Times of the operators and their counterparts, each verified against float64 before it is timed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from titan_bench.errors import VerificationError
from titan_bench.kernels.candidates import Arguments, Candidate, Compile, candidates, own_names
from titan_bench.kernels.errors import NoCounterpartError
from titan_bench.kernels.timers import CudaTimer, Timer, interleave
from titan_bench.timing import Comparison
from titan_kernels.cases import Case
from titan_kernels.registry import Op
from titan_kernels.testing import Truth, arguments

__all__ = ["Bench", "TimedCase", "measure", "on_gpu"]

# Bounds of the error against float64: multiples of the reference's error, then units in the last place
# of the largest result.  Counterparts may round between their operations, ours may not.
OWN_BOUNDS = (1.5, 0.0)
PEER_BOUNDS = (4.0, 4.0)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function through torch.compile, as a whole and for one shape."""
    return torch.compile(function, fullgraph=True, dynamic=False)


@dataclass(frozen=True)
class Bench:
    """How to measure.

    Args:
        device: Where the tensors are.
        dtype: Of the data.
        rounds: Timed calls per candidate.
        timer: The clock.
        compiler: Makes the "compile" candidate.
    """

    device: torch.device
    dtype: torch.dtype
    rounds: int
    timer: Timer
    compiler: Compile = compiled


def on_gpu(dtype: torch.dtype, rounds: int) -> Bench:
    """Measure on the current CUDA device."""
    device = torch.device("cuda", torch.cuda.current_device())
    return Bench(device, dtype, rounds, CudaTimer(device))


@dataclass
class TimedCase:
    """One operator at one shape.

    Args:
        op: The operator's name.
        case: The label of its arguments.
        minimum_bytes: Least memory traffic of a call.
        own: Our implementations, best first.
        seconds: By candidate, round by round.
        notes: By candidate, why it has no time.
        mistakes: Those of our implementations that are wrong or failed.
    """

    op: str
    case: str
    minimum_bytes: int
    own: tuple[str, ...]
    seconds: dict[str, tuple[float, ...]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    mistakes: list[str] = field(default_factory=list)

    @property
    def ours(self) -> str | None:
        """The implementation that a user gets: the first of ours that has a time."""
        return next((name for name in self.own if name in self.seconds), None)

    def median(self, name: str) -> float | None:
        """Seconds of a candidate."""
        return statistics.median(self.seconds[name]) if name in self.seconds else None

    def quartiles(self, name: str) -> tuple[float, float]:
        """First and third, in seconds."""
        first, _, third = statistics.quantiles(self.seconds[name], n=4)
        return first, third

    def bytes_per_second(self, name: str) -> float:
        """The least traffic over the time."""
        return self.minimum_bytes / statistics.median(self.seconds[name])

    def speedup(self, name: str, over: str) -> float | None:
        """How many times faster ``name`` is: the median of the rounds' ratios."""
        if name not in self.seconds or over not in self.seconds:
            return None
        return Comparison(self.seconds[name], self.seconds[over]).ratio

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        times = {
            name: {
                "median_us": statistics.median(seconds) * 1e6,
                "quartiles_us": [each * 1e6 for each in self.quartiles(name)],
                "gb_per_s": self.bytes_per_second(name) * 1e-9,
                "speedup_over_eager": self.speedup(name, "eager"),
                "speedup_over_compile": self.speedup(name, "compile"),
                "seconds": list(seconds),
            }
            for name, seconds in self.seconds.items()
        }
        return {
            "op": self.op,
            "case": self.case,
            "minimum_bytes": self.minimum_bytes,
            "ours": self.ours,
            "times": times,
            "notes": self.notes,
        }


def measure(ops: Iterable[Op], bench: Bench, tell: Callable[[str], None]) -> list[TimedCase]:
    """Verify and time every realistic case of each operator.

    Args:
        ops: The operators.
        bench: How to measure.
        tell: Called with a line per operator.

    Returns:
        A result per case; nothing is raised for a candidate that is wrong or fails.
    """
    rows: list[TimedCase] = []
    for op in ops:
        cases = [case for case in op.cases() if case.realistic and bench.dtype in case.dtypes]
        tell(f"{op.name}: {len(cases)} shapes")
        rows += [_measure(op, case, bench) for case in cases]
    return rows


def _measure(op: Op, case: Case, bench: Bench) -> TimedCase:
    torch.compiler.reset()  # every case is a new shape, and recompilations of one function are limited
    args = Arguments(arguments(case, bench.dtype, device=bench.device))
    minimum = op.minimum_bytes_of(args.values, op.fake(*args.values))
    row = TimedCase(op.name, case.label, minimum, tuple(own_names(op)))
    ready = _verified(op, args, bench, row)
    timed = interleave(ready, bench.timer, bench.rounds)
    row.seconds = timed.seconds
    for name, error in timed.failures.items():
        _note(row, name, f"failed: {_first_line(error)}", name in row.own)
    return row


def _verified(op: Op, args: Arguments, bench: Bench, row: TimedCase) -> dict[str, Candidate]:
    """The candidates whose results are right; the row gets a note about each of the others."""
    try:
        truth = Truth.of(op, args.values)
    except torch.OutOfMemoryError:
        row.notes = dict.fromkeys([*row.own, "eager", "compile", "liger"], "no memory for float64 results")
        return {}
    ready: dict[str, Candidate] = {}
    for name, make in candidates(op, args, bench.compiler):
        own = name in row.own
        try:
            candidate = make()
            problems = candidate.problems(truth, *(OWN_BOUNDS if own else PEER_BOUNDS))
        except NoCounterpartError as reason:
            _note(row, name, str(reason))
        except VerificationError as error:
            _note(row, name, f"wrong: {error}", own)
        except torch.OutOfMemoryError:
            _note(row, name, "out of memory")
        except Exception as error:  # whatever a counterpart's library raises
            _note(row, name, f"failed: {_first_line(error)}", own)
        else:
            if problems:
                _note(row, name, f"wrong: {'; '.join(problems)}", own)
            else:
                ready[name] = candidate
    return ready


def _note(row: TimedCase, name: str, text: str, mistake: bool = False) -> None:
    row.notes[name] = text
    if mistake:
        row.mistakes.append(f"{row.op} ({row.case}), {name}: {text}")


def _first_line(error: Exception) -> str:
    lines: Sequence[str] = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"
