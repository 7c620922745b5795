from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from titan_parallel.checkpoint import CheckpointManager
from titan_parallel.errors import CheckpointCorruptError, CheckpointError, CheckpointMismatchError
from titan_parallel.testing import run_ranks

FILES = [".metadata", "__0_0.distcp", "manifest.json", "optimizer.pt", "rank-00000.pt", "trainer.json"]


def _truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _flip_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def _grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


DAMAGE = {"truncated": _truncate, "missing": Path.unlink, "flipped": _flip_bit, "longer": _grow}


@pytest.fixture(scope="module")
def pristine(lab, tmp_path_factory) -> Path:
    """Two checkpoints of one run, steps 1 and 3."""
    folder = tmp_path_factory.mktemp("pristine") / "checkpoints"
    lab.trained(folder, 1)
    lab.trained(folder, 3)
    return folder


@pytest.fixture
def run(pristine, tmp_path) -> Path:
    return shutil.copytree(pristine, tmp_path / "run")


def test_layout_of_a_checkpoint(pristine):
    assert sorted(path.name for path in (pristine / "step-00000003").iterdir()) == FILES


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_names_the_file_and_leaves_the_model_alone(lab, run, name, kind):
    DAMAGE[kind](run / "step-00000003" / name)
    model = lab.model(seed=1)
    optimizer = lab.optimizer(model)
    before = lab.state(model, optimizer)
    manager = CheckpointManager(run, keep=2)
    with pytest.raises(CheckpointCorruptError) as caught:
        manager.load(run / "step-00000003", model=model, optimizer=optimizer)
    assert str(run / "step-00000003" / name) in str(caught.value)
    assert "on_corrupt" in str(caught.value)
    lab.assert_equal(lab.state(model, optimizer), before)


@pytest.mark.parametrize("kind", DAMAGE)
def test_previous_takes_the_next_older_one_with_a_note(lab, run, kind):
    DAMAGE[kind](run / "step-00000003" / "__0_0.distcp")
    model = lab.model(seed=1)
    optimizer = lab.optimizer(model)
    manager = CheckpointManager(run, keep=2)
    loaded = manager.load(manager.latest(), model=model, optimizer=optimizer, on_corrupt="previous")
    assert (loaded.step, loaded.path.name) == (1, "step-00000001")
    assert len(loaded.notes) == 1
    assert "__0_0.distcp" in loaded.notes[0]
    assert loaded.notes[0].endswith("passed over for step-00000001")
    wanted = lab.model()
    trained = lab.optimizer(wanted)
    lab.train(wanted, trained, 1)
    lab.assert_equal(lab.state(model, optimizer), lab.state(wanted, trained))


def test_previous_gives_up_when_all_are_damaged(lab, run):
    for step in (1, 3):
        _flip_bit(run / f"step-{step:08d}" / "__0_0.distcp")
    manager = CheckpointManager(run, keep=2)
    with pytest.raises(CheckpointCorruptError, match=r"step-00000003.*step-00000001.*no older checkpoint"):
        manager.load(manager.latest(), model=lab.model(), on_corrupt="previous")


def test_ranks_agree_on_damage_that_one_of_them_sees(lab, folder):
    """Two ranks hash different files; both refuse, and both fall back."""
    run_ranks(2, lab.trained, folder, 1, (1, 2))
    run_ranks(2, lab.trained, folder, 3, (1, 2))
    _flip_bit(folder / "step-00000003" / "__1_0.distcp")

    def load():
        model = lab.model(seed=1, mesh=(1, 2))
        manager = CheckpointManager(folder, keep=2)
        with pytest.raises(CheckpointCorruptError) as caught:
            manager.load(manager.latest(), model=model)
        loaded = manager.load(manager.latest(), model=model, on_corrupt="previous")
        return str(caught.value), loaded.step

    (first, step), (second, other_step) = run_ranks(2, load)
    assert first == second
    assert "__1_0.distcp has changed" in first
    assert (step, other_step) == (1, 1)


def test_without_verification_sizes_are_still_checked(lab, run):
    manager = CheckpointManager(run, keep=2, verify=False)
    _truncate(run / "step-00000003" / "__0_0.distcp")
    with pytest.raises(CheckpointCorruptError, match=r"__0_0\.distcp is truncated"):
        manager.load(manager.latest(), model=lab.model())


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("name", [name for name in FILES if name != "manifest.json"])
def test_unverified_garbage_is_an_error_not_a_traceback(lab, run, name):
    path = run / "step-00000003" / name
    path.write_bytes(b"\x80" * path.stat().st_size)
    model = lab.model()
    with pytest.raises(CheckpointCorruptError, match="step-00000003"):
        CheckpointManager(run, keep=2, verify=False).load(
            run / "step-00000003", model=model, optimizer=lab.optimizer(model)
        )


@pytest.mark.parametrize(
    ("key", "value"), [("step", 4), ("world_size", 2), ("optimizer", None), ("parameters", {}), ("files", {})]
)
def test_an_edited_manifest_is_noticed(lab, run, key, value):
    path = run / "step-00000003" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(CheckpointCorruptError, match="its content doesn't match its checksum"):
        CheckpointManager(run, keep=2).load(run / "step-00000003", model=lab.model())


def test_a_manifest_of_a_later_format_is_refused(lab, run):
    from titan_parallel.checkpoint.manifest import _checksum

    path = run / "step-00000003" / "manifest.json"
    content = json.loads(path.read_text()) | {"version": 2}
    del content["checksum"]
    path.write_text(json.dumps(content | {"checksum": _checksum(content)}))
    with pytest.raises(CheckpointError, match="format version 2, this program reads 1"):
        CheckpointManager(run, keep=2).load(run / "step-00000003", model=lab.model())


def test_checkpoint_of_another_model(lab, run):
    class Other(lab.Net):
        def __init__(self) -> None:
            super().__init__(hidden=9)
            self.extra = torch.nn.Linear(2, 2)
            del self.head

    model = Other()
    before = lab.state(model)
    with pytest.raises(CheckpointMismatchError) as caught:
        CheckpointManager(run, keep=2).load(run / "step-00000003", model=model, on_corrupt="previous")
    text = str(caught.value)
    assert text.startswith("checkpoint of another model")
    assert "2 missing (extra.weight, extra.bias)" in text
    assert "1 unexpected (head.weight)" in text
    assert "6 of another shape (layers.0.0.weight: saved [7, 6], model [9, 6], " in text
    assert " and 1 more)" in text
    lab.assert_equal(lab.state(model), before)


def test_optimizers_that_do_not_fit(lab, run):
    model = lab.model()
    manager = CheckpointManager(run, keep=2)
    path = run / "step-00000003"
    with pytest.raises(CheckpointMismatchError, match="AdamW with amsgrad, betas"):
        manager.load(path, model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(CheckpointMismatchError, match="other parameter groups"):
        manager.load(path, model=model, optimizer=torch.optim.AdamW(model.parameters()))
    manager.save(4, model=model, optimizer=None, trainer={}, per_rank={})
    with pytest.raises(CheckpointMismatchError, match="checkpoint without optimizer state"):
        manager.load(manager.latest(), model=model, optimizer=lab.optimizer(model))
    foreign = torch.optim.AdamW(lab.model(seed=1).parameters())
    with pytest.raises(CheckpointError, match=r"shape \[13, 6\] that isn't the model's"):
        manager.load(path, model=model, optimizer=foreign)


def test_live_switches_stand_and_state_keeps_its_dtype(lab, run):
    model = lab.model(seed=1).to(torch.float16)
    optimizer = lab.optimizer(model, foreach=False)
    CheckpointManager(run, keep=2).load(run / "step-00000003", model=model, optimizer=optimizer)
    assert [group["foreach"] for group in optimizer.param_groups] == [False, False]
    assert {s["exp_avg"].dtype for s in optimizer.state.values()} == {torch.float32}
    assert {s["step"].device.type for s in optimizer.state.values()} == {"cpu"}


def test_loading_says_nothing_on_its_own(lab, run, capfd, recwarn, caplog):
    caplog.set_level("DEBUG")
    model = lab.model()
    manager = CheckpointManager(run, keep=3)
    manager.load(manager.latest(), model=model, optimizer=lab.optimizer(model))
    manager.save(9, model=model, optimizer=None, trainer={}, per_rank={})
    for name in ("__0_0.distcp", ".metadata"):  # DCP itself would print tracebacks
        path = run / "step-00000009" / name
        path.write_bytes(b"x" * path.stat().st_size)
        with pytest.raises(CheckpointCorruptError):
            CheckpointManager(run, keep=3, verify=False, read_only=True).load(path.parent, model=model)
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")
    assert not list(recwarn)
