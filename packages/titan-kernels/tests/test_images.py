from __future__ import annotations

import io
import json
import lzma
import os
import subprocess
import sys
import zipfile

import pytest

from titan_kernels import __main__ as command
from titan_kernels import images
from titan_kernels.errors import LaunchError, TitanKernelsError

ARCHITECTURES = ("compute_75", "sm_70", "sm_75")


def test_every_unit_has_all_images() -> None:
    assert "rms_norm" in images.units()
    for unit in images.units():
        assert images.architectures(unit) == ARCHITECTURES
        assert images.read(unit, "sm_70")[:4] == images.read(unit, "sm_75")[:4] == b"\x7fELF"
        assert b"\n.target sm_75\n" in images.read(unit, "compute_75")
        assert all(len(images.read(unit, arch)) == images.size(unit, arch) for arch in ARCHITECTURES)


def test_facts_of_kernels() -> None:
    for arch in ("sm_70", "sm_75"):
        infos = images.info("rms_norm", arch)
        assert infos.keys() == images.signatures("rms_norm", arch).keys()
        assert all(1 <= info.registers <= 255 for info in infos.values())
        assert all(sum(info.instructions.values()) == sum(info.pipes.values()) for info in infos.values())
        assert all(loop.begin < loop.end for info in infos.values() for loop in info.loops)


def test_signatures_of_ptx_are_those_of_the_machine_code() -> None:
    for unit in images.units():
        assert images.signatures(unit, "compute_75") == images.signatures(unit, "sm_75")


@pytest.mark.parametrize(
    ("capability", "arch"),
    [
        ((7, 0), "sm_70"),
        ((7, 2), "sm_70"),
        ((7, 5), "sm_75"),
        ((8, 0), "compute_75"),
        ((8, 6), "compute_75"),
        ((12, 0), "compute_75"),
    ],
)
def test_choice_by_capability(capability: tuple[int, int], arch: str) -> None:
    assert images.choose("rms_norm", capability) == arch


def test_no_choice_for_older_gpus() -> None:
    with pytest.raises(LaunchError, match=r"compute capability 6\.1, only compute_75, sm_70, sm_75"):
        images.choose("rms_norm", (6, 1))


def test_problem_names_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "compute capability 5.2" in str(images.problem((5, 2)))
    monkeypatch.setattr("titan_kernels._driver.version", lambda: 12090)
    assert images.problem((7, 0)) is None


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (
            lambda: images.info("nothing", "sm_70"),
            r"unit \(nothing\) has no kernels; those with some: .*rms_norm",
        ),
        (
            lambda: images.info("rms_norm", "sm_80"),
            r"arch \(sm_80\) of unit rms_norm was not built, only compute_75",
        ),
        (lambda: images.info("rms_norm", "compute_75"), "is PTX, of which only signatures are known"),
    ],
)
def test_mistakes(ask: object, words: str) -> None:
    with pytest.raises(TitanKernelsError, match=words):
        ask()  # type: ignore[operator]


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["images"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["op", "image", "kernels", "KB", "registers", "spills", "shared"]
    rows = {(line[0], line[1]): line[2:] for line in lines[1:]}
    assert rows.keys() == {(unit, arch) for unit in images.units() for arch in ARCHITECTURES}
    infos = images.info("rms_norm", "sm_70").values()
    assert rows["rms_norm", "sm_70"][0] == str(len(infos))
    assert rows["rms_norm", "sm_70"][2] == str(max(info.registers for info in infos))
    assert rows["rms_norm", "compute_75"][2:] == ["-", "-", "-"]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["images", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    name, info = next(iter(images.info("rms_norm", "sm_75").items()))
    assert facts["rms_norm"]["sm_75"]["kernels"][name]["registers"] == info.registers
    assert "registers" not in facts["rms_norm"]["compute_75"]["kernels"][name]


@pytest.mark.parametrize(("arguments", "status"), [(["--help"], 0), ([], 2), (["nothing"], 2)])
def test_usage(arguments: list[str], status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "titan_kernels", *arguments], capture_output=True, check=False
    )
    assert done.returncode == status


def test_a_reader_that_has_seen_enough() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "titan_kernels", "images", "--json"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_copy_that_is_not_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import titan_kernels

    images._index.cache_clear()
    monkeypatch.delattr(titan_kernels, "_driver", raising=False)
    monkeypatch.setitem(sys.modules, "titan_kernels._driver", None)
    assert command.main(["images"]) == 1
    assert "this copy of titan_kernels is not built" in capsys.readouterr().err


def test_damaged_kernels(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from titan_kernels import _driver

    whole = bytes(_driver.archive())
    for damaged in (b"", whole[: len(whole) // 2], _archive(other=b""), _archive(**{"images.json.xz": b"{"})):
        images._index.cache_clear()
        monkeypatch.setattr(_driver, "archive", lambda damaged=damaged: damaged)
        assert command.main(["images"]) == 1
        assert "error: the kernels in this copy of titan_kernels are damaged (" in capsys.readouterr().err
    images._index.cache_clear()


def _archive(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, lzma.compress(content))
    return file.getvalue()
