from __future__ import annotations

import os
import shutil

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from titan_parallel.checkpoint import CheckpointReader, verify
from titan_parallel.errors import CheckpointCorruptError, CheckpointMismatchError, CheckpointNotFoundError
from titan_parallel.testing import run_ranks


@pytest.fixture(scope="module")
def pristine(lab, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pristine")
    return folder, run_ranks(4, lab.trained, folder, 3, (2, 2))[0]


@pytest.fixture
def sharded(pristine, folder):
    """A checkpoint of four ranks and the state it holds."""
    shutil.copytree(pristine[0], folder)
    return folder / "step-00000003", pristine[1]


def test_reads_what_four_ranks_wrote_without_a_group(lab, sharded):
    path, wanted = sharded
    reader = CheckpointReader(path)
    assert (reader.step, reader.trainer(), reader.manifest.world_size) == (3, {"step": 3}, 4)
    infos = {info.name: info for info in reader.iterate_tensors()}
    assert infos["layers.0.0.weight"].shape == (7, 6)
    assert infos["layers.0.0.weight"].nbytes == 7 * 6 * 4
    assert infos["seen"].dtype == torch.int64
    got = {f"model.{name}": reader.read_tensor(name) for name in infos}
    names = [info.name for info in reader.iterate_tensors("optim")]
    got |= {f"optim.{name}": reader.read_tensor(name, "optim") for name in names}
    lab.assert_equal(got, wanted)


def test_reads_on_one_rank_of_a_group(sharded):
    path, wanted = sharded

    def read() -> bool:
        if torch.distributed.get_rank() == 1:
            return True
        return torch.equal(CheckpointReader(path).read_tensor("head.weight"), wanted["model.head.weight"])

    assert run_ranks(2, read) == [True, True]


def test_unknown_things(sharded, tmp_path):
    path, _ = sharded
    with pytest.raises(CheckpointMismatchError, match="has no tensor nose in its model state"):
        CheckpointReader(path).read_tensor("nose")
    with pytest.raises(CheckpointNotFoundError, match="doesn't exist"):
        CheckpointReader(tmp_path / "nowhere")


def test_a_tensor_is_read_from_its_own_files_only(lab, folder):
    """A scalar lies in one rank's file; the other isn't opened."""
    run_ranks(2, lab.trained, folder, 1, (1, 2))
    path = folder / "step-00000001"
    seen = []
    reader = CheckpointReader(path)
    real = reader._reader.fs.create_stream

    def create_stream(name, mode):
        seen.append(name.name)
        return real(name, mode)

    reader._reader.fs.create_stream = create_stream
    reader.read_tensor("seen")
    assert len(seen) == 1
    reader.read_tensor("head.weight")
    assert set(seen[1:]) == {"__0_0.distcp", "__1_0.distcp"}


def test_a_sound_checkpoint_has_no_problems(sharded):
    assert verify(sharded[0]) == []


def test_verify_lists_every_damaged_file(sharded):
    path, _ = sharded
    os.truncate(path / "__1_0.distcp", 10)
    (path / "__2_0.distcp").unlink()
    size = (path / "trainer.json").stat().st_size
    (path / "trainer.json").write_text("x" * size)
    problems = verify(path)
    assert f"{path}/__1_0.distcp is truncated" in " ".join(problems)
    assert f"{path}/__2_0.distcp is missing" in problems
    assert f"{path}/trainer.json has changed: its content doesn't match its checksum" in problems
    assert len(problems) == 3
    reader = CheckpointReader(path)
    places = reader._reader.read_metadata().storage_data.items()
    gone = next(index.fqn for index, place in places if place.relative_path == "__2_0.distcp")
    section, _, name = gone.partition(".")
    with pytest.raises(CheckpointCorruptError, match=f"{name} can't be read: No such file"):
        reader.read_tensor(name, section)


def test_verify_reports_an_unreadable_manifest(sharded):
    path, _ = sharded
    (path / "manifest.json").unlink()
    assert verify(path) == [f"{path}/manifest.json: No such file or directory"]


def test_verify_finds_values_that_are_not_finite(lab, folder):
    model = lab.model()
    with torch.no_grad():
        model.head.weight[0, :2] = torch.tensor([float("nan"), float("inf")])
    path = lab.save(folder, 1, model)
    assert verify(path) == ["model head.weight has 2 values that aren't finite"]


def test_verify_finds_shards_that_are_not_there(sharded, monkeypatch):
    path, _ = sharded
    reader = CheckpointReader(path)
    assert reader.storage_problems() == []
    record = reader.records("model")["embedding.weight"]
    del record.chunks[0]
    assert reader.storage_problems() == [
        "model.embedding.weight: its shards don't add up to its shape [13, 6]"
    ]
    first = next(iter(reader._reader.read_metadata().storage_data.values()))
    first.length += 10**6
    assert "is in none of the files" in reader.storage_problems()[-1] + reader.storage_problems()[0]


def test_stock_tools_read_the_tensors(lab, sharded, tmp_path):
    path, wanted = sharded
    dcp_to_torch_save(path, tmp_path / "all.pt")
    state = torch.load(tmp_path / "all.pt", weights_only=True)
    got = {f"{section}.{name}": t for section, names in state.items() for name, t in names.items()}
    lab.assert_equal(got, wanted)
