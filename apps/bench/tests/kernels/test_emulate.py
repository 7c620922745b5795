"""Rows of ``--emulate``: what is counted, what is predicted for whom, and what keeps an operator out."""

import contextlib

import pytest
import torch

from titan_bench.errors import BenchError
from titan_bench.kernels import figures
from titan_bench.kernels.emulate import Mistake, default_jobs, emulate
from titan_bench.kernels.figures import CARDS
from titan_kernels import device, emulated, images, model, prefer, sources
from titan_kernels.cases import Case, Maker
from titan_kernels.errors import CompileError, EmulatorError
from titan_kernels.ops import relu2
from titan_kernels.registry import ops


def run(*chosen):
    return list(emulate(chosen, torch.float16, 1, lambda _: None))


def text(*chosen):
    (mistake,) = run(*chosen)
    assert isinstance(mistake, Mistake)
    return str(mistake)


@pytest.fixture
def realistic(monkeypatch):
    """The operator with one more small shape as its only realistic one."""

    def make(name, case):
        op = ops()[name]
        cases = [op.cases()[0], case]
        monkeypatch.setattr(op, "cases", lambda: cases)
        return op

    return make


def test_counts_and_predictions_of_a_kernel(small):
    told = []
    (row,) = emulate([small("relu2")], torch.float16, 1, told.append)
    assert told == ["1 shapes of 1 operators"]
    assert len(row.kernels) == 1
    assert row.kernels[0].startswith("glu_relu2")
    assert 1.0 <= row.sectors < 1.5
    assert row.wavefronts == 1.0
    assert row.spills == 0
    assert row.left_out == ()
    assert 0 < row.registers <= 255
    assert set(row.microseconds) == set(CARDS)
    assert all(3.0 <= each < 10.0 for each in row.microseconds.values())  # hardly more than a launch
    assert all(0 < each <= 1 for each in (*row.of_bound.values(), *row.occupancy.values()))


def test_each_card_has_a_grid_of_its_own_size(realistic):
    x = torch.zeros(1 << 20).half()
    (row,) = run(realistic("relu2", Case("large", lambda make: (make.normal(1 << 20),), realistic=True)))
    for label, (name, capability) in figures._NAMES.items():
        card = device.lookup(name, capability)
        with emulated(count=True, check=False, multiprocessors=card.sms) as session, prefer("cuda"):
            relu2(x)
        (launch,) = session.launches
        info = images.info(launch.unit, f"sm_{capability[0]}{capability[1]}")[launch.kernel]
        expected = model.predict(model.workload(launch, info, capability), card).microseconds
        assert row.microseconds[label] == expected, label


@pytest.mark.parametrize(("name", "expected"), [("relu2", {40, 72, 80}), ("embedding", {40})])
def test_what_does_not_depend_on_the_card_runs_once(small, monkeypatch, name, expected):
    sizes, running = [], figures.running

    def noting(*args, **options):
        sizes.append(options.get("multiprocessors"))
        return running(*args, **options)

    monkeypatch.setattr(figures, "running", noting)
    run(small(name))
    assert set(sizes) - {None} == expected


def test_every_block_is_counted(realistic):
    # The last of each block's rounds is for some threads only, so that no block stands for the others.
    count = 72 * 8 * 256 * 8 * 2 + 12344 * 8
    (row,) = run(realistic("relu2", Case("ragged", lambda make: (make.normal(count),), realistic=True)))
    assert row.sectors == 1.0


def test_less_than_the_least_traffic_is_a_mistake(small, monkeypatch):
    op = small("relu2")
    traffic = 2 * op.cases()[0].make(Maker(torch.device("cpu"), torch.float16))[0].nbytes
    monkeypatch.setattr(op, "minimum_bytes", lambda args, outputs: 2 * traffic)
    assert text(op).startswith("relu2: tiny: 0.5")
    assert "of the least traffic: minimum_bytes promises too much" in text(op)


def test_what_pytorch_does_beside_the_launches_is_named(small):
    (row,) = run(small("embedding_backward"))
    assert row.left_out == ("sort", "arange", "searchsorted")


def test_wrong_kernel_gets_no_figures(small, implement):
    wrong, right = small("relu2"), small("relu2_backward")
    implement(wrong, "cuda", torch.relu)
    mistake, row = run(wrong, right)
    assert str(mistake).startswith("relu2: ")
    assert "is wrong, so its speed says nothing: output 0" in str(mistake)
    assert row.op == "relu2_backward"


def test_kernel_that_cannot_run_gets_no_figures(small, implement):
    def racing(*_):
        place = {"block": (0, 0, 0), "thread": (0, 0, 0), "file": "kernel.cu", "line": 1, "seed": 1}
        raise EmulatorError("a race", rule="shared-race", kernel="k", **place)

    op = small("relu2")
    implement(op, "cuda", racing)
    assert text(op) == "relu2: a race"


def test_old_machine_code_is_not_mixed_with_new_sources(small, monkeypatch):
    monkeypatch.setattr(sources, "changed", lambda unit: unit == "glu")
    mistake, row = run(small("relu2"), small("softmax"))
    assert "relu2: the machine code of unit glu is of other sources" in str(mistake)
    assert "install it again (pip install packages/titan-kernels)" in str(mistake)
    assert row.op == "softmax"


def test_kernel_that_was_not_compiled_says_what_to_do(small, monkeypatch):
    monkeypatch.setattr(images, "info", lambda _unit, _arch: {})
    assert "for sm_75: install it again" in text(small("relu2")).replace("sm_70", "sm_75")


def test_no_compiler_ends_it_at_once(small, implement):
    def uncompiled(*_):
        raise CompileError("the emulator needs a C++ compiler")

    op = small("relu2")
    implement(op, "cuda", uncompiled)
    with pytest.raises(BenchError, match=r"needs a C\+\+ compiler"):
        run(op)


def test_rows_come_one_by_one(small, implement):
    asked = []
    first, second = small("relu2"), small("relu2_backward")
    implement(second, "cuda", lambda *_: asked.append(1))
    with contextlib.closing(emulate([first, second], torch.float16, 1, lambda _: None)) as results:
        assert next(results).op == "relu2"
        assert not asked


def test_jobs_are_at_least_one():
    assert 1 <= default_jobs() <= 4
