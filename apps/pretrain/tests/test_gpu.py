"""Training on the GPUs of this machine; run by ``nox -s gpu``."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from titan_parallel.precision import resolve_precision

pytestmark = pytest.mark.gpu

SETTINGS = {
    "training.steps": 20,
    "training.micro_batch_size": 8,
    "lr.warmup_steps": 5,
    "checkpoint.every": 10,
    "metrics.every": 1,
}


def train(run_dir: Path, *arguments: str, **changes: object) -> dict[int, dict[str, float]]:
    settings = (
        SETTINGS | {"run.dir": run_dir} | {key.replace("__", "."): value for key, value in changes.items()}
    )
    overrides = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "titan_pretrain", "--config", "llama3_debug", *overrides, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = run_dir.iterdir()
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {row["step"]: row for row in rows}


@pytest.mark.parametrize("precision", ["auto", "fp16", "bf16", "fp32"])
def test_every_precision_learns(tmp_path, precision):
    rows = train(tmp_path, training__precision=precision)
    assert rows[20]["loss"] < rows[1]["loss"] - 1.0
    assert rows[20]["memory_gib"] > 0
    name = resolve_precision(precision, torch.device("cuda", 0)).name
    assert (rows[20]["loss_scale"] is not None) == (name == "fp16")


def test_half_precision_follows_fp32(tmp_path):
    full = train(tmp_path / "fp32", training__precision="fp32")
    half = train(tmp_path / "fp16", training__precision="fp16")
    for step in range(1, 21):
        assert half[step]["loss"] == pytest.approx(full[step]["loss"], rel=0.02), step


def test_resume_is_bit_identical(tmp_path):
    settings = {"training__deterministic": "true", "lr__schedule": "constant"}
    straight = train(tmp_path / "straight", **settings)
    train(tmp_path / "resumed", training__steps=10, **settings)
    resumed = train(tmp_path / "resumed", "--resume", "auto", **settings)
    assert [row["loss"] for row in resumed.values()] == [row["loss"] for row in straight.values()]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_equal_one(tmp_path):
    common = {"training__precision": "fp32", "training__global_batch_size": 16}
    one = train(tmp_path / "one", training__micro_batch_size=16, **common)
    two = train(tmp_path / "two", "--nproc", "2", training__micro_batch_size=8, **common)
    for step in range(1, 21):
        assert two[step]["loss"] == pytest.approx(one[step]["loss"], rel=1e-3), step
