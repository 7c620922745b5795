"""Units are compiled once, safely among processes, on any machine, and refusals say why."""

import functools
import multiprocessing
import os
import shutil
import time
from pathlib import Path

import pytest
import torch

from titan_kernels.emulator import compile as compiling
from titan_kernels.emulator import compile_unit, emulated, include_directories, native, unit_source
from titan_kernels.emulator import session as sessions
from titan_kernels.errors import CompileError

UNIT = """
#include <titan/device.cuh>
using namespace titan;
__device__ void twice(Global<float> x) {
  TITAN_SHARED(float, data, 64);
  data.store(threadIdx.x, x.load(threadIdx.x));
  __syncthreads();
  x.store(threadIdx.x, 2 * __shfl_xor_sync(FULL_MASK, data.load(threadIdx.x ^ 1), 1));
}
TITAN_KERNEL(twice_f32, 64, (Global<float> x), twice(x))
"""


FAST = tuple("-O0" if flag == "-O2" else flag for flag in compiling._FLAGS)


def written(folder, patch):
    """The unit in a folder, with a cache beside it."""
    patch.setenv("TITAN_CACHE", str(folder / "cache"))
    patch.setattr(compiling, "_FLAGS", FAST)
    path = folder / "unit.cu"
    path.write_text(UNIT)
    return path


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    """What all units share, compiled once: half of a test's time else."""
    with pytest.MonkeyPatch.context() as patch:
        library = compile_unit(written(tmp_path_factory.mktemp("runtime"), patch))
    (found,) = library.parent.glob("runtime-*.o")
    return found


@pytest.fixture
def unit(tmp_path, monkeypatch, runtime):
    path = written(tmp_path, monkeypatch)
    (path.parent / "cache" / "emulator").mkdir(parents=True)
    shutil.copy(runtime, path.parent / "cache" / "emulator")
    return path


def run(unit):
    x = torch.arange(64.0)
    with emulated() as session:
        session.run(unit, "twice_f32", (1, 1, 1), (64, 1, 1), [x])
    return x


def libraries(unit):
    return sorted((unit.parent / "cache" / "emulator").glob("*.so"))


def test_compiled_once_per_content(unit):
    first = compile_unit(unit)
    written = first.stat().st_ino
    assert compile_unit(unit) == first
    assert first.stat().st_ino == written
    unit.write_text(UNIT + "// changed\n")
    assert compile_unit(unit) != first
    assert compile_unit(unit, ("-DTITAN_OTHER",)) != compile_unit(unit)
    assert len(libraries(unit)) == 3
    assert not list(first.parent.glob(".*"))  # nothing is left over from building


def test_header_beside_the_unit_counts(unit):
    unit.write_text('#include "parts/part.cuh"\n' + UNIT)
    folder = unit.parent / "parts"
    folder.mkdir()
    (folder / "part.cuh").write_text('#include "deeper.cuh"\n')
    keys = set()
    for text in ("// one\n", "// two\n"):
        (folder / "deeper.cuh").write_text(text)
        keys.add(compile_unit(unit))
    assert len(keys) == 2
    (folder / "stranger.cuh").write_text("// whatever lies there as well\n")
    assert compile_unit(unit) in keys


def test_a_changed_runtime_is_linked_again(unit, monkeypatch):
    first = compile_unit(unit)
    includes = compiling.include_directories()
    copy = Path(shutil.copytree(includes[1], unit.parent / "emulator"))
    monkeypatch.setattr(compiling, "include_directories", lambda: (includes[0], copy))
    assert compile_unit(unit) == first
    runtime = copy / "titan_emulator" / "runtime" / "fiber.h"
    runtime.write_text(runtime.read_text() + "// changed\n")
    assert compile_unit(unit) != first


def test_changed_unit_is_compiled_again_in_one_process(unit):
    assert torch.equal(run(unit), torch.arange(64.0) * 2)
    unit.write_text(UNIT.replace("2 *", "3 *"))
    assert torch.equal(run(unit), torch.arange(64.0) * 3)


def test_processes_compile_the_same_unit_at_once(unit):
    shutil.rmtree(unit.parent / "cache")
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        paths = pool.map(compile_unit, [unit] * 2)
    assert len(set(paths)) == 1
    assert libraries(unit) == [paths[0]]


def test_other_context_switch(unit, monkeypatch):
    """POSIX contexts, for machines without a switch in assembly."""
    flags = ("-DTITAN_EMULATOR_UCONTEXT",)
    monkeypatch.setattr(sessions, "compile_unit", functools.partial(compile_unit, extra_flags=flags))
    assert torch.equal(run(unit), torch.arange(64.0) * 2)


def test_machine_without_half_precision_instructions(unit, monkeypatch):
    monkeypatch.setattr(compiling, "_machine_flags", tuple)
    assert torch.equal(run(unit), torch.arange(64.0) * 2)


def test_headers_compile_without_warnings(unit):
    compile_unit(unit, ("-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-unused-parameter"))


def test_warnings_are_silent_if_not_asked_for(unit):
    unit.write_text(UNIT + "\nstatic int nobody_calls() { return 1; }\n")
    compile_unit(unit)
    with pytest.raises(CompileError, match="nobody_calls"):
        compile_unit(unit, ("-Wall", "-Werror"))


@pytest.mark.parametrize("content", [b"", b"half of a file"])
def test_damaged_cache_is_compiled_again(unit, content):
    compile_unit(unit)
    for path in libraries(unit)[0].parent.iterdir():
        path.write_bytes(content)
    assert torch.equal(run(unit), torch.arange(64.0) * 2)


def test_what_nobody_uses_is_deleted(unit):
    old = time.time() - 61 * 24 * 3600
    used = compile_unit(unit)
    folder = used.parent
    crashed = folder / ".building-crashed"
    crashed.mkdir()
    (crashed / "half.so").write_text("")
    forgotten, foreign = folder / "gone-kernel-0.so", folder / "notes.txt"
    for path in (forgotten, foreign):
        path.write_text("")
    for path in (used, *folder.glob("*.o"), forgotten, foreign, crashed):
        os.utime(path, (old, old))
    assert compile_unit(unit) == used  # uses it once more
    assert forgotten.exists(), "only what adds a result looks for old ones"
    unit.write_text(UNIT + "// changed\n")
    new = compile_unit(unit)
    assert {used, new, foreign, *folder.glob("runtime-*.o")} == set(folder.iterdir())


def test_library_that_cannot_be_loaded(unit, monkeypatch):
    def load(library):
        raise OSError(f"{library}: failed to map segment")

    monkeypatch.setattr(native, "load", load)
    with pytest.raises(CompileError, match=r"failed to map segment; name another folder in TITAN_CACHE"):
        run(unit)


def test_const_memory_is_read_only(unit):
    unit.write_text(UNIT.replace("(Global<float> x)", "(Global<const float> x)"))
    with pytest.raises(CompileError, match=r"Global<const T> is read-only"):
        compile_unit(unit)


def test_compilers_words_are_passed_on(unit):
    unit.write_text(UNIT.replace("float, data, 64", "float, data 64"))
    with pytest.raises(CompileError, match=r"unit.cu does not compile .*(?s:.*)unit.cu:5:"):
        run(unit)


def test_no_compiler(unit, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(
        CompileError, match="needs a C\\+\\+ compiler, but g\\+\\+, c\\+\\+, clang\\+\\+ is not on the PATH"
    ):
        run(unit)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CompileError, match="no-such-compiler is not on the PATH"):
        run(unit)
    monkeypatch.setenv("CXX", "g++ '-O1")
    with pytest.raises(CompileError, match=r"CXX \(g\+\+ '-O1\): No closing quotation"):
        run(unit)


def test_compiler_with_words_of_its_own(unit, monkeypatch):
    monkeypatch.setenv("CXX", "env TITAN_ANYTHING=1 g++")
    assert torch.equal(run(unit), torch.arange(64.0) * 2)


def test_cache_that_cannot_be_written(unit, monkeypatch):
    (unit.parent / "file").write_text("")
    monkeypatch.setenv("TITAN_CACHE", str(unit.parent / "file"))
    with pytest.raises(CompileError, match="TITAN_CACHE"):
        run(unit)


def test_cache_follows_the_environment(monkeypatch):
    monkeypatch.delenv("TITAN_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert compiling.cache_directory() == Path("/somewhere/titan/emulator")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert compiling.cache_directory() == Path("/home/someone/.cache/titan/emulator")


def test_user_without_a_home(monkeypatch):
    def home():
        raise RuntimeError("Could not determine home directory.")

    for name in ("TITAN_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", home)
    with pytest.raises(CompileError, match=r"home directory.*name a folder in TITAN_CACHE"):
        compiling.cache_directory()


def test_units_by_name_and_by_path(unit):
    assert unit_source(unit) == unit
    assert unit_source("rms_norm").parts[-3:] == ("ops", "rms_norm", "kernel.cu")
    with pytest.raises(CompileError, match="unit no_such_op: there is no file"):
        unit_source("no_such_op")


def test_headers_are_found():
    device, emulator = include_directories()
    assert (device / "titan" / "device.cuh").is_file()
    assert (emulator / "titan_emulator" / "emulator.h").is_file()


def test_kernels_of_a_unit(unit):
    kernels = native.call(native.load(compile_unit(unit)), "titan_emulator_kernels")
    assert kernels == {"twice_f32": {"max_threads": 64, "parameters": "(Global<float> x)"}}
