"""The command line as a user runs it: train, kill, resume, export."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from titan_parallel.checkpoint import CheckpointReader
from titan_pretrain.config.run_folder import newest_checkpoint

pytestmark = pytest.mark.slow  # every test starts several processes

SMALL = {
    "model.dim": 64,
    "model.n_layers": 2,
    "model.n_heads": 4,
    "model.n_kv_heads": 2,
    "model.ffn_dim": 96,
    "model.vocab_size": 512,
    "training.steps": 20,
    "training.seq_len": 64,
    "training.micro_batch_size": 2,
    "lr.warmup_steps": 4,
    "lr.schedule": "cosine",
    "checkpoint.every": 10,
    "metrics.every": 1,
    "metrics.tensorboard": "false",
    "metrics.report": "false",
    # The files of Python's json package: their tokenizer is trained in a moment.
    "data.dataset": "text",
    "data.path": f"{Path(json.__file__).parent}/*.py",
    "data.workers": 2,
}


def command(run_dir, *arguments, **changes):
    settings = (
        SMALL | {"run.dir": run_dir} | {key.replace("__", "."): value for key, value in changes.items()}
    )
    overrides = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    return [sys.executable, "-m", "titan_pretrain", "--config", "llama3_debug", *overrides, *arguments]


def environment():
    clean = {
        key: value for key, value in os.environ.items() if not key.startswith(("TITAN_", "TORCHELASTIC_"))
    }
    return clean | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def titan(run_dir, *arguments, expect=0, **changes):
    done = subprocess.run(
        command(run_dir, *arguments, **changes),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == expect, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done


def only_run(parent: Path) -> Path:
    (folder,) = parent.iterdir()
    return folder


def losses(run: Path):
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    rows = [json.loads(line) for line in lines if line.endswith("\n")]  # one may be being written
    return {row["step"]: row["loss"] for row in rows}


def final_weights(run: Path):
    reader = CheckpointReader(newest_checkpoint(run))
    return {info.name: reader.read_tensor(info.name) for info in reader.iterate_tensors()}


def kill_after(run_dir: Path, arguments: list[str], step: int, signal_number: int):
    """Start a run and send the signal to all its processes once ``step`` has been logged."""
    process = subprocess.Popen(
        command(run_dir, *arguments),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and process.poll() is None:
        files = list(run_dir.glob("*/metrics.jsonl"))
        if files and max([0, *losses(files[0].parent)]) >= step:
            break
        time.sleep(0.02)
    family = [process, *psutil.Process(process.pid).children(recursive=True)]
    for member in family:
        with contextlib.suppress(ProcessLookupError):
            os.kill(member.pid, signal_number)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


@pytest.fixture(scope="session")
def straight(tmp_path_factory):
    """``straight(processes)``: the folder of an uninterrupted run, trained when it is first asked for.

    pytest's processes share it; the one that comes second waits.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def train(processes: int) -> Path:
        parent = shared / f"straight{processes}"
        with (shared / f"straight{processes}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not parent.exists():
                titan(parent, "--nproc", str(processes))
            return only_run(parent)

    return train


def kill_9_and_resume(run_dir: Path, straight: Path, *arguments: str, resume: tuple[str, ...] = ()):
    """The run after a kill at step 12; it must end as the uninterrupted one, bit by bit."""
    kill_after(run_dir, [*arguments, *resume], 12, signal.SIGKILL)
    run = only_run(run_dir)
    assert newest_checkpoint(run).name == "step-00000010"
    assert max(losses(run)) < 20, "the run must be killed before its end for this test to say anything"
    titan(run_dir, *arguments, "--resume", "auto")
    assert only_run(run_dir) == run
    assert losses(run) == losses(straight)
    expected, found = final_weights(straight), final_weights(run)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_kill_9_of_two_ranks_and_resume_is_bit_identical(straight, tmp_path):
    kill_9_and_resume(tmp_path, straight(2), "--nproc", "2")


def test_interrupt_saves_and_resume_goes_on_also_after_a_kill_9(straight, tmp_path):
    code, out, err = kill_after(tmp_path, [], 3, signal.SIGINT)
    assert code == 130, out + err
    assert "Traceback" not in err
    run = only_run(tmp_path)
    saved = int(newest_checkpoint(run).name.removeprefix("step-"))
    assert 3 <= saved < 20
    outcome = json.loads((run / "outcome.json").read_text())
    assert outcome == {"state": "stopped", "step": saved, "cause": "SIGINT"}
    kill_9_and_resume(tmp_path, straight(1), resume=("--resume", str(run)))


def test_torchrun_restarts_a_killed_rank(straight, tmp_path):
    process = subprocess.Popen(
        command(tmp_path, "--nproc", "2", "--max-restarts", "1"),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and not list(
        tmp_path.glob("*/checkpoints/step-00000010/manifest.json")
    ):
        time.sleep(0.02)
    ranks = [c for c in psutil.Process(process.pid).children() if "titan_pretrain" in " ".join(c.cmdline())]
    ranks[-1].kill()
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 0, out
    run = only_run(tmp_path)
    assert losses(run) == losses(straight(2))


def test_plain_torchrun(straight, tmp_path):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    done = subprocess.run(
        [*launcher, *command(tmp_path)[1:]], env=environment(), capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert losses(only_run(tmp_path)) == losses(straight(2))


def test_export_is_what_transformers_loads(straight, tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is the referee of this test")
    from titan_pretrain.models.llama3 import Llama3
    from titan_pretrain.trainer.state import TrainConfig

    run = straight(2)
    out = tmp_path / "hf"
    done = subprocess.run(
        [sys.executable, "-m", "titan_pretrain", "export", "--to", "hf", str(run), str(out)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    theirs = transformers.AutoModelForCausalLM.from_pretrained(out)
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    tokens = tokenizer("def main():\n    return 0\n", return_tensors="pt")["input_ids"]

    reader = CheckpointReader(newest_checkpoint(run))
    ours = Llama3(TrainConfig.model_validate(reader.trainer()["config"]).model)
    ours.load_state_dict({info.name: reader.read_tensor(info.name) for info in reader.iterate_tensors()})
    torch.testing.assert_close(ours(tokens), theirs(tokens).logits, atol=1e-5, rtol=0)

    parent = tmp_path / "from-hf"
    changes = {"checkpoint.init_from": f"hf:{out}", "tokenizer.path": out, "training.steps": 5}
    titan(parent, **{key.replace(".", "__"): value for key, value in changes.items()})
    assert losses(only_run(parent))[1] < losses(run)[1] - 0.4, "it must start from the trained weights"
