from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from titan_parallel.checkpoint import CheckpointManager
from titan_parallel.errors import CheckpointError, CheckpointNotFoundError, CheckpointWriteError
from titan_parallel.testing import run_ranks

WORLDS = [(1, None), (1, (1, 1)), (2, (1, 2)), (2, (2, 1)), (4, (1, 4)), (4, (2, 2))]


def _round_trip(lab, folder: Path, mesh) -> None:
    model = lab.model(mesh=mesh)
    optimizer = lab.optimizer(model)
    lab.train(model, optimizer, 3)
    lab.save(folder, 3, model, optimizer)
    wanted = lab.state(model, optimizer)

    other = lab.model(seed=1, mesh=mesh)
    fresh = lab.optimizer(other)
    fresh.param_groups[0]["lr"] = 1.0
    manager = CheckpointManager(folder, keep=2)
    loaded = manager.load(manager.latest(), model=other, optimizer=fresh)
    assert (loaded.step, loaded.path, loaded.trainer) == (3, folder / "step-00000003", {"step": 3})
    assert loaded.per_rank == {"rank": dist.get_rank() if dist.is_initialized() else 0}
    assert loaded.notes == []
    lab.assert_equal(lab.state(other, fresh), wanted)
    assert [_options(g) for g in fresh.param_groups] == [_options(g) for g in optimizer.param_groups]

    lab.train(model, optimizer, 2)
    lab.train(other, fresh, 2)
    lab.assert_equal(lab.state(other, fresh), lab.state(model, optimizer))


def _options(group) -> dict:
    return {key: value for key, value in group.items() if key != "params"}


def test_round_trip_without_process_group(lab, folder):
    _round_trip(lab, folder, None)


@pytest.mark.parametrize(("world", "mesh"), WORLDS)
def test_round_trip_is_bit_equal(lab, folder, world, mesh):
    run_ranks(world, _round_trip, lab, folder, mesh)


def test_shards_are_uneven_and_one_is_empty(lab):
    def rows() -> int:
        head = lab.model(mesh=(1, 4)).head.weight
        assert isinstance(head, DTensor)
        return head.to_local().shape[0]

    assert run_ranks(4, rows) == [1, 1, 1, 0]


@pytest.mark.slow
def test_resharding_over_worlds_is_bit_equal(lab, folder):
    def resave(mesh, step: int):
        model = lab.model(seed=step, mesh=mesh)
        optimizer = lab.optimizer(model)
        with CheckpointManager(folder, keep=10) as manager:
            loaded = manager.load(manager.latest(), model=model, optimizer=optimizer)
        lab.save(folder, step, model, optimizer, keep=10)
        return lab.state(model, optimizer), loaded.per_rank, loaded.world_size, loaded.notes

    wanted = run_ranks(2, lab.trained, folder, 3, (1, 2))[0]
    saved_by = 2
    for step, (world, mesh) in enumerate([(1, None), (4, (1, 4)), (2, (1, 2)), (4, (2, 2)), (2, (2, 1))], 4):
        for state, per_rank, world_size, notes in run_ranks(world, resave, mesh, step):
            lab.assert_equal(state, wanted)
            assert per_rank is None
            assert world_size == saved_by
            assert notes == [
                f"saved by {saved_by} ranks and loaded by {world}: "
                "per-rank state (random numbers) is not restored"
            ]
        saved_by = world


def test_per_rank_state_returns_to_its_rank(lab, folder):
    def save_and_load() -> bool:
        torch.manual_seed(100 + dist.get_rank())
        state = torch.get_rng_state()
        model = torch.nn.Linear(2, 2)
        with CheckpointManager(folder, keep=1) as manager:
            path = manager.save(1, model=model, optimizer=None, trainer={}, per_rank={"rng": state})
            return torch.equal(manager.load(path, model=model).per_rank["rng"], state)

    assert run_ranks(2, save_and_load) == [True, True]


def test_saving_an_optimizer_without_state_does_not_step_it(lab, folder):
    model = lab.model()
    optimizer = lab.optimizer(model)
    lab.save(folder, 0, model, optimizer)
    assert not optimizer.state

    trained = lab.model()
    stale = lab.optimizer(trained)
    lab.train(trained, stale, 2)
    CheckpointManager(folder, keep=1).load(folder / "step-00000000", model=trained, optimizer=stale)
    assert not stale.state
    lab.assert_equal(lab.state(trained, stale), lab.state(model, optimizer))


def test_loading_weights_only(lab, folder):
    wanted = lab.trained(folder)
    model = lab.model(seed=1)
    CheckpointManager(folder, keep=1).load(folder / "step-00000003", model=model)
    lab.assert_equal(lab.state(model), {k: v for k, v in wanted.items() if k.startswith("model.")})


def test_retention_keeps_the_newest(lab, folder):
    model = lab.model()
    manager = CheckpointManager(folder, keep=2)
    for step in (5, 10, 15, 20):
        manager.save(step, model=model, optimizer=None, trainer={}, per_rank={})
    assert manager.steps() == [15, 20]
    assert manager.latest() == folder / "step-00000020"
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "step-00000015", "step-00000020"]
    assert manager.latest(before=20) == folder / "step-00000015"
    assert manager.latest(before=15) is None


def test_saving_a_step_again_replaces_it(lab, folder):
    model = lab.model()
    manager = CheckpointManager(folder, keep=2)
    for seed in (0, 1):
        model = lab.model(seed=seed)
        path = manager.save(7, model=model, optimizer=None, trainer={"seed": seed}, per_rank={})
    other = lab.model(seed=2)
    assert manager.load(path, model=other).trainer == {"seed": 1}
    lab.assert_equal(lab.state(other), lab.state(model))
    assert manager.steps() == [7]


def test_empty_folder_has_nothing(folder):
    manager = CheckpointManager(folder, keep=1)
    assert (manager.steps(), manager.latest()) == ([], None)


def test_unknown_path_names_the_steps_there_are(lab, folder):
    lab.trained(folder)
    with pytest.raises(CheckpointNotFoundError, match=r"step-00000009\) doesn't exist; steps in .*: 3"):
        CheckpointManager(folder, keep=1).load(folder / "step-00000009", model=lab.model())


def test_model_of_a_replicated_job(lab, folder):
    """DDP-like: plain tensors on every rank are stored once, and a sharded job loads them."""
    run_ranks(2, lab.trained, folder, 3, None)
    model = lab.model()
    optimizer = lab.optimizer(model)
    lab.train(model, optimizer, 3)

    def load():
        other = lab.model(seed=1, mesh=(1, 2))
        fresh = lab.optimizer(other)
        CheckpointManager(folder, keep=1).load(folder / "step-00000003", model=other, optimizer=fresh)
        return lab.state(other, fresh)

    lab.assert_equal(run_ranks(2, load)[1], lab.state(model, optimizer))


def test_state_that_cannot_be_stored_is_refused(lab, folder):
    model = lab.model()
    manager = CheckpointManager(folder, keep=1)
    with pytest.raises(CheckpointError, match="trainer state must be JSON-able"):
        manager.save(1, model=model, optimizer=None, trainer={"a": model}, per_rank={})
    with pytest.raises(CheckpointError, match="per_rank state must be tensors and plain Python values"):
        manager.save(1, model=model, optimizer=None, trainer={}, per_rank={"a": Path()})
    meta = copy.deepcopy(model).to("meta")
    with pytest.raises(CheckpointError, match="meta device"):
        manager.save(1, model=meta, optimizer=None, trainer={}, per_rank={})
    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_bad_arguments(folder):
    with pytest.raises(CheckpointError, match=r"keep \(0\) must be at least 1"):
        CheckpointManager(folder, keep=0)
    reader = CheckpointManager(folder, keep=1, read_only=True)
    assert not folder.exists()
    with pytest.raises(CheckpointError, match=r"step \(-1\) must be at least 0"):
        CheckpointManager(folder, keep=1).save(
            -1, model=torch.nn.Linear(1, 1), optimizer=None, trainer={}, per_rank={}
        )
    with pytest.raises(CheckpointError, match="read-only"):
        reader.save(1, model=torch.nn.Linear(1, 1), optimizer=None, trainer={}, per_rank={})


def test_ranks_must_save_the_same_step(lab, folder):
    def save() -> str:
        manager = CheckpointManager(folder, keep=1)
        with pytest.raises(CheckpointError) as caught:
            manager.save(dist.get_rank(), model=lab.model(), optimizer=None, trainer={}, per_rank={})
        return str(caught.value)

    assert run_ranks(2, save)[1].startswith("ranks save different steps ([0, 1])")


def test_closed_manager_does_not_save(lab, folder):
    manager = CheckpointManager(folder, keep=1)
    manager.close()
    with pytest.raises(CheckpointWriteError, match="closed"):
        manager.save(1, model=lab.model(), optimizer=None, trainer={}, per_rank={})
