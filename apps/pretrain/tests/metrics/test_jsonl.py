"""metrics.jsonl: valid JSON, each step once, whatever cut a run off."""

import json
import math
import os
import signal
import subprocess
import sys

import pytest

from titan_pretrain.metrics.jsonl import MetricsFile, read_rows


def write(path, rows, step=0):
    file = MetricsFile(path, step)
    for row in rows:
        file.write(row)
    file.close()


def test_rows_come_back_in_order(tmp_path):
    path = tmp_path / "metrics.jsonl"
    rows = [{"step": 1, "loss": 8.25}, {"step": 10, "loss": 7.5}]
    write(path, rows)
    assert read_rows(path) == rows
    assert [json.loads(line) for line in path.read_text().splitlines()] == rows


def test_numbers_that_json_does_not_know_become_null(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, [{"step": 1, "loss": math.nan, "grad_norm": math.inf, "lr": -math.inf}])
    assert json.loads(path.read_text(), parse_constant=pytest.fail) == {
        "step": 1,
        "loss": None,
        "grad_norm": None,
        "lr": None,
    }


def test_a_second_write_of_the_last_step_merges_into_its_row(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(
        path, [{"step": 1, "loss": math.nan}, {"step": 1, "validation_loss": 7.0}, {"step": 2, "loss": 6.0}]
    )
    assert read_rows(path) == [{"step": 1, "loss": None, "validation_loss": 7.0}, {"step": 2, "loss": 6.0}]


@pytest.mark.parametrize(("step", "kept"), [(0, []), (10, [1, 10]), (14, [1, 10]), (99, [1, 10, 20])])
def test_a_resume_drops_the_rows_after_its_step(tmp_path, step, kept):
    path = tmp_path / "metrics.jsonl"
    write(path, [{"step": 1}, {"step": 10}, {"step": 20}])
    write(path, [{"step": 100}], step)
    assert [row["step"] for row in read_rows(path)] == [*kept, 100]


def test_a_validation_after_a_resume_merges_into_the_row_that_stayed(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, [{"step": 10, "loss": 5.0}])
    write(path, [{"step": 10, "validation_loss": 5.5}, {"step": 11, "loss": 4.0}], step=10)
    assert read_rows(path) == [{"step": 10, "loss": 5.0, "validation_loss": 5.5}, {"step": 11, "loss": 4.0}]


@pytest.mark.parametrize(
    "tail", ['{"step": 2, "lo', '{"step": 2', "{", '{"step": 2, "loss": 1.0}garbage', "\x00\x00"]
)
def test_a_partial_last_line_is_passed_over_and_gone_after_a_resume(tmp_path, tail):
    path = tmp_path / "metrics.jsonl"
    write(path, [{"step": 1, "loss": 8.0}])
    path.write_text(path.read_text() + tail)
    assert read_rows(path) == [{"step": 1, "loss": 8.0}]
    write(path, [{"step": 2, "loss": 7.0}], step=1)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2]


def test_a_file_that_holds_a_step_twice_is_mended(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 2, "loss": 1.0}\n{"step": 1, "loss": 3.0}\n{"step": 2, "loss": 2.0}\n')
    write(path, [], step=2)
    assert read_rows(path) == [{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0}]


def test_no_file_has_no_rows(tmp_path):
    assert read_rows(tmp_path / "metrics.jsonl") == []


def test_a_failed_rewrite_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    write(path, [{"step": 1}, {"step": 2}])
    before = path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        MetricsFile(path, 1)
    assert path.read_bytes() == before


ENDLESS = """
import sys
from pathlib import Path
from titan_pretrain.metrics.jsonl import MetricsFile
file = MetricsFile(Path(sys.argv[1]), int(sys.argv[2]))
for step in range(int(sys.argv[2]) + 1, 10**9):
    file.write({"step": step, "loss": 1.0 / step, "text": "x" * (step % 97)})
    file.write({"step": step, "validation_loss": 2.0})
    if step % 50 == 0:
        print(step, flush=True)
"""


def test_a_killed_writer_leaves_each_step_once(tmp_path):
    path = tmp_path / "metrics.jsonl"
    done = 0
    for _ in range(2):
        writer = subprocess.Popen([sys.executable, "-c", ENDLESS, path, str(done)], stdout=subprocess.PIPE)
        announced = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        steps = [row["step"] for row in read_rows(path)]
        assert steps == list(range(1, len(steps) + 1))
        assert len(steps) >= announced
        done = announced - 7
