"""Weights that are ruined are never saved, and the way back to sound ones is named."""

import math

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from titan_parallel.checkpoint import CheckpointManager, CheckpointReader
from titan_parallel.errors import RankError
from titan_pretrain.config.run_folder import newest_checkpoint
from titan_pretrain.errors import TrainingError
from titan_pretrain.trainer.build import load_initial_weights
from titan_pretrain.trainer.nonfinite import check_finite


def saved_steps(run_dir):
    return sorted(int(path.name[5:]) for path in (run_dir / "checkpoints").glob("step-*"))


def after_step(step, ruin):
    """Let ``ruin(loop)`` follow the update of one optimizer step."""

    def tamper(loop):
        original = loop.stepper.step

        def stepped(batches, num_valid):
            result = original(batches, num_valid)
            if loop.state.step + 1 == step:
                with torch.no_grad():
                    ruin(loop)
            return result

        loop.stepper.step = stepped

    return tamper


def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def weight_of_rank(rank, value):
    def ruin(loop):
        if dist.get_rank() == rank:
            local(loop.state.model.norm.weight)[0] = value

    return ruin


def second_moment_of_rank(rank):
    def ruin(loop):
        if dist.get_rank() == rank:
            local(loop.state.optimizer.state[loop.state.model.norm.weight]["exp_avg_sq"])[0] = math.inf

    return ruin


def huge_weights(loop):
    for parameter in loop.state.model.parameters():
        local(parameter).mul_(1e30)


@pytest.mark.parametrize("rank", [0, 1])
def test_weights_that_a_step_ruined_are_not_saved(train, tiny, tmp_path, rank):
    config = tiny(checkpoint={"every": 3, "keep": 2})
    wanted = r"step 8: .*; step 7 left weights .* not finite \(norm.weight\): they are not saved"
    with pytest.raises(RankError, match=wanted):
        train(config, 2, tmp_path, tamper=after_step(7, weight_of_rank(rank, math.nan)))
    assert saved_steps(tmp_path) == [3, 6]


def test_the_hint_names_the_checkpoint_and_a_lower_lr_and_it_works(train, rows, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(TrainingError, "__str__", lambda self: f"{self.args[0]} | {self.hint}")
    config = tiny(checkpoint={"every": 3}, optim={"lr": 1e-3})
    with pytest.raises(RankError) as caught:
        train(config, 1, tmp_path, tamper=after_step(7, weight_of_rank(0, math.inf)))
    hints = str(caught.value).partition(" | ")[2]
    assert f"--resume {tmp_path}/checkpoints/step-00000006 --set optim.lr=0.0005" in hints
    train(tiny(optim={"lr": 5e-4}), 1, tmp_path)
    assert math.isfinite(rows(tmp_path)[20]["loss"])


def test_the_optimizer_state_counts(train, tiny, tmp_path):
    config = tiny(checkpoint={"every": 3})
    with pytest.raises(RankError, match=r"step 9 left .*not finite \(exp_avg_sq of norm.weight\): they"):
        train(config, 2, tmp_path, tamper=after_step(9, second_moment_of_rank(1)))
    assert saved_steps(tmp_path) == [3, 6], "the save of step 9 must not happen, nor push out another"


def test_a_regular_save_does_not_push_out_the_last_sound_checkpoint(train, tiny, tmp_path):
    config = tiny(checkpoint={"every": 3, "keep": 1})
    with pytest.raises(RankError, match=r"step 6 left weights .* are not saved"):
        train(config, 2, tmp_path, tamper=after_step(6, weight_of_rank(1, -math.inf)))
    assert saved_steps(tmp_path) == [3]


@pytest.mark.parametrize("world_size", [1, 2])
def test_finite_weights_that_have_grown_too_large_are_not_saved(train, tiny, tmp_path, world_size):
    config = tiny(checkpoint={"every": 3})
    with pytest.raises(
        RankError, match=r"step 8: .*The weights are finite, but give the same when computed again"
    ):
        train(config, world_size, tmp_path, tamper=after_step(7, huge_weights))
    assert saved_steps(tmp_path) == [3, 6]


def test_the_checkpoint_of_huge_weights_is_not_the_one_to_go_back_to(train, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(TrainingError, "__str__", lambda self: f"{self.args[0]} | {self.hint}")
    with pytest.raises(RankError, match=r"--resume [^ ]*/step-00000003 "):  # step 6 was saved: all is finite
        train(tiny(checkpoint={"every": 3}), 1, tmp_path, tamper=after_step(6, huge_weights))


def test_without_an_earlier_checkpoint_that_is_said(train, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(TrainingError, "__str__", lambda self: f"{self.args[0]} | {self.hint}")
    with pytest.raises(RankError, match=r"there is no earlier checkpoint: start again with a lower optim.lr"):
        train(tiny(), 2, tmp_path, tamper=after_step(2, weight_of_rank(0, math.nan)))
    assert saved_steps(tmp_path) == []


def backward_overflow(times):
    def overflow(loop):
        original, left = loop.stepper.loss_sum, times

        def loss_sum(batch):
            nonlocal left
            loss = original(batch)
            if dist.get_rank() == 1 and left > 0:
                left -= 1
                loss.register_hook(lambda grad: grad * math.inf)
            return loss

        loop.stepper.loss_sum = loss_sum

    return overflow


def test_a_backward_pass_that_overflows_once_leaves_a_sound_state(train, tiny, tmp_path):
    with pytest.raises(RankError, match=r"backward pass overflowed. The state before .*step-00000004"):
        train(tiny(), 2, tmp_path, tamper=after_step(4, backward_overflow(1)))
    assert saved_steps(tmp_path) == [4]


def test_a_backward_pass_that_always_overflows_does_not(train, tiny, tmp_path):
    with pytest.raises(
        RankError, match=r"backward pass overflowed. The weights are finite, but give the same"
    ):
        train(tiny(), 2, tmp_path, tamper=after_step(4, backward_overflow(99)))
    assert saved_steps(tmp_path) == []


def test_fp16_that_overflows_forward_is_saved_for_another_precision(train, rows, tiny, tmp_path):
    """Weights of 1e4 are fine in fp32, and so are their sums; in fp16 they are not."""

    def large(loop):
        local(loop.state.model.output.weight).mul_(1e6)

    training = {"precision": "fp16", "steps": 12, "loss_scaling": {"max_skips_in_a_row": 2}}
    with pytest.raises(RankError, match=r"2 steps in a row.*saved in .*step-00000006"):
        train(tiny(training=training), 1, tmp_path, tamper=after_step(5, large))
    train(tiny(training={"precision": "fp32", "steps": 12}), 1, tmp_path)
    assert math.isfinite(rows(tmp_path)[12]["loss"])


def test_a_ruined_checkpoint_is_refused_by_name(train, tiny, tmp_path):
    config = tiny(training={"steps": 2}, lr={"warmup_steps": 1})
    train(config, 1, tmp_path / "run")
    path = newest_checkpoint(tmp_path / "run")
    tensors = {
        info.name: CheckpointReader(path).read_tensor(info.name)
        for info in CheckpointReader(path).iterate_tensors()
    }
    from titan_pretrain.models.llama3 import Llama3

    model = Llama3(config.model)
    model.load_state_dict(tensors)
    with torch.no_grad():
        model.output.weight[3, 3] = math.nan
    with CheckpointManager(tmp_path / "bad", keep=1) as manager:
        bad = manager.save(2, model=model, optimizer=None, trainer={"config": {}}, per_rank={})
    fresh = Llama3(config.model)
    start = tiny(checkpoint={"init_from": str(bad)})
    with pytest.raises(TrainingError, match=r"checkpoint.init_from \(.*step-00000002\) .*\(output.weight\)"):
        load_initial_weights(fresh, start)
    check_finite("a sound one", Llama3(config.model))
