from __future__ import annotations

import pytest
import torch

from titan_parallel.checkpoint import CheckpointManager
from titan_parallel.checkpoint.optimizer import OptimizerRecord, merge_records, optimizer_state
from titan_parallel.testing import run_ranks

KINDS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "plain sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "amsgrad": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, amsgrad=True),
    "fused": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, fused=True),
    "tensor lr": lambda parameters: torch.optim.AdamW(parameters, lr=torch.tensor(0.1), foreach=False),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
}


def _round_trip(lab, folder, kind: str, mesh) -> None:
    model = lab.model(mesh=mesh)
    optimizer = KINDS[kind](model.parameters())
    lab.train(model, optimizer, 2)
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * 0.5
    path = lab.save(folder, 2, model, optimizer)
    other = lab.model(seed=1, mesh=mesh)
    fresh = KINDS[kind](other.parameters())
    with CheckpointManager(folder, keep=1) as manager:
        manager.load(path, model=other, optimizer=fresh)
    lab.assert_equal(lab.state(other, fresh), lab.state(model, optimizer))
    assert float(fresh.param_groups[0]["lr"]) == float(optimizer.param_groups[0]["lr"])
    lab.train(model, optimizer, 2)
    lab.train(other, fresh, 2)
    lab.assert_equal(lab.state(other, fresh), lab.state(model, optimizer))


@pytest.mark.parametrize("kind", KINDS)
def test_any_optimizer_continues_bit_equal(lab, folder, kind):
    _round_trip(lab, folder, kind, None)


@pytest.mark.parametrize("kind", ["sgd", "fused"])
def test_any_optimizer_continues_bit_equal_when_sharded(lab, folder, kind):
    run_ranks(2, _round_trip, lab, folder, kind, (1, 2))


def test_a_schedulers_entries_come_back(lab, folder):
    def build(seed: int):
        model = lab.model(seed=seed)
        optimizer = lab.optimizer(model)
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    model, optimizer, scheduler = build(0)
    lab.train(model, optimizer, 1)
    scheduler.step()
    path = lab.save(folder, 1, model, optimizer)
    other, fresh, _ = build(1)
    CheckpointManager(folder, keep=1).load(path, model=other, optimizer=fresh)
    assert [(g["lr"], g["initial_lr"]) for g in fresh.param_groups] == [(1.5e-3, 3e-3)] * 2
    assert fresh.param_groups[0]["betas"] == (0.9, 0.95)


def test_order_of_groups_and_parameters_does_not_matter(lab, folder):
    model = lab.model()
    optimizer = lab.optimizer(model)
    lab.train(model, optimizer, 2)
    path = lab.save(folder, 2, model, optimizer)
    other = lab.model(seed=1)
    groups = lab.optimizer(other).param_groups
    fresh = torch.optim.AdamW([{**g, "params": g["params"][::-1]} for g in groups[::-1]])
    CheckpointManager(folder, keep=1).load(path, model=other, optimizer=fresh)
    lab.assert_equal(lab.state(other, fresh), lab.state(model, optimizer))
    assert [group["weight_decay"] for group in fresh.param_groups] == [0.0, 0.1]


def test_frozen_parameters_have_no_state(lab, folder):
    model = lab.model()
    model.embedding.weight.requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters())
    lab.train(model, optimizer, 1)
    tensors, record = optimizer_state(model, optimizer)
    assert "embedding.weight" not in record.state
    assert "embedding.weight.exp_avg" not in tensors
    path = lab.save(folder, 1, model, optimizer)
    other = lab.model(seed=1)
    fresh = torch.optim.AdamW(other.parameters())
    lab.train(other, fresh, 1)
    CheckpointManager(folder, keep=1).load(path, model=other, optimizer=fresh)
    lab.assert_equal(lab.state(other, fresh), lab.state(model, optimizer))


def test_records_of_pipeline_stages_add_up():
    first = OptimizerRecord("AdamW", ["lr"], [{"params": ["a"], "options": {}}], {"a": ["step"]}, {})
    second = OptimizerRecord(
        "AdamW", ["lr"], [{"params": ["b"], "options": {}}], {"b": ["step"]}, {"b": {"n": 1}}
    )
    merged = merge_records([first, second, first])
    assert [group["params"] for group in merged.groups] == [["a"], ["b"]]
    assert merged.state == {"a": ["step"], "b": ["step"]}
    assert merged.values == {"b": {"n": 1}}
