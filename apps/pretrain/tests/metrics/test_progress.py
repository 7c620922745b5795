"""The printed progress: one plain line per step, or a moving line on a terminal."""

import io
import math
import os

import pytest

from titan_pretrain.metrics.progress import Progress, format_duration, plain_line, seconds_left


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_plain_line_has_the_documented_form(step_metrics):
    metrics = step_metrics(20, loss=6.1234, grad_norm=1.234, tokens_per_s=12345.0, loss_scale=65536.0)
    line = "step   20/100  loss 6.1234  grad_norm 1.23  lr 2.0e-03  12,345 tok/s  scale 65536  eta 0:13"
    assert plain_line(metrics, 100) == line


def test_what_is_not_measured_is_left_out_and_what_is_rare_appears(step_metrics):
    line = plain_line(step_metrics(20, grad_norm=None, mfu=0.345, skipped=3), 100)
    assert "mfu 34.5%" in line
    assert "skipped 3" in line
    assert "scale" not in line
    assert "grad_norm" not in line


def test_lines_of_a_long_run_align(step_metrics):
    lines = [plain_line(step_metrics(step, loss=5.0), 100_000) for step in (1, 100_000)]
    assert len({line.index("loss") for line in lines}) == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "?"), (0, "0:00"), (41.4, "0:41"), (725, "12:05"), (3723, "1:02:03"), (274_800, "3d 04:20:00")],
)
def test_durations(seconds, text):
    assert format_duration(seconds) == text


def test_the_remaining_time_follows_from_the_throughput(step_metrics):
    assert seconds_left(step_metrics(20, tokens_per_s=2048.0), 100) == 80.0
    assert seconds_left(step_metrics(100), 100) == 0.0
    assert seconds_left(step_metrics(1, tokens_per_s=0.0), 100) is None
    assert seconds_left(step_metrics(1, tokens_per_s=math.nan), 100) is None


def test_elsewhere_than_on_a_terminal_every_step_is_one_plain_line(step_metrics):
    stream = io.StringIO()
    progress = Progress(100, stream=stream)
    progress.update(step_metrics(10))
    progress.say("saved " + "a/long/path" * 30 + " [bold]:smile:")
    progress.update(step_metrics(20))
    progress.close()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0] == plain_line(step_metrics(10), 100)
    assert lines[1].endswith("path [bold]:smile:")
    assert "\x1b" not in stream.getvalue()


def test_a_terminal_gets_a_moving_line_with_the_essentials(step_metrics, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    progress = Progress(100, stream=stream)
    progress.update(step_metrics(50))
    progress.say("saved here")
    progress.close()
    progress.close()
    shown = stream.getvalue()
    assert "\x1b[" in shown
    for words in ("step 50/100", "loss 5.5000", "10,240 tok/s", "eta 0:10", "saved here"):
        assert words in shown


def test_the_line_moves_with_every_step_and_ends_with_the_true_state(step_metrics, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    progress = Progress(100, step=40, stream=stream)
    progress.update(step_metrics(50))
    for step in range(51, 58):
        progress.advance(step)
    progress.close()
    last = stream.getvalue().rpartition("\x1b[2K")[2]
    assert "step 57/100" in last
    assert "loss 5.5000" in last
    assert "eta" not in last  # nobody waits for a run that has stopped


def test_a_run_that_was_never_logged_is_not_starting_for_ever(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    progress = Progress(100, step=40, stream=stream)
    progress.advance(41)
    progress.close()
    first, _, last = stream.getvalue().rpartition("\x1b[2K")
    assert "step 40/100" in first
    assert "starting" in first
    assert "step 41/100" in last
    assert "starting" not in last


def test_a_terminal_that_is_gone_is_no_reason_to_stop(step_metrics, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = os.openpty()
    with open(theirs, "w") as stream:  # noqa: PTH123 -- a file descriptor
        progress = Progress(100, stream=stream)
        progress.update(step_metrics(50))
        os.close(ours)  # as when an ssh connection breaks
        progress.update(step_metrics(51))
        progress.close()
        progress.say("saved here")


def test_elsewhere_the_steps_between_are_silent(step_metrics):
    stream = io.StringIO()
    progress = Progress(100, stream=stream)
    progress.advance(1)
    progress.close()
    assert stream.getvalue() == ""


def test_the_longest_line_fits_80_columns(step_metrics, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    progress = Progress(10_000, stream=stream)
    progress.update(step_metrics(5_000, loss=10.5, tokens_per_s=1.0, skipped=12))
    progress.close()
    assert "skipped 12  eta 118d 12:26:40" in stream.getvalue()


def test_a_non_finite_loss_is_shown_as_it_is(step_metrics):
    assert "loss nan" in plain_line(step_metrics(1, loss=math.nan, grad_norm=math.inf), 10)
