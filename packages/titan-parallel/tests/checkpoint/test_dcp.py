from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
import torch

from titan_parallel.checkpoint import CheckpointReader, dcp
from titan_parallel.checkpoint.manifest import FileRecord, file_digest
from titan_parallel.errors import CheckpointCorruptError


class Bomb:
    """A pickle that runs a command when it is opened."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


def test_records_match_the_files(tmp_path):
    writer = dcp.HashingWriter(tmp_path)
    dcp.save({"model": {"a": torch.arange(5.0), "b": torch.ones(3, 3)}}, writer)
    files = {path.name: FileRecord(path.stat().st_size, file_digest(path)) for path in tmp_path.iterdir()}
    assert sorted(files) == [".metadata", "__0_0.distcp"]
    assert writer.records == files
    assert writer.os_error is None


def test_metadata_does_not_name_the_temporary_folder(tmp_path):
    dcp.save({"a": torch.ones(2)}, dcp.HashingWriter(tmp_path))
    assert str(tmp_path).encode() not in (tmp_path / ".metadata").read_bytes()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool])
def test_metadata_of_every_dtype_is_read(tmp_path, dtype):
    dcp.save({"model": {"a": torch.ones(2, dtype=dtype)}}, dcp.HashingWriter(tmp_path))
    records = dcp.tensor_records(dcp.SafeReader(tmp_path).read_metadata())
    assert records["model.a"].properties.dtype == dtype


def test_metadata_that_would_run_code_is_refused(lab, folder, tmp_path):
    path = lab.save(folder, 1, lab.model())
    (path / ".metadata").write_bytes(pickle.dumps(Bomb(tmp_path / "bang")))
    with pytest.raises(CheckpointCorruptError, match="system doesn't belong into checkpoint metadata"):
        CheckpointReader(path)
    assert not (tmp_path / "bang").exists()


def test_a_write_that_fails_tells_why(small_disk):
    writer = dcp.HashingWriter(small_disk / "x")
    with pytest.raises(dcp.CheckpointException):
        dcp.save({"a": torch.ones(10**6)}, writer)
    assert writer.os_error is not None
    assert writer.os_error.strerror == "No space left on device"
