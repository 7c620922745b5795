"""Sessions of the emulator: inside one, kernels launched on CPU tensors run on the CPU."""

from __future__ import annotations

import contextlib
import ctypes
import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from titan_kernels.emulator import native
from titan_kernels.emulator.compile import compile_unit, unit_source
from titan_kernels.emulator.counters import LaunchReport, line_counters
from titan_kernels.emulator.poison import poisoned
from titan_kernels.errors import CompileError, EmulatorError, LaunchError

if TYPE_CHECKING:
    from titan_kernels.launch import Argument

__all__ = ["MULTIPROCESSORS", "Session", "active", "emulated"]

MULTIPROCESSORS = 72
"""Of the GPU that is emulated if nothing else is said: a Titan RTX."""

_sessions = threading.local()
_compiling = threading.Lock()
# One launch at a time: a unit has one state, and its handlers of faults belong to the process.
_running = threading.Lock()
_libraries: dict[tuple[Path, int], ctypes.CDLL] = {}


@dataclass(eq=False)  # nested sessions may have equal options
class Session:
    """Options of :func:`emulated` and what was launched with them."""

    seed: int = 0
    check: bool = True
    count: bool = False
    shared_limit: int = 64 * 1024
    blocks: int | Sequence[int] | None = None
    time_limit: float = 120.0
    multiprocessors: int = MULTIPROCESSORS
    launches: list[LaunchReport] = field(default_factory=list)
    """One report per launch, in order."""
    multiprocessors_used: bool = field(default=False, init=False)
    """Whether a launch depends on ``multiprocessors``."""

    def __post_init__(self) -> None:
        if problems := list(self._problems()):
            raise ValueError("; ".join(problems))

    def _problems(self) -> Iterator[str]:
        if not _whole(self.seed):
            yield f"seed ({self.seed!r}): it must be an integer"
        if not _whole(self.shared_limit, 0, 2**32 - 1):
            yield f"shared_limit ({self.shared_limit!r}): it must be a number of bytes, such as 65536"
        if not self.time_limit >= 0:
            yield f"time_limit ({self.time_limit}): it must not be negative; 0 is no limit"
        if not _whole(self.multiprocessors, 1):
            yield f"multiprocessors ({self.multiprocessors!r}): a GPU has at least one"
        numbers, least = ([self.blocks], 1) if isinstance(self.blocks, int) else (self.blocks, 0)
        if numbers is not None and not (len(numbers) and all(_whole(each, least) for each in numbers)):
            yield f"blocks ({self.blocks!r}): it must be how many (at least 1), or a list of their numbers"

    def run(
        self,
        unit: str | Path,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        args: Sequence[Argument],
        shared: int = 0,
    ) -> LaunchReport:
        """Runs a kernel to its end and notes the launch.

        Ctrl-C ends it early, and so does whatever else a signal's handler raises.

        Args:
            unit: An op's name, or the path of any ``.cu`` file.
            kernel: The kernel's name.
            grid: Blocks in x, y, z.
            block: Threads of a block in x, y, z.
            args: As for :func:`titan_kernels.launch.launch`.
            shared: Dynamic shared memory in bytes.

        Raises:
            CompileError: the unit does not compile.
            LaunchError: geometry or arguments do not fit the kernel.
            EmulatorError: the kernel did something illegal.
        """
        native.check_geometry(kernel, grid, block, shared)
        arguments = native.convert(kernel, args)
        blocks = self._chosen(grid)
        request = native.NativeLaunch(
            kernel=kernel.encode(),
            grid=grid,
            block=block,
            dynamic_shared=shared,
            shared_limit=self.shared_limit,
            arguments=(native.NativeArgument * len(arguments))(*arguments),
            argument_count=len(arguments),
            blocks=None if blocks is None else (ctypes.c_uint64 * len(blocks))(*blocks),
            block_count=0 if blocks is None else len(blocks),
            seed=self.seed & 0xFFFF_FFFF_FFFF_FFFF,
            check=self.check,
            count=self.count,
            time_limit=self.time_limit,
        )
        library = _library(unit)
        with _running:
            answer = native.launch(library, request)
        report = self._report(str(unit), kernel, grid, block, answer)
        self.launches.append(report)
        return report

    def _report(
        self,
        unit: str,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        answer: dict[str, Any],
    ) -> LaunchReport:
        if "bad_launch" in answer:
            raise LaunchError(f"kernel {kernel}: {answer['bad_launch']}")
        if "failure" in answer:
            raise _error(kernel, self.seed, answer["failure"])
        return LaunchReport(
            unit,
            kernel,
            grid,
            block,
            blocks_run=answer["blocks"],
            shared_bytes=answer["shared_bytes"],
            unique_load_sectors=answer.get("unique_load_sectors", 0),
            unique_store_sectors=answer.get("unique_store_sectors", 0),
            lines=line_counters(answer.get("names", []), answer.get("lines", [])),
        )

    def _chosen(self, grid: tuple[int, int, int]) -> list[int] | None:
        """Numbers of the blocks to run; x runs fastest."""
        total = grid[0] * grid[1] * grid[2]
        if self.blocks is None:
            return None
        if isinstance(self.blocks, int):
            n = min(self.blocks, total)
            return sorted({round(i * (total - 1) / max(n - 1, 1)) for i in range(n)})
        return [number for number in dict.fromkeys(self.blocks) if number < total]


def _whole(value: object, least: float = -math.inf, most: float = math.inf) -> bool:
    return isinstance(value, int) and least <= value <= most


def _error(kernel: str, seed: int, failure: dict[str, Any]) -> EmulatorError:
    block, thread = tuple(failure["block"]), tuple(failure["thread"])
    where = f"{kernel}, block {_triple(block)}, thread {_triple(thread)}, {failure['place']}"
    return EmulatorError(
        f"{where}: {failure['message']} ({failure['rule']}, seed {seed})",
        rule=failure["rule"],
        kernel=kernel,
        block=block,
        thread=thread,
        file=failure["file"],
        line=failure["line"],
        seed=seed,
    )


def _triple(index: tuple[int, ...]) -> str:
    return f"({','.join(map(str, index))})"


def _library(unit: str | Path) -> ctypes.CDLL:
    source = unit_source(unit)
    key = (source, source.stat().st_mtime_ns)
    with _compiling:
        if key not in _libraries:
            _libraries[key] = _load(source)
        return _libraries[key]


def _load(source: Path) -> ctypes.CDLL:
    """The compiled unit; compiled anew where a crash of the machine left half of it in the cache."""
    try:
        return native.load(compile_unit(source))
    except OSError:
        library = compile_unit(source, anew=True)
    try:
        return native.load(library)
    except OSError as error:
        raise CompileError(f"{error}; name another folder in TITAN_CACHE") from error


def active() -> Session | None:
    """The innermost session of this thread."""
    stack: list[Session] = getattr(_sessions, "stack", [])
    return stack[-1] if stack else None


@contextlib.contextmanager
def emulated(
    *,
    seed: int = 0,
    check: bool = True,
    count: bool = False,
    poison: bool = True,
    shared_limit: int = 64 * 1024,
    blocks: int | Sequence[int] | None = None,
    time_limit: float = 120.0,
    multiprocessors: int = MULTIPROCESSORS,
) -> Iterator[Session]:
    """Runs the CUDA kernels of CPU tensors in the SIMT emulator while the context is active.

    The session belongs to the thread that enters it.

    Args:
        seed: Fixes the order in which threads, warps and blocks run.
        check: Check every access: bounds, alignment, uninitialised shared memory, races.
        count: Count sectors, wavefronts and instructions per source line.
        poison: Fill what ``torch.empty`` and its kin return with NaN (the largest value for integers),
            so that outputs which a kernel forgets stand out.  Sets PyTorch's deterministic mode,
            which is a setting of the process, for the time being.
        shared_limit: Shared memory that a block may have, in bytes: 64 KB on sm_75, 96 KB on sm_70.
        blocks: Run only so many blocks, spread evenly over the grid, or the blocks with these numbers.
            Outputs of the others stay as they are.
        time_limit: Seconds after which a launch counts as endless; 0 for no limit.
        multiprocessors: Of the GPU that is emulated: ops whose blocks loop over their work choose the
            number of blocks by it.

    Yields:
        The session; its ``launches`` grow with each launch.

    Raises:
        ValueError: An option has no such value; says all that is wrong.
    """
    session = Session(seed, check, count, shared_limit, blocks, time_limit, multiprocessors)
    stack: list[Session] = _sessions.__dict__.setdefault("stack", [])
    stack.append(session)
    try:
        with poisoned() if poison else contextlib.nullcontext():
            yield session
    finally:
        stack.remove(session)
