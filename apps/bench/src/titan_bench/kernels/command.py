"""What ``titan-bench kernels`` does with its options."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

import titan_kernels
from titan_bench.errors import BenchError, UsageError, VerificationError
from titan_bench.kernels.emulate import Mistake, default_jobs
from titan_bench.kernels.emulate import emulate as emulate_ops
from titan_bench.kernels.figures import KernelRow
from titan_bench.kernels.measure import Bench, measure, on_gpu
from titan_bench.kernels.show import Table
from titan_bench.kernels.show_times import print_times
from titan_bench.results import write_json
from titan_kernels import device, images
from titan_kernels.errors import TitanKernelsError
from titan_kernels.registry import Op, ops

__all__ = ["Request", "run_kernels"]

_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
_PLOT_SUFFIXES = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Request:
    """The options.

    Args:
        names: Beginnings of operators' names; all operators if empty.
        emulate: Count on the emulator instead of timing.
        dtype: Of the data: fp16, bf16 or fp32.
        rounds: Timed calls per candidate.
        jobs: Processes that emulate; as many as fit if not given.
        json_path: Where to write the result to.
        plot_path: Where to draw it.
    """

    names: Sequence[str] = ()
    emulate: bool = False
    dtype: str = "fp16"
    rounds: int = 40
    jobs: int | None = None
    json_path: Path | None = None
    plot_path: Path | None = None


def run_kernels(request: Request, tell: Callable[[str], None]) -> None:
    """Run the benchmark and print its table.

    Args:
        request: The options.
        tell: Called with lines on the progress.

    Raises:
        UsageError: An unknown operator, or a chart that can't be drawn.
        BenchError: No GPU and no ``--emulate``, or a file can't be written.
        VerificationError: One of our implementations is wrong or failed.
    """
    _check(request)
    if request.emulate:
        _emulate(request, tell)
        return
    if not torch.cuda.is_available():
        raise BenchError("titan-bench kernels needs an NVIDIA GPU to time; --emulate does without")
    time_kernels(request, on_gpu(_DTYPES[request.dtype], request.rounds), tell)


def time_kernels(request: Request, bench: Bench, tell: Callable[[str], None]) -> None:
    """The measuring part of :func:`run_kernels`, with any clock and device."""
    rows = measure(_chosen(request.names), bench, tell)
    card = device.current(bench.device)
    print_times(rows, None if card is None else card.bandwidth_gbs)
    machine = _machine(bench.device, request.dtype)
    if request.json_path is not None:
        values = {
            "rounds": bench.rounds,
            "data_sheet_gb_per_s": None if card is None else card.bandwidth_gbs,
            "rows": [row.to_dict() for row in rows],
        }
        write_json(request.json_path, "kernels", machine, values)
    if request.plot_path is not None:
        from titan_bench.kernels.plot import draw  # matplotlib takes a second

        draw(rows, request.plot_path, f"{machine['device']}, {request.dtype}")
    _raise([text for row in rows for text in row.mistakes])


def _raise(mistakes: Sequence[str]) -> None:
    if mistakes:
        raise VerificationError("not all of our kernels are right:\n" + "\n".join(mistakes))


def _emulate(request: Request, tell: Callable[[str], None]) -> None:
    """Prints and writes each row when it comes, for the whole may take minutes."""
    _check_built()
    chosen, found = _chosen(request.names), _Found()
    table, jobs = Table(chosen), request.jobs or default_jobs()
    with contextlib.closing(emulate_ops(chosen, _DTYPES[request.dtype], jobs, tell)) as results:
        for result in results:
            found.add(result)
            _write_emulated(request, found)  # first, so that what has been printed has been kept
            if isinstance(result, KernelRow):
                table.add(result)
    table.end()
    found.complete = True
    _write_emulated(request, found)
    _raise(found.mistakes)


@dataclass
class _Found:
    """What is known of an emulation so far."""

    rows: list[KernelRow] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)
    complete: bool = False

    def add(self, result: KernelRow | Mistake) -> None:
        if isinstance(result, Mistake):
            self.mistakes.append(str(result))
        else:
            self.rows.append(result)


def _write_emulated(request: Request, found: _Found) -> None:
    if request.json_path is None:
        return
    machine = {"device": "emulator", "python": platform.python_version(), "torch": torch.__version__}
    machine |= {"titan_kernels": titan_kernels.__version__, "precision": request.dtype}
    values = {
        "complete": found.complete,
        "mistakes": found.mistakes,
        "rows": [row.to_dict() for row in found.rows],
    }
    write_json(request.json_path, "kernels-emulated", machine, values)


def _check_built() -> None:
    try:
        images.units()
    except TitanKernelsError as error:
        raise BenchError(str(error)) from None


def _machine(where: torch.device, dtype: str) -> dict[str, str]:
    from titan_pretrain.metrics.environment import environment_facts

    facts = environment_facts(where, world_size=1, precision=dtype)
    if where.type == "cuda":
        facts["driver"] = _driver_version()
    return facts | {name: _version(name) for name in ("torch-titan-kernels", "triton", "liger-kernel")}


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _driver_version() -> str:
    """The driver's release, which only NVIDIA's own tool tells."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.split()
    except (OSError, subprocess.TimeoutExpired):
        lines = []
    return lines[0] if lines else "unknown"


def _known() -> dict[str, Op]:
    return {name: op for name, op in ops().items() if any(i.name == "cuda" for i in op.implementations)}


def _chosen(names: Sequence[str]) -> list[Op]:
    return [op for name, op in sorted(_known().items()) if not names or name.startswith(tuple(names))]


def _check(request: Request) -> None:
    """All wrong options at once."""
    known, problems = _known(), []
    if unknown := [each for each in request.names if not any(name.startswith(each) for name in known)]:
        problems.append(
            f"OP ({', '.join(unknown)}): no operator starts so; there are {', '.join(sorted(known))}"
        )
    if request.plot_path is not None:
        if request.plot_path.suffix.lower() not in _PLOT_SUFFIXES:
            problems.append(
                f"--plot ({request.plot_path}): its name must end with {', '.join(_PLOT_SUFFIXES)}"
            )
        if request.emulate:
            problems.append(
                f"--plot ({request.plot_path}): it draws measured times; leave out --emulate, or use --json"
            )
    if request.jobs is not None and not request.emulate:
        problems.append(f"--jobs ({request.jobs}): only --emulate runs in several processes; leave it out")
    if problems:
        raise UsageError("\n".join(problems))
