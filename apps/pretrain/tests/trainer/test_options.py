"""Options that change how a run computes must not change what it computes."""

import functools
import json
import os

import pytest

from titan_parallel.errors import RankError


@pytest.fixture(scope="module")
def losses(train, rows, tiny, tmp_path_factory):
    """``losses(world_size=1, **sections)``: the losses of a run, which is trained only once."""

    @functools.cache
    def train_once(world_size, sections):
        folder = tmp_path_factory.mktemp("run")
        train(tiny(**json.loads(sections)), world_size, folder)
        return [row["loss"] for row in rows(folder).values()]

    def run(world_size=1, **sections):
        sections.setdefault("training", {"steps": 6, "seq_len": 32, "micro_batch_size": 4})
        return train_once(world_size, json.dumps(sections, sort_keys=True))

    return run


@pytest.mark.slow
@pytest.mark.parametrize("activation", [{"checkpoint": "full"}, {"checkpoint": "every_k", "every_k": 2}])
@pytest.mark.parametrize("world_size", [1, 2])
def test_activation_checkpointing(losses, activation, world_size):
    assert losses(world_size, activation=activation) == losses(world_size)


@pytest.mark.slow
def test_compile(losses):
    training = {"steps": 3, "seq_len": 32, "micro_batch_size": 4}
    model = {"n_layers": 1}
    plain = losses(training=training, model=model)
    compiled = losses(training=training, model=model, compile={"enable": True})
    assert compiled == pytest.approx(plain, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_on_two_ranks(losses, precision):
    training = {"steps": 6, "seq_len": 32, "micro_batch_size": 4, "precision": precision}
    assert losses(2, training=training) == pytest.approx(losses(2), rel=2e-2)


def test_deterministic_mode(losses):
    training = {"steps": 6, "seq_len": 32, "micro_batch_size": 4, "deterministic": True}
    assert losses(training=training) == losses()


def test_tied_embeddings_on_two_ranks(losses):
    model = {"tied_embeddings": True}
    one = losses(1, model=model, training={"steps": 6, "seq_len": 32, "micro_batch_size": 8})
    assert losses(2, model=model) == pytest.approx(one, abs=1e-5)


def test_without_document_mask(losses):
    masked, plain = losses(), losses(data={"document_mask": False})
    assert plain != masked
    assert plain[-1] < plain[0]


def test_logged_steps(train, rows, tiny, tmp_path):
    train(tiny(metrics={"every": 7}, training={"steps": 16}), 1, tmp_path / "run")
    assert list(rows(tmp_path / "run")) == [1, 7, 14, 16]


def test_checkpoints_are_kept_as_configured(train, tiny, tmp_path):
    train(tiny(checkpoint={"every": 3, "keep": 2}, training={"steps": 10}), 1, tmp_path / "run")
    kept = sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*"))
    assert kept == ["step-00000009", "step-00000010"]


def test_changed_options_are_named_and_take_effect(train, rows, tiny, tmp_path, capfd):
    constant = {"schedule": "constant", "warmup_steps": 0}
    train(tiny(lr=constant), 1, tmp_path / "run", steps=3)
    changed = tiny(lr=constant, optim={"lr": 1e-4, "weight_decay": 0.0})
    weight_decays = []

    def look(loop):
        weight_decays.extend(group["weight_decay"] for group in loop.state.optimizer.param_groups)
        (tmp_path / "seen").write_text(json.dumps(weight_decays))

    train(changed, 1, tmp_path / "run", steps=2, tamper=look)
    assert json.loads((tmp_path / "seen").read_text()) == [0.0, 0.0]
    assert rows(tmp_path / "run")[4]["lr"] == 1e-4


def test_a_lost_rank_ends_the_others(train, tiny, tmp_path):
    def die(loop):
        original = loop.stepper.loss_sum

        def loss_sum(batch):
            if loop.state.step == 2 and loop.setup.runtime.rank == 1:
                os._exit(7)
            return original(batch)

        loop.stepper.loss_sum = loss_sum

    with pytest.raises(RankError, match="rank 1 died: exit code 7"):
        train(tiny(), 2, tmp_path / "run", tamper=die)
