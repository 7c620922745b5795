"""MetricsWriter: all places get the same values, and failures are errors a user can read."""

import json
import sys
import types

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from titan_pretrain.config.sections import MetricsConfig, TrainConfig
from titan_pretrain.errors import TrainingError, UsageError
from titan_pretrain.metrics.jsonl import MetricsFile, read_rows
from titan_pretrain.metrics.sinks import MetricsWriter

QUIET = TrainConfig(metrics=MetricsConfig(tensorboard=False))
NAMES = {
    "step",
    "loss",
    "grad_norm",
    "lr",
    "tokens",
    "tokens_per_s",
    "loss_scale",
    "skipped",
    "memory_gib",
    "mfu",
}


def test_a_row_has_all_documented_names(tmp_path, step_metrics):
    writer = MetricsWriter(tmp_path, QUIET)
    writer.log(step_metrics(10))
    writer.log_validation(10, 7.75)
    writer.close()
    [row] = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert set(row) == NAMES | {"validation_loss"}
    assert (row["step"], row["loss"], row["tokens"], row["validation_loss"]) == (10, 7.5, 20480, 7.75)
    assert (row["mfu"], row["loss_scale"]) == (None, None)
    assert not (tmp_path / "tensorboard").exists()


def scalars(folder, tag):
    events = EventAccumulator(str(folder))
    events.Reload()
    return (
        [(event.step, event.value) for event in events.Scalars(tag)]
        if tag in events.Tags()["scalars"]
        else []
    )


def test_tensorboard_gets_the_values_and_a_resume_hides_what_is_done_again(tmp_path, step_metrics):
    for start, steps, loss in ((0, (1, 2, 3), 5.0), (2, (3, 4), 1.0)):
        writer = MetricsWriter(tmp_path, TrainConfig(), start)
        for step in steps:
            writer.log(step_metrics(step, loss=loss))
        writer.log_validation(steps[-1], 4.5)
        writer.close()
    assert scalars(tmp_path / "tensorboard", "loss") == [(1, 5.0), (2, 5.0), (3, 1.0), (4, 1.0)]
    assert scalars(tmp_path / "tensorboard", "validation_loss") == [(4, 4.5)]
    assert scalars(tmp_path / "tensorboard", "mfu") == []
    assert [row["loss"] for row in read_rows(tmp_path / "metrics.jsonl")] == [5.0, 5.0, 1.0, 1.0]


class FakeWandb(types.ModuleType):
    """Records what a real wandb would upload."""

    def __init__(self):
        super().__init__("wandb")
        self.started, self.logged, self.finished = {}, [], False

    def init(self, **options):
        self.started = options
        return self

    def log(self, values, step):
        self.logged.append((step, values))

    def finish(self):
        self.finished = True


def wandb_config():
    return TrainConfig(metrics=MetricsConfig(tensorboard=False, wandb_project="volta"))


def test_wandb_continues_the_run_of_the_same_folder(tmp_path, step_metrics, monkeypatch):
    wandb = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    writer = MetricsWriter(tmp_path, wandb_config())
    writer.log(step_metrics(10))
    writer.close()
    assert wandb.started["project"] == "volta"
    assert (wandb.started["id"], wandb.started["resume"]) == (tmp_path.name, "allow")
    assert wandb.started["config"]["optim"]["lr"] == TrainConfig().optim.lr
    assert wandb.logged[0][0] == 10
    assert wandb.logged[0][1]["loss"] == 7.5
    assert "mfu" not in wandb.logged[0][1]
    assert wandb.finished


def test_a_missing_wandb_is_a_usage_error_that_names_the_option(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match=r"metrics\.wandb_project \(volta\)") as caught:
        MetricsWriter(tmp_path, wandb_config())
    assert "pip install wandb" in caught.value.hint
    assert not (tmp_path / "metrics.jsonl").exists()


def test_a_full_disk_is_one_readable_error(tmp_path, step_metrics, monkeypatch):
    writer = MetricsWriter(tmp_path, QUIET)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MetricsFile, "write", full)
    with pytest.raises(TrainingError, match=r"metrics\.jsonl\) can't be written: No space left") as caught:
        writer.log(step_metrics(1))
    assert "--resume" in caught.value.hint
    writer.close()


def test_a_missing_run_folder_is_one_readable_error(tmp_path):
    with pytest.raises(TrainingError, match="No such file"):
        MetricsWriter(tmp_path / "absent", QUIET)


def test_closing_twice_is_allowed(tmp_path):
    writer = MetricsWriter(tmp_path, TrainConfig())
    writer.close()
    writer.close()
