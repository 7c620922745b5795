from __future__ import annotations

import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from titan_parallel.checkpoint import CheckpointManager
from titan_parallel.testing import run_ranks


def test_tied_parameters_are_stored_once(lab, folder):
    def tied(seed: int):
        model = lab.model(seed=seed)
        model.head = torch.nn.Linear(6, 13, bias=False)
        model.head.weight = model.embedding.weight
        return model

    model = tied(0)
    path = lab.save(folder, 1, model)
    assert '"head.weight"' not in (path / "manifest.json").read_text()
    other = tied(1)
    CheckpointManager(folder, keep=1).load(path, model=other)
    assert other.head.weight is other.embedding.weight
    lab.assert_equal(lab.state(other), lab.state(model))


def test_names_do_not_depend_on_wrappers(lab, folder):
    model = lab.model(seed=1)
    optimizer = lab.optimizer(model)
    lab.train(model, optimizer, 1)
    wanted = lab.state(model, optimizer)
    wrapped = torch.compile(model)
    model.layers[0] = checkpoint_wrapper(model.layers[0])
    path = lab.save(folder, 1, wrapped, optimizer)

    plain = lab.model()
    fresh = lab.optimizer(plain)
    CheckpointManager(folder, keep=1).load(path, model=plain, optimizer=fresh)
    lab.assert_equal(lab.state(plain, fresh), wanted)


def test_names_do_not_depend_on_ddp(lab, folder):
    def save():
        model = torch.nn.parallel.DistributedDataParallel(lab.model())
        optimizer = lab.optimizer(model)
        for _ in range(2):
            model(torch.arange(12).reshape(2, 6)).pow(2).mean().backward()
            optimizer.step()
        lab.save(folder, 1, model, optimizer)
        return lab.state(model.module), [s["exp_avg"] for s in optimizer.state.values()]

    wanted, moments = run_ranks(2, save)[0]
    model = lab.model(seed=1)
    optimizer = lab.optimizer(model)
    CheckpointManager(folder, keep=1).load(folder / "step-00000001", model=model, optimizer=optimizer)
    lab.assert_equal(lab.state(model), wanted)
    got = [optimizer.state[p]["exp_avg"] for group in optimizer.param_groups for p in group["params"]]
    assert all(torch.equal(a, b) for a, b in zip(got, moments, strict=True))


def test_dtype_changes_are_noted(lab, folder):
    lab.trained(folder)
    model = lab.model().to(torch.bfloat16)
    notes = CheckpointManager(folder, keep=1).load(folder / "step-00000003", model=model).notes
    assert len(notes) == 1
    assert notes[0].startswith("10 parameters saved as float32 are loaded as bfloat16 (embedding.weight, ")
