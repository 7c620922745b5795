"""Operators with small "realistic" cases, and planted mistakes."""

import dataclasses
import functools

import pytest
import torch

from titan_bench.kernels import candidates
from titan_bench.kernels.measure import Bench
from titan_bench.kernels.timers import CpuTimer
from titan_kernels.cases import Case
from titan_kernels.platforms import always
from titan_kernels.registry import Implementation, ops

# Traces and runs as PyTorch would, without generating code.
quick_compile = functools.partial(torch.compile, fullgraph=True, dynamic=False, backend="aot_eager")


@pytest.fixture
def bench():
    return Bench(torch.device("cpu"), torch.float32, rounds=4, timer=CpuTimer(), compiler=quick_compile)


@pytest.fixture
def small(monkeypatch, implement):
    """The operator with its first small case as its only realistic one.

    The reference stands in for its Triton kernel, which is slow without a GPU, if not asked otherwise.
    """

    def make(name, interpreted=False):
        op = ops()[name]
        case = op.cases()[0]
        cases = [case, Case("tiny", case.make, realistic=True)]
        monkeypatch.setattr(op, "cases", lambda: cases)
        if not interpreted:
            implement(op, "triton", op.implementations[-1].run)
        return op

    return make


@pytest.fixture
def implement(monkeypatch):
    """Put another function in the place of an implementation, on any device."""

    def make(op, name, run):
        other = Implementation(name, always, run)
        changed = tuple(other if each.name == name else each for each in op.implementations)
        monkeypatch.setattr(op, "implementations", changed)
        monkeypatch.setitem(op.__dict__, "_by_name", {each.name: each for each in changed})

    return make


@pytest.fixture
def peers(monkeypatch):
    """Change the entries of an operator's counterparts."""

    def make(op, **changes):
        changed = {**candidates.PEERS, op.name: dataclasses.replace(candidates.PEERS[op.name], **changes)}
        monkeypatch.setattr(candidates, "PEERS", changed)

    return make
