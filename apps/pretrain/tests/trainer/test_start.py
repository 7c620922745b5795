"""Where a run begins, also after an elastic restart."""

from pathlib import Path

import pytest

from titan_pretrain.config.sections import TrainConfig
from titan_pretrain.errors import PretrainError, UsageError
from titan_pretrain.trainer.resume import changed_options, find_start


@pytest.fixture
def config(tmp_path, monkeypatch):
    for name in ("TITAN_RUN_DIR", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    return TrainConfig.model_validate({"run": {"dir": str(tmp_path / "runs"), "name": "demo"}})


def make_run(config, stamp: str, *steps: int) -> Path:
    folder = Path(config.run.dir) / f"demo-{stamp}"
    for step in steps:
        checkpoint = folder / "checkpoints" / f"step-{step:08d}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "manifest.json").write_text("{}")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_a_new_run_gets_a_new_folder(config):
    first, second = find_start(config, None, 0), find_start(config, None, 0)
    assert first.checkpoint is None
    assert first.run_dir != second.run_dir


def test_auto_takes_the_newest_run_with_a_checkpoint(config):
    make_run(config, "20260101-000000", 4, 8)
    make_run(config, "20260102-000000")
    begin = find_start(config, "auto", 0)
    assert begin.run_dir.name == "demo-20260101-000000"
    assert begin.checkpoint.name == "step-00000008"


def test_auto_without_any_starts_anew(config):
    assert find_start(config, "auto", 0).checkpoint is None


def test_an_older_checkpoint_starts_a_folder_of_its_own(config):
    run = make_run(config, "20260101-000000", 4, 8)
    older = find_start(config, str(run / "checkpoints" / "step-00000004"), 0)
    assert older.run_dir != run
    assert older.checkpoint.name == "step-00000004"
    newest = find_start(config, str(run / "checkpoints" / "step-00000008"), 0)
    assert newest.run_dir == run.resolve()


def test_a_restart_continues_in_its_own_folder(config, monkeypatch):
    own = make_run(config, "20260102-000000", 6)
    make_run(config, "20260103-000000", 99)
    monkeypatch.setenv("TITAN_RUN_DIR", str(own))
    begin = find_start(config, None, 1)
    assert (begin.run_dir, begin.checkpoint.name) == (own, "step-00000006")


def test_a_restart_before_the_first_save_begins_where_the_run_began(config, monkeypatch):
    source = make_run(config, "20260101-000000", 4, 8)
    own = make_run(config, "20260102-000000")
    monkeypatch.setenv("TITAN_RUN_DIR", str(own))
    asked = str(source / "checkpoints" / "step-00000004")
    begin = find_start(config, asked, 1)
    assert (begin.run_dir, begin.checkpoint.name) == (own, "step-00000004")


def test_under_plain_torchrun_a_restart_finds_its_own_folder_by_job(config, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    first = find_start(config, None, 0)
    monkeypatch.setattr("os.getppid", lambda: 1)  # another torchrun, with the same id
    other = find_start(config, None, 0)
    monkeypatch.undo()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert find_start(config, None, 1).run_dir == first.run_dir != other.run_dir


def test_a_continued_folder_is_found_after_a_restart_too(config, monkeypatch):
    run = make_run(config, "20260101-000000", 4)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    find_start(config, "auto", 0)
    make_run(config, "20260105-000000", 9)
    assert find_start(config, "auto", 1).run_dir == run


def test_a_run_folder_that_takes_no_mark_is_the_users_to_mend(config, monkeypatch):
    run = make_run(config, "20260101-000000", 4)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    (run / "..elastic-job.writing").mkdir()  # root may write to every folder, but to no folder as to a file
    with pytest.raises(PretrainError, match=r"run folder \(.*20260101-000000\) can't be written: Is a dir"):
        find_start(config, "auto", 0)


def test_nothing_to_resume_is_said(config, tmp_path):
    with pytest.raises(UsageError, match="neither a run folder nor a checkpoint"):
        find_start(config, str(tmp_path / "nowhere"), 0)


def test_changed_options_are_listed(config):
    saved = config.model_dump(mode="json")
    assert changed_options(saved, config) == []
    saved["optim"]["lr"] = 0.5
    assert changed_options(saved, config) == ["changed since that checkpoint: optim.lr 0.5 -> 0.002"]
    assert changed_options({"written": "by another version"}, config) == []


def test_options_that_change_what_the_weights_compute_are_warned_of_one_by_one(config):
    saved = config.model_dump(mode="json")
    saved["optim"]["lr"] = 0.5
    saved["model"] |= {"rope_theta": 10000.0, "norm_eps": 1e-6}
    saved["model"]["rope_scaling"] = {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_seq_len": 8192,
    }
    theta, scaling, eps, others = changed_options(saved, config)
    assert theta.startswith(
        "warning: model.rope_theta 10000.0 -> 500000.0: the weights were trained with the"
    )
    assert scaling.startswith("warning: model.rope_scaling {'factor': 8.0, ")
    assert eps.startswith("warning: model.norm_eps 1e-06 -> 1e-05")
    assert others == "changed since that checkpoint: optim.lr 0.5 -> 0.002"
