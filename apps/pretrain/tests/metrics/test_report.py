"""report.html: complete, self-contained and safe for every state a run folder can be in."""

import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from titan_pretrain.config.dump import to_toml
from titan_pretrain.config.sections import MetricsConfig, RunConfig, TrainConfig
from titan_pretrain.errors import DataError, PretrainError
from titan_pretrain.metrics.environment import save_environment
from titan_pretrain.metrics.outcome import Outcome, clear_outcome, save_outcome
from titan_pretrain.metrics.report import write_report
from titan_pretrain.metrics.sinks import MetricsWriter

CONFIG = TrainConfig(metrics=MetricsConfig(tensorboard=False), run=RunConfig(dir='<script>"&'))


@pytest.fixture
def run_dir(tmp_path, step_metrics):
    """A run that has done 60 of 100 steps in fp16, with a validation and a skipped step."""
    folder = tmp_path / "debug-<b>&run"
    folder.mkdir()
    (folder / "config.toml").write_text(to_toml(CONFIG))
    save_environment(folder, {"device": "NVIDIA TITAN <V>", "torch": "2.13.0"})
    writer = MetricsWriter(folder, CONFIG)
    for step in range(10, 70, 10):
        writer.log(step_metrics(step, loss_scale=65536.0 / step, skipped=step // 30, mfu=0.25))
    writer.log_validation(60, 5.125)
    writer.close()
    return folder


class Page(HTMLParser):
    """Titles, table rows and references of a page; refuses unbalanced tags."""

    VOID = ("meta", "link", "img", "br")

    def __init__(self, path):
        super().__init__()
        self.text = path.read_text()
        self.open, self.titles, self.references = [], [], []
        self.feed(self.text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        self.references += [
            value for name, value in attributes if name in ("src", "href", "xlink:href") and value[0] != "#"
        ]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] == ["h3"]:
            self.titles.append(data.strip())


def test_the_report_shows_every_curve_that_was_measured(run_dir):
    page = Page(write_report(run_dir))
    assert page.titles == [
        "Loss",
        "Learning rate",
        "Gradient norm",
        "Throughput",
        "Peak memory",
        "Model FLOPs utilization",
        "Loss scale",
        "Skipped steps",
    ]


def test_the_report_needs_nothing_but_itself(run_dir):
    page = Page(write_report(run_dir))
    assert page.references == []
    assert "@import" not in page.text
    assert not re.search(r"url\((?!#)", page.text)
    assert "<script" not in page.text


def test_figures_config_and_environment_are_there_and_escaped(run_dir):
    text = write_report(run_dir).read_text()
    assert "running at step 60 of 100, or killed after it; logged every 10 steps" in text
    for value in ("5.0000", "5.1250", "122,880", "10,240", "25.0%"):
        assert f"<dd>{value}</dd>" in text
    assert "debug-&lt;b&gt;&amp;run" in text
    assert "NVIDIA TITAN &lt;V&gt;" in text
    assert "<th>optim.lr</th><td>0.002</td>" in text
    assert re.search(r"<tr class=set><th>run\.dir</th><td>&quot;&lt;script&gt;", text)


def test_a_run_on_a_cpu_in_fp32_shows_no_scaling_and_no_mfu(tmp_path, step_metrics):
    writer = MetricsWriter(tmp_path, CONFIG)
    writer.log(step_metrics(1))
    writer.close()
    page = Page(write_report(tmp_path))
    assert "<dt>median MFU</dt><dd>n/a</dd>" in page.text
    assert not {"Loss scale", "Skipped steps", "Model FLOPs utilization"} & set(page.titles)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.toml", None),
        ("config.toml", "[optim]\noption_of_another_release = '<b>'\n"),
        ("environment.json", None),
        ("environment.json", '{"device": '),
        ("environment.json", "[]"),
        ("metrics.jsonl", ""),
        ("metrics.jsonl", '{"step": 10, "loss": 7.0}\n{"step": 20, "lo'),
        ("metrics.jsonl", '{"step": 10, "loss": "high", "lr": [1], "grad_norm": null}\n'),
    ],
)
def test_damaged_and_missing_files_cost_only_their_own_part(run_dir, name, content):
    (run_dir / name).unlink()
    if content is not None:
        (run_dir / name).write_text(content)
    page = Page(write_report(run_dir)) if (run_dir / "metrics.jsonl").exists() else None
    assert page is not None
    assert "<h2>Environment</h2>" in page.text
    assert "<b>'" not in page.text


@pytest.mark.slow
def test_a_resume_shows_in_the_next_report(run_dir, step_metrics):
    before = write_report(run_dir).read_text()
    writer = MetricsWriter(run_dir, CONFIG, step=40)
    for step in range(50, 110, 10):
        writer.log(step_metrics(step, loss=1.5))
    writer.close()
    after = write_report(run_dir).read_text()
    save_outcome(run_dir, Outcome("finished", 100))
    finished = write_report(run_dir).read_text()
    assert "running at step 60 of 100" in before
    assert "running at step 100 of 100" in after
    assert "finished at step 100 of 100; logged every 10 steps" in finished
    assert "<dt>final loss</dt><dd>1.5000</dd>" in after


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome("stopped", 57, "SIGINT"), "stopped at step 57 of 100 by SIGINT; logged every 10 steps"),
        (
            Outcome("failed", 63, "a <b> full disk"),
            "failed after step 63 of 100: a &lt;b&gt; full disk; logged",
        ),
    ],
)
def test_the_subtitle_tells_how_the_run_ended(run_dir, outcome, status):
    save_outcome(run_dir, outcome)
    assert status in write_report(run_dir).read_text()
    clear_outcome(run_dir)
    assert "running at step 60 of 100" in write_report(run_dir).read_text()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"state": "lost", "step": 1, "cause": ""}'])
def test_a_damaged_outcome_says_nothing(run_dir, text):
    (run_dir / "outcome.json").write_text(text)
    assert "running at step 60 of 100" in write_report(run_dir).read_text()


def test_a_folder_without_metrics_is_no_run_folder(tmp_path):
    with pytest.raises(DataError, match=r"has no metrics\.jsonl"):
        write_report(tmp_path)


def test_a_report_that_can_not_be_written_is_one_error(run_dir):
    (run_dir / "report.html").mkdir()
    with pytest.raises(PretrainError, match=r"report\.html\) can't be written"):
        write_report(run_dir)


def command_line(*arguments):
    command = [sys.executable, "-m", "titan_pretrain.metrics.report", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_command_line_writes_the_report_again(run_dir, tmp_path):
    done = command_line(str(run_dir))
    assert (done.returncode, done.stdout.strip()) == (0, str(run_dir / "report.html"))
    failed = command_line(str(tmp_path))
    assert failed.returncode == 1
    assert failed.stderr.startswith("error: ")
    assert len(failed.stderr.splitlines()) == 1
    assert command_line().returncode == 2
