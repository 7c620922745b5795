from __future__ import annotations

import json
import lzma
import os
import zipfile
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
from kernel_build import cache, command, compile_unit, sources

IMAGES = ["sm_70", "sm_75", "compute_75"]


class Build:
    """Runs the command that CMake runs."""

    def __init__(self, ops: Path, include: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.ops, self.include, self.capsys = ops, include, capsys
        self.archive = ops.parent / "images.zip"

    def run(self, *images: str, kept: str = "cache") -> tuple[int, str, str]:
        arguments = ["--ops", self.ops, "--include", self.include, "--output", self.archive]
        arguments += ["--cache", self.ops.parent / kept, "--images", *(images or IMAGES)]
        status = command.main([str(each) for each in arguments])
        return status, *self.capsys.readouterr()

    def compiled(self, **options: str) -> list[str]:
        """The units and architectures that a build compiles anew."""
        status, out, err = self.run(**options)
        assert status == 0, err
        lines = [line.split() for line in out.splitlines() if line.startswith("compiled")]
        return sorted(f"{words[1]} {words[3]}" for words in lines)

    def index(self) -> dict[str, Any]:
        with zipfile.ZipFile(self.archive) as file:
            return dict(json.loads(lzma.decompress(file.read("images.json.xz"))))

    def image(self, name: str) -> bytes:
        with zipfile.ZipFile(self.archive) as file:
            return lzma.decompress(file.read(f"{name}.xz"))


class Killed(Executor):
    """Its processes die, as where there is no memory left."""

    def __init__(self, workers: int) -> None:
        pass

    def submit(self, *_: object) -> Future[Any]:  # type: ignore[override]
        raise BrokenProcessPool


@pytest.fixture
def build(ops: Path, include: Path, capsys: pytest.CaptureFixture[str]) -> Build:
    return Build(ops, include, capsys)


ALL = ["first sm_70", "first sm_75", "second sm_70", "second sm_75"]


class TestIncremental:
    def test_only_what_changed_is_compiled(self, build: Build) -> None:
        assert build.compiled() == ALL
        assert build.compiled() == []
        changed = build.ops / "second/kernel.cu"
        changed.write_text(changed.read_text() + "\n// changed\n")
        assert build.compiled() == ["second sm_70", "second sm_75"]
        header = build.ops / "first/shared.h"
        header.write_text(header.read_text().replace("2.0f", "3.0f"))
        assert build.compiled() == ["first sm_70", "first sm_75"]

    def test_another_folder_with_the_same_text_is_not_compiled(self, build: Build) -> None:
        build.compiled()
        build.ops = build.ops.rename(build.ops.with_name("elsewhere"))
        assert build.compiled() == []

    def test_an_unchanged_archive_keeps_its_date(self, build: Build) -> None:
        build.compiled()
        before = build.archive.stat().st_mtime_ns
        build.compiled()
        assert build.archive.stat().st_mtime_ns == before

    def test_builds_are_reproducible(self, build: Build) -> None:
        build.compiled()
        first = build.archive.read_bytes()
        assert build.compiled(kept="another") == ALL
        assert build.archive.read_bytes() == first

    def test_a_damaged_result_is_compiled_again(self, build: Build) -> None:
        build.compiled()
        damaged = sorted((build.ops.parent / "cache").glob("*.zip"))[0]
        damaged.write_bytes(damaged.read_bytes()[:100])
        again = build.compiled()
        assert again in (["first sm_70", "second sm_70"], ["first sm_75", "second sm_75"])  # equal texts

    def test_options_and_toolchain_count(
        self, ops: Path, include: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = ops / "first/kernel.cu"
        keys = {compile_unit.key(source, number, (include,)) for number in (70, 75)}
        monkeypatch.setattr(compile_unit, "OPTIONS", (*compile_unit.OPTIONS, "-lineinfo"))
        keys.add(compile_unit.key(source, 75, (include,)))
        monkeypatch.setattr("kernel_build.nvrtc.versions", lambda: {"nvrtc": "13"})
        keys.add(compile_unit.key(source, 75, (include,)))
        assert len(keys) == 4


class TestIndex:
    def test_facts_of_a_kernel(self, build: Build) -> None:
        build.compiled()
        index = build.index()
        assert sorted(index) == ["first", "second"]
        assert sorted(index["first"]) == sorted(IMAGES)
        scale, gather = (index["first"]["sm_75"]["kernels"][name] for name in ("scale", "gather"))
        assert scale["parameters"] == ["bytes:8", "bytes:8", "i64", "i32", "f32"]
        assert gather["parameters"] == ["bytes:32", "bytes:32", "bytes:8"]
        assert (scale["max_threads"], gather["max_threads"]) == (128, 64)
        assert (scale["static_shared"], gather["static_shared"]) == (0, 128)
        assert 0 < scale["registers"] < 64
        assert scale["spill_stores"] == scale["spill_loads"] == 0
        assert gather["sass"]["pipes"]["barrier"] >= 1
        assert len(scale["sass"]["loops"]) >= 1

    def test_ptx_has_signatures_only(self, build: Build) -> None:
        build.compiled()
        facts = build.index()["first"]["compute_75"]["kernels"]["scale"]
        assert sorted(facts) == ["max_threads", "parameters", "static_shared"]

    def test_images_are_what_their_names_say(self, build: Build) -> None:
        build.compiled()
        assert build.image("first/sm_70")[:4] == b"\x7fELF"
        ptx = build.image("first/compute_75").decode()
        assert "\n.version 7.0\n.target sm_75\n" in ptx
        assert build.index()["first"]["compute_75"]["size"] == len(ptx)

    def test_ptx_for_volta_when_asked(self, build: Build) -> None:
        assert build.run("sm_75", "compute_70")[0] == 0
        assert sorted(build.index()["first"]) == ["compute_70", "sm_75"]
        assert ".target sm_70" in build.image("first/compute_70").decode()


class TestMistakes:
    def test_a_compile_error_names_file_and_line(self, build: Build) -> None:
        source = build.ops / "second/kernel.cu"
        source.write_text("#include <titan/device.cuh>\n\nint broken = nothing;\n")
        status, _, err = build.run()
        assert status == 1
        assert f'{source}(3): error: identifier "nothing" is undefined' in err
        assert "Traceback" not in err

    def test_a_parameter_that_python_cannot_pass(self, build: Build) -> None:
        source = build.ops / "second/kernel.cu"
        source.write_text("#include <titan/device.cuh>\nTITAN_KERNEL(k, 32, (double x), {})\n")
        assert "kernel k has a .f64 parameter" in build.run()[2]

    def test_a_kernel_without_a_launch_bound(self, build: Build) -> None:
        (build.ops / "second/kernel.cu").write_text('extern "C" __global__ void k(int x) {}\n')
        assert "kernel k has no launch bound: declare it with TITAN_KERNEL" in build.run()[2]

    def test_no_units(self, build: Build, tmp_path: Path) -> None:
        build.ops = tmp_path / "empty"
        assert "no ops/*/kernel.cu below" in build.run()[2]

    def test_a_killed_process(self, build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(command, "ProcessPoolExecutor", Killed)
        status, _, err = build.run()
        assert status == 1
        assert "a compiling process was killed" in err

    def test_a_missing_compiler(self, build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("kernel_build.nvrtc.REQUIREMENTS", ("no-such-distribution",))
        assert "no-such-distribution is not installed: pip install" in build.run()[2]


class TestCache:
    def test_folder(self, tmp_path: Path) -> None:
        build = tmp_path / "build"
        named = {"TITAN_CACHE": str(tmp_path / "named"), "XDG_CACHE_HOME": str(tmp_path / "user")}
        assert cache.default_folder(named, build) == tmp_path / "named/kernels"
        del named["TITAN_CACHE"]
        assert cache.default_folder(named, build) == tmp_path / "user/titan/kernels"

    def test_folder_where_the_user_has_none(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        environment = {"XDG_CACHE_HOME": str(tmp_path / "file")}
        assert cache.default_folder(environment, tmp_path / "build") == tmp_path / "build/compiled"

    def test_folder_of_a_user_without_a_home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def home() -> Path:
            raise RuntimeError("Could not determine home directory.")

        monkeypatch.setattr(Path, "home", home)
        assert cache.default_folder({}, tmp_path) == tmp_path / "kernels"

    def test_old_results_are_deleted(self, tmp_path: Path) -> None:
        kept = cache.Cache(tmp_path)
        images = compile_unit.UnitImages(b"cubin", b"ptx", {"k": {"registers": 1}})
        kept.put("new", images)
        kept.put("old", images)
        os.utime(tmp_path / "old.zip", (0, 0))
        kept.prune()
        assert kept.get("new") == images
        assert kept.get("old") is None


def test_included_files_are_followed(ops: Path, include: Path) -> None:
    found = sources.included_files(ops / "first/kernel.cu", (include,))
    names = [path.name for path in found]
    assert names[0] == "kernel.cu"
    assert {"shared.h", "device.cuh", "memory.cuh", "row.cuh"} <= set(names)
    assert len(names) == len(set(names))
