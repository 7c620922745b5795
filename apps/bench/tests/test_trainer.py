import json
import os
import subprocess
import sys

import pytest
import torch

from titan_bench.bare_loop import BareLoop
from titan_bench.errors import VerificationError
from titan_bench.trainer import _verify

SMALL = {
    "model.dim": 32,
    "model.n_layers": 2,
    "model.n_heads": 4,
    "model.n_kv_heads": 2,
    "model.ffn_dim": 48,
    "model.vocab_size": 300,
    "training.seq_len": 32,
    "training.micro_batch_size": 2,
    "lr.warmup_steps": 2,
    "data.workers": 0,
}


def bench(*arguments):
    command = [sys.executable, "-m", "titan_bench", "trainer", *arguments]
    for key, value in SMALL.items():
        command += ["--set", f"{key}={value}"]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, env=os.environ | {"COLUMNS": "200"}
    )


def test_both_loops_train_the_same_and_the_ratio_is_printed_and_saved(tmp_path):
    done = bench("--rounds", "6", "--json", str(tmp_path / "r.json"), "--set", "training.global_batch_size=4")
    assert done.returncode == 0, done.stderr
    assert "trainer / bare loop: " in done.stdout
    result = json.loads((tmp_path / "r.json").read_text())
    assert len(result["trainer_seconds"]) == len(result["bare_seconds"]) == 6
    assert 0 < result["ratio"] < 10
    assert result["worst_loss_difference"] < 1e-4
    assert result["machine"]["device"] == "cpu"


@pytest.mark.slow
def test_a_ratio_below_the_required_one_fails():
    done = bench("--rounds", "4", "--require", "50")
    assert done.returncode == 1
    assert "--require (50)" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--set", "training.precision=fp16"], 1, "training.precision (fp16)"),
        (["--config", "llama3_debugg"], 2, "llama3_debug"),
        (["--rounds", "1"], 2, "--rounds"),
        (["--json", "/proc/nowhere/r.json", "--rounds", "4"], 1, "--json (/proc/nowhere/r.json)"),
    ],
)
def test_mistakes_are_one_line(arguments, code, words):
    done = bench(*arguments)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_other_losses_are_refused(tmp_path):
    rows = [{"step": step, "loss": loss} for step, loss in ((1, 3.0), (2, 2.5))]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert _verify(tmp_path, [3.0, 2.5]) == 0.0
    with pytest.raises(VerificationError, match="differ"):
        _verify(tmp_path, [3.0, 2.501])
    with pytest.raises(VerificationError, match="2 steps"):
        _verify(tmp_path, [3.0])
    with pytest.raises(VerificationError, match="differ"):
        _verify(tmp_path, [3.0, float("nan")])


def test_bare_loop_steps_as_pytorch_does():
    model = torch.nn.Embedding(4, 4)

    class Batch:
        tokens = torch.tensor([[0, 1, 2]])
        positions = document_ids = torch.zeros(1, 3, dtype=torch.int64)
        labels = torch.tensor([[1, -100, 3]])
        num_valid = 2

    before = model.weight.detach().clone()
    logits = before[Batch.tokens].squeeze(0)
    expected = torch.nn.functional.cross_entropy(logits, Batch.labels.squeeze(0))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    forward = lambda tokens, _positions, _ids: model(tokens)  # noqa: E731
    forward.parameters = model.parameters
    loop = BareLoop(forward, optimizer, [[Batch]], max_grad_norm=None, document_mask=False)
    torch.testing.assert_close(loop.step(), expected)
    assert not torch.equal(model.weight[0], before[0])
    assert torch.equal(model.weight[1], before[1])  # its label carries no loss
