"""What a user sees when something is wrong: one or two lines, the right exit code, nothing lost."""

import gzip
import json
import os
import shlex
import shutil
import subprocess
import sys
import traceback
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch._dynamo  # noqa: F401

import titan_pretrain.trainer.main  # noqa: F401 -- both imported once, inherited by every fork
from titan_parallel.runtime import leave
from titan_pretrain.cli.app import main
from titan_pretrain.config.run_folder import newest_checkpoint

TINY = {
    "model.dim": 32,
    "model.n_layers": 2,
    "model.n_heads": 4,
    "model.n_kv_heads": 2,
    "model.ffn_dim": 48,
    "model.vocab_size": 300,
    "training.steps": 4,
    "training.seq_len": 32,
    "training.micro_batch_size": 2,
    "lr.warmup_steps": 1,
    "checkpoint.every": 2,
    "metrics.tensorboard": "false",
    "metrics.report": "false",
    "data.dataset": "text",
    "data.workers": 0,
}


class Outcome:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err
        self.errors = [line for line in err.splitlines() if line.startswith("error: ")]


@pytest.fixture
def titan(tmp_path, monkeypatch):
    """Run a command line in a fork of this process."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("TITAN_", "TORCHELASTIC_"))]:
        monkeypatch.delenv(name)

    def run(*arguments) -> Outcome:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            code = 99
            try:
                for number, name in ((1, "out"), (2, "err")):
                    os.dup2(os.open(tmp_path / f"std{name}", os.O_CREAT | os.O_TRUNC | os.O_WRONLY), number)
                sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
                code = main([str(argument) for argument in arguments])
            except BaseException:
                traceback.print_exc()
            leave(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return Outcome(code, (tmp_path / "stdout").read_text(), (tmp_path / "stderr").read_text())

    return run


@pytest.fixture
def text(tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    for index in range(20):
        (folder / f"{index}.txt").write_text(f"document {index} " * (5 + index))
    return folder


@pytest.fixture
def training(titan, text):
    """Train the tiny model; keywords with __ for dots override its options."""

    def run(*arguments, **changes) -> Outcome:
        settings = (
            TINY | {"data.path": text} | {key.replace("__", "."): value for key, value in changes.items()}
        )
        overrides = [
            part
            for key, value in settings.items()
            if value is not None
            for part in ("--set", f"{key}={value}")
        ]
        return titan("--config", "llama3_debug", *overrides, *arguments)

    return run


def refused(outcome: Outcome, code: int, *words: str) -> None:
    """One error (with at most one hint), the exit code, no traceback."""
    assert outcome.code == code, outcome.err
    assert len(outcome.errors) == 1, outcome.err
    assert "Traceback" not in outcome.err
    for word in words:
        assert word in outcome.err, f"{word!r} is missing in: {outcome.err}"


def write_parquet(path: Path, column: str = "text") -> Path:
    pq.write_table(pa.table({column: [f"row {i} " * 30 for i in range(200)]}), path)
    return path


def truncated_parquet(folder: Path) -> dict[str, object]:
    path = write_parquet(folder / "a.parquet")
    path.write_bytes(path.read_bytes()[:-100])
    return {"data__dataset": "parquet", "data__path": path}


def corrupt_gz(folder: Path) -> dict[str, object]:
    path = folder / "a.jsonl.gz"
    data = gzip.compress(
        b"".join(json.dumps({"text": os.urandom(300).hex()}).encode() + b"\n" for _ in range(50))
    )
    path.write_bytes(data[: len(data) // 2] + b"\0" * 64 + data[len(data) // 2 + 64 :])
    return {"data__dataset": "jsonl", "data__path": path}


def not_utf8(folder: Path) -> dict[str, object]:
    (folder / "latin1.txt").write_bytes("déjà vu ".encode("latin-1") * 50)
    return {"data__path": folder / "latin1.txt"}


def bad_json(folder: Path) -> dict[str, object]:
    (folder / "a.jsonl").write_text('{"text": "fine"}\n{"text": "bro\n')
    return {"data__dataset": "jsonl", "data__path": folder / "a.jsonl"}


def wrong_column(folder: Path) -> dict[str, object]:
    return {"data__dataset": "parquet", "data__path": write_parquet(folder / "b.parquet", "body")}


def no_files(folder: Path) -> dict[str, object]:
    (folder / "empty").mkdir()
    return {"data__path": folder / "empty"}


def blank_files(folder: Path) -> dict[str, object]:
    (folder / "blank").mkdir()
    (folder / "blank" / "a.txt").write_text(" \n")
    return {"data__path": folder / "blank"}


def big_tokenizer(folder: Path) -> dict[str, object]:
    from titan_pretrain.tokenizer import train_bpe

    words = (f"w{i * i * 31 % 9973} x{i * 7919 % 10007}" for i in range(5000))
    train_bpe(words, 400).save(folder / "tok")
    return {"tokenizer__path": folder / "tok"}


def pipe(folder: Path) -> dict[str, object]:
    os.mkfifo(folder / "pipe.txt")
    return {"data__path": folder / "pipe.txt"}


def list_as_hf_config(folder: Path) -> dict[str, object]:
    (folder / "hf").mkdir()
    (folder / "hf" / "config.json").write_text("[]")
    return {"checkpoint__init_from": f"hf:{folder / 'hf'}"}


def file_as_run_dir(folder: Path) -> dict[str, object]:
    (folder / "file").write_text("")
    return {"run__dir": folder / "file" / "runs"}


def other_hf_model(folder: Path) -> dict[str, object]:
    (folder / "hf").mkdir()
    described = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 2}
    described |= {
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 300,
        "rope_theta": 500000.0,
    }
    (folder / "hf" / "config.json").write_text(json.dumps(described | {"rms_norm_eps": 1e-5}))
    return {"checkpoint__init_from": f"hf:{folder / 'hf'}"}


@pytest.mark.parametrize(
    ("break_it", "code", "words"),
    [
        (lambda _: {"optim__lrr": 1e-3}, 2, ["optim.lrr", "did you mean `optim.lr`"]),
        (lambda _: {"training__steps": "many"}, 2, ["training.steps", "many"]),
        (lambda _: {"training__steps": -5}, 2, ["training.steps", "-5"]),
        (lambda _: {"training__seq_len": 0}, 2, ["training.seq_len", "0"]),
        (lambda _: {"model__n_kv_heads": 3}, 2, ["n_kv_heads", "3"]),
        (lambda _: {"parallel__dp_replicate": 2}, 2, ["parallel.dp_replicate", "2"]),
        (lambda _: {"training__global_batch_size": 3}, 2, ["global_batch_size", "3"]),
        (lambda _: {"data__path": "nowhere/*.txt"}, 2, ["data.path", "nowhere"]),
        (lambda _: {"data__path": None}, 2, ["data.path"]),
        (no_files, 2, ["data.path", "empty"]),
        (blank_files, 1, ["every document is empty"]),
        (not_utf8, 1, ["latin1.txt", "UTF-8", "offset 1"]),
        (truncated_parquet, 1, ["a.parquet"]),
        (corrupt_gz, 1, ["a.jsonl.gz"]),
        (bad_json, 1, ["a.jsonl:2"]),
        (wrong_column, 1, ["data.text_key", "body"]),
        (big_tokenizer, 2, ["tokenizer.path", "400", "model.vocab_size", "300"]),
        (lambda _: {"tokenizer__path": "no-such-tokenizer"}, 2, ["tokenizer.path", "no-such-tokenizer"]),
        (pipe, 2, ["data.path", "pipe or a device"]),
        (list_as_hf_config, 2, ["config.json", "llama"]),
        (file_as_run_dir, 1, ["run.dir"]),
        (other_hf_model, 2, ["checkpoint.init_from", "dim 32 here, 64 there"]),
        (lambda _: {"checkpoint__init_from": "hf:nowhere"}, 2, ["checkpoint.init_from", "nowhere"]),
    ],
)
def test_broken_input(training, tmp_path, break_it, code, words):
    refused(training(**break_it(tmp_path)), code, *words)
    assert list(tmp_path.glob("runs/*")) == []  # nothing is left of a start that failed


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--config", "llama3_debugg"], 2, ["llama3_debug"]),
        (["--config", "no/such.toml"], 2, ["no/such.toml"]),
        (["--config", "llama3_debug", "--resume", "nowhere"], 2, ["--resume (nowhere)"]),
        (["--config", "llama3_debug", "--bogus"], 2, ["--bogus"]),
        (["export", "--to", "hf", "nowhere", "out"], 2, ["nowhere"]),
        ([], 2, ["--config"]),
    ],
)
def test_broken_command_line(titan, arguments, code, words):
    refused(titan(*arguments), code, *words)


def test_every_mistake_of_a_file_at_once(titan, tmp_path):
    (tmp_path / "bad.toml").write_text(
        'preset = "llama3_debug"\n[training]\nstepz = 5\nseq_len = 0\nprecision = "fp61"\n[modle]\ndim = 8\n'
    )
    outcome = titan("--config", "bad.toml")
    assert outcome.code == 2
    assert len(outcome.errors) == 4
    for word in ("bad.toml:3", "bad.toml:4", "bad.toml:5", "bad.toml:6", "nothing was started"):
        assert word in outcome.err
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def trained(training, tmp_path):
    assert training().code == 0
    (run,) = (tmp_path / "runs").iterdir()
    return run


def test_checkpoint_of_another_model(training, trained):
    outcome = training("--resume", trained, model__dim=64, model__ffn_dim=96, optim__lr=1e-4)
    refused(outcome, 2, "step-00000004) holds another model: model.dim 32 -> 64, model.ffn_dim 48 -> 96\n")
    assert len(outcome.err.splitlines()) == 2
    assert (trained / "outcome.json").read_text().count("finished")  # it was not touched


def test_a_failed_resume_leaves_the_run_as_it_was(training, trained, tmp_path):
    before = sorted(path for path in trained.rglob("*"))
    refused(training("--resume", trained, data__path=no_files(tmp_path)["data__path"]), 2, "data.path")
    assert sorted(path for path in trained.rglob("*")) == before


def test_a_finished_run_tells_how_to_train_on(training, trained):
    outcome = training("--resume", trained)
    assert outcome.code == 0, outcome.err
    assert f"resumed from {trained}/checkpoints/step-00000004 (step 4)" in outcome.out
    assert "training.steps (4) are done; to train on, raise it: --set training.steps=8" in outcome.out
    assert f"checkpoint  {trained}/checkpoints/step-00000004" in outcome.out


@pytest.mark.slow
def test_the_last_lines_can_be_typed(training, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = training()
    (line,) = [line for line in outcome.out.splitlines() if line.startswith("next ")]
    words = shlex.split(line.removeprefix("next"))
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (Path(words[-1]) / "model.safetensors").is_file()


def test_training_a_tokenizer_is_said_with_the_way_to_reuse_it(training, trained, text):
    outcome = training(model__vocab_size=50_000)
    assert "training a tokenizer: vocab 50000 on text; reuse it with --set tokenizer.path=" in outcome.err
    assert "the text has no more pairs to merge" in outcome.err
    assert "training a tokenizer" not in training(tokenizer__path=trained / "tokenizer").err


def test_checkpoint_of_other_data(training, trained, tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.txt").write_text("something else " * 100)
    refused(training("--resume", trained, data__path=tmp_path / "more", training__steps=6), 2, "data")


def test_damaged_checkpoint_is_named_and_the_previous_one_is_taken_when_asked(training, trained):
    shard = next(newest_checkpoint(trained).glob("*.distcp"))
    os.truncate(shard, shard.stat().st_size // 2)
    changes = {"training__steps": 6}
    refused(training("--resume", trained, **changes), 1, shard.name, "step-00000004", "on_corrupt")
    outcome = training("--resume", trained, checkpoint__on_corrupt="previous", **changes)
    assert outcome.code == 0, outcome.err
    assert "step-00000002" in outcome.out
    assert newest_checkpoint(trained).name == "step-00000006"


def test_export_never_overwrites(titan, trained, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("")
    outcome = titan("export", "--to", "hf", trained, tmp_path / "out")
    refused(outcome, 2, str(tmp_path / "out"))
    assert (tmp_path / "out" / "precious").exists()


@contextmanager
def small_disk(folder: Path, mib: float):
    """A file system of a few MiB."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={int(mib * 1024)}k", "none", str(folder)], check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mount") is None, reason="needs the mount command")
def test_full_disk_keeps_the_checkpoints_that_were_complete(training, tmp_path):
    with small_disk(tmp_path / "disk", 1.4) as disk:
        outcome = training(run__dir=disk, training__steps=400, checkpoint__every=100, checkpoint__keep=9)
        refused(outcome, 1, "disk")
        (run,) = disk.iterdir()
        newest = newest_checkpoint(run)
        assert newest is not None
        for file in sorted(run.glob("checkpoints/step-*"))[:-1]:
            shutil.rmtree(file)  # make room
        steps = 100 + int(newest.name.removeprefix("step-"))
        again = training("--resume", run, run__dir=disk, training__steps=steps, checkpoint__keep=1)
        assert again.code == 0, again.err


def test_an_impossible_validation_split_is_found_before_training(training):
    outcome = training(validation__every=3, validation__holdout=0.0001)
    refused(outcome, 2, "validation.holdout")
    assert "step " not in outcome.out


def test_another_rope_theta_is_warned_of(training, trained):
    warning = "warning: model.rope_theta 500000.0 -> 1000000.0"
    started = training(model__rope_theta=1e6, checkpoint__init_from=trained)
    resumed = training("--resume", trained, model__rope_theta=1e6, training__steps=5)
    for outcome in (started, resumed):
        assert outcome.code == 0, outcome.err
        assert outcome.out.count(warning) == 1, outcome.out


def test_weights_bring_their_tokenizer(training, trained, tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.txt").write_text("quite different text, with other words " * 100)
    outcome = training(checkpoint__init_from=trained, data__path=tmp_path / "more", run__name="tuned")
    assert outcome.code == 0, outcome.err
    (tuned,) = (tmp_path / "runs").glob("tuned-*")
    own, given = (run / "tokenizer" / "tokenizer.json" for run in (tuned, trained))
    assert own.read_bytes() == given.read_bytes()


def test_a_damaged_checkpoint_is_set_aside_and_retention_keeps_what_was_saved(training, trained):
    shard = next(newest_checkpoint(trained).glob("*.distcp"))
    os.truncate(shard, shard.stat().st_size // 2)
    changes = {"checkpoint__on_corrupt": "previous", "checkpoint__keep": 1, "checkpoint__every": 0}
    outcome = training("--resume", trained, training__steps=3, **changes)
    assert outcome.code == 0, outcome.err
    names = {path.name for path in (trained / "checkpoints").glob("step-*")}
    assert names == {"step-00000003", "step-00000004.damaged"}


def test_resume_needs_no_config(titan, trained):
    outcome = titan("--resume", trained, "--set", "training.steps=5")
    assert outcome.code == 0, outcome.err
    assert newest_checkpoint(trained).name == "step-00000005"


def test_a_full_disk_at_the_start_is_said(training, tmp_path):
    for kib in (8, 24, 48):
        with small_disk(tmp_path / f"disk{kib}", kib / 1024) as disk:
            outcome = training(run__dir=disk)
            assert outcome.code == 1, outcome.err
            assert len(outcome.errors) == 1, outcome.err
            assert "No space left on device" in outcome.err or "disk is too full" in outcome.err
            assert "this is a bug" not in outcome.err
