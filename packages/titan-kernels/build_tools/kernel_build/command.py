"""Compiles all kernels: ``python build_tools --ops ... --include ... --output images.zip``.

Units that have not changed since any earlier build on this machine are taken from the cache, see
:mod:`kernel_build.cache`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from kernel_build import archive, cache, compile_unit, nvrtc, sources

__all__ = ["compile_all", "main"]

_WORKERS = 8
_Job = tuple[str, int]  # unit, architecture number


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    options = _parse(arguments)
    try:
        if options.cuda_include:
            _say(nvrtc.cuda_include())
        else:
            _build(options)
    except BrokenProcessPool:
        sys.stderr.write("kernels do not build: a compiling process was killed, as it is without memory\n")
        return 1
    except (nvrtc.CompileError, nvrtc.ToolchainError, ValueError, OSError) as error:
        sys.stderr.write(f"kernels do not build: {error}\n")
        return 1
    return 0


def _build(options: argparse.Namespace) -> None:
    kept = cache.Cache(options.cache or cache.default_folder(os.environ, options.output.parent))
    compiled = compile_all(options.ops, options.include, _numbers(options.images), kept)
    units = sources.find_units(options.ops).items()
    fingerprints = {unit: sources.fingerprint(path, (options.include,), {}) for unit, path in units}
    index = archive.write_archive(options.output, compiled, options.images, fingerprints)
    kept.prune()
    size = options.output.stat().st_size
    _say(f"kernel images: {len(index)} units, {', '.join(options.images)}, {size / 1e6:.2f} MB")


def compile_all(
    ops: Path, include: Path, numbers: tuple[int, ...], kept: cache.Cache
) -> dict[_Job, compile_unit.UnitImages]:
    """All units below ``ops`` for all architectures; only what is not in ``kept`` is compiled."""
    units = sources.find_units(ops)
    if not units:
        raise ValueError(f"no ops/*/kernel.cu below {ops}")
    keys = {
        (unit, number): compile_unit.key(path, number, (include,))
        for unit, path in units.items()
        for number in numbers
    }
    found = {job: kept.get(key) for job, key in keys.items()}
    results = {job: images for job, images in found.items() if images is not None}
    missing = [job for job in keys if job not in results]
    # The largest sources first, so that no long job starts last.
    missing.sort(key=lambda job: units[job[0]].stat().st_size, reverse=True)
    if missing:
        with ProcessPoolExecutor(min(_WORKERS, len(missing), os.cpu_count() or 1)) as pool:
            futures = {job: pool.submit(_timed, units[job[0]], job[1], (include,)) for job in missing}
            for job, future in futures.items():
                results[job], seconds = future.result()
                kept.put(keys[job], results[job])
                _say(f"compiled {job[0]} for sm_{job[1]} in {seconds:.1f} s")
    return results


def _say(text: object) -> None:
    print(text, flush=True)  # noqa: T201  # the build's log


def _timed(source: Path, number: int, includes: tuple[Path, ...]) -> tuple[compile_unit.UnitImages, float]:
    begin = time.perf_counter()
    return compile_unit.compile_unit(source, number, includes), time.perf_counter() - begin


def _numbers(images: list[str]) -> tuple[int, ...]:
    return tuple(sorted({int(image.rpartition("_")[2]) for image in images}))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="build_tools", description=__doc__)
    parser.add_argument("--cuda-include", action="store_true", help="print the folder of cuda.h, and no more")
    parser.add_argument("--ops", type=Path, help="folder of <unit>/kernel.cu")
    parser.add_argument("--include", type=Path, help="folder of titan/device.cuh")
    parser.add_argument("--output", type=Path, help="the archive to write")
    parser.add_argument("--images", nargs="+", help="such as sm_70 sm_75 compute_75")
    parser.add_argument("--cache", type=Path, help=f"folder of earlier results; else {cache.ENVIRONMENT}")
    return parser.parse_args(arguments)
