"""A run that was interrupted goes on as if it had not been."""

import pytest
import torch

from titan_parallel.checkpoint import CheckpointReader
from titan_pretrain.config.run_folder import newest_checkpoint


def weights(run_dir):
    reader = CheckpointReader(newest_checkpoint(run_dir))
    tensors = {}
    for section in ("model", "optimizer"):
        for info in reader.iterate_tensors(section):
            tensors[section, info.name] = reader.read_tensor(info.name, section)
    return tensors


def sequences(results):
    """Hashes of all ranks' sequences, in the global order: rank r took r, r + D, r + 2D, ..."""
    per_rank = [[h for batch in result.hashes for h in batch] for result in results]
    return [h for step in zip(*per_rank, strict=True) for h in step]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("world_size", [1, 2])
def test_stop_and_resume_is_bit_identical(train, rows, tiny, tmp_path, world_size, workers):
    config = tiny(data={"workers": workers})
    straight = train(config, world_size, tmp_path / "straight")
    first = train(config, world_size, tmp_path / "resumed", steps=10)
    second = train(config, world_size, tmp_path / "resumed")

    assert [result.code for result in first] == [143] * world_size
    assert [result.code for result in second] == [0] * world_size
    assert sequences(first) + sequences(second) == sequences(straight)
    one, other = rows(tmp_path / "straight"), rows(tmp_path / "resumed")
    assert [one[step]["loss"] for step in range(1, 21)] == [other[step]["loss"] for step in range(1, 21)]
    expected, found = weights(tmp_path / "straight"), weights(tmp_path / "resumed")
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


@pytest.mark.slow
def test_other_numbers_of_ranks_see_the_same_samples(train, rows, tiny, tmp_path):
    def config(world_size):
        return tiny(training={"steps": 18, "micro_batch_size": 8 // world_size, "global_batch_size": 8})

    straight = train(config(2), 2, tmp_path / "straight")
    parts = []
    for world_size, steps in ((2, 6), (1, 6), (2, None)):
        parts += sequences(train(config(world_size), world_size, tmp_path / "resharded", steps=steps))
    assert parts == sequences(straight)
    one, other = rows(tmp_path / "straight"), rows(tmp_path / "resharded")
    for step in range(1, 19):
        assert other[step]["loss"] == pytest.approx(one[step]["loss"], abs=1e-4), step


def test_resume_after_the_data_looped(train, rows, tiny, tmp_path, corpus):
    few = [str(file) for file in sorted(corpus.iterdir())[:6]]
    config = tiny(data={"path": few}, training={"steps": 20, "seq_len": 32, "micro_batch_size": 8})
    straight = train(config, 1, tmp_path / "straight")
    hashes = sequences(straight)
    assert len(set(hashes)) < len(hashes), "the data must loop for this test to say anything"
    parts = sequences(train(config, 1, tmp_path / "resumed", steps=13))
    parts += sequences(train(config, 1, tmp_path / "resumed"))
    assert parts == hashes
    assert rows(tmp_path / "straight")[20]["loss"] == rows(tmp_path / "resumed")[20]["loss"]


@pytest.mark.slow
def test_scaler_and_validation_resume(train, rows, tiny, tmp_path):
    config = tiny(
        training={
            "precision": "fp16",
            "loss_scaling": {"init_scale": 1024.0, "growth_interval": 3},
            "steps": 12,
        },
        validation={"every": 4, "batches": 2, "holdout": 0.2},
    )
    train(config, 1, tmp_path / "straight")
    train(config, 1, tmp_path / "resumed", steps=5)
    train(config, 1, tmp_path / "resumed")
    one, other = rows(tmp_path / "straight"), rows(tmp_path / "resumed")
    for key in ("loss", "loss_scale", "validation_loss", "tokens", "skipped"):
        assert [row.get(key) for row in one.values()] == [row.get(key) for row in other.values()], key
    assert one[12]["loss_scale"] == 1024.0 * 2**4
    assert one[12]["validation_loss"] is not None


def test_fp16_after_fp32_starts_with_its_own_scale(train, rows, tiny, tmp_path):
    train(tiny(training={"steps": 3}, lr={"warmup_steps": 1}), 1, tmp_path / "run")
    train(tiny(training={"steps": 5, "precision": "fp16"}, lr={"warmup_steps": 1}), 1, tmp_path / "run")
    assert rows(tmp_path / "run")[5]["loss_scale"] == 65536.0


def test_a_changed_initial_scale_takes_effect(train, rows, tiny, tmp_path):
    def config(steps, scale):
        training = {"steps": steps, "precision": "fp16", "loss_scaling": {"init_scale": scale}}
        return tiny(training=training, lr={"warmup_steps": 1})

    train(config(3, 1024.0), 1, tmp_path / "run")
    train(config(5, 256.0), 1, tmp_path / "run")
    assert rows(tmp_path / "run")[5]["loss_scale"] == 256.0


def test_a_resume_that_has_nothing_to_do_leaves_the_runs_config(train, tiny, tmp_path):
    training = {"steps": 2, "seq_len": 32, "micro_batch_size": 4}
    train(tiny(training=training), 1, tmp_path / "a")
    config = (tmp_path / "a" / "config.toml").read_text()
    train(tiny(training=training | {"steps": 1}, model={"rope_theta": 1234.0}), 1, tmp_path / "a")
    assert (tmp_path / "a" / "config.toml").read_text() == config
    train(tiny(training=training | {"steps": 3}), 1, tmp_path / "a")
    assert "steps = 3" in (tmp_path / "a" / "config.toml").read_text()
