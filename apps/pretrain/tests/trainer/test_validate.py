"""Validation data is tried before the training begins, on every rank."""

import json

import pytest

from titan_parallel.errors import RankError


@pytest.fixture
def blank(tmp_path):
    folder = tmp_path / "blank"
    folder.mkdir()
    (folder / "a.txt").write_text(" \n\t\n" * 100)
    return folder


@pytest.mark.parametrize("world_size", [1, 2])
def test_blank_validation_data_ends_the_run_before_step_1(train, rows, tiny, tmp_path, blank, world_size):
    data = {"dataset": "text", "path": [str(blank)]}
    with pytest.raises(RankError) as caught:
        train(tiny(validation={"every": 15, "data": data}), world_size, tmp_path / "run")
    errors = [line for line in str(caught.value).splitlines() if "DataError: validation.data: " in line]
    assert len(errors) == world_size
    assert "data.dataset (text): every document is empty" in errors[0]
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_validation_data_that_one_rank_cannot_read_ends_the_run_on_all(train, tiny, tmp_path):
    file = tmp_path / "v.jsonl"
    # Unshuffled, rank 1 meets the second half of the lines first.
    lines = [json.dumps({"text": f"line {i} " * 20}) for i in range(16)]
    lines[1] = "{"
    file.write_text("\n".join(lines))
    data = {"dataset": "jsonl", "path": [str(file)], "shuffle": False}
    with pytest.raises(RankError) as caught:
        train(tiny(validation={"every": 15, "batches": 1, "data": data}), 2, tmp_path / "run")
    assert str(caught.value).count("DataError: validation.data: ") == 2
    assert "v.jsonl:2" in str(caught.value)


def test_the_first_validation_sees_what_was_tried(train, rows, tiny, tmp_path):
    config = tiny(
        training={"steps": 4}, lr={"warmup_steps": 1}, validation={"every": 2, "batches": 2, "holdout": 0.3}
    )
    train(config, 1, tmp_path / "one")
    train(
        tiny(
            training={"steps": 4, "micro_batch_size": 2},
            lr={"warmup_steps": 1},
            validation={"every": 2, "batches": 2, "holdout": 0.3},
        ),
        2,
        tmp_path / "two",
    )
    one, two = rows(tmp_path / "one"), rows(tmp_path / "two")
    assert one[2]["validation_loss"] == pytest.approx(two[2]["validation_loss"], abs=1e-5)
