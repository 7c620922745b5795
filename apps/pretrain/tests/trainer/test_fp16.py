"""fp16 with loss scaling, on CPU; an overflow anywhere is everybody's."""

import math

import pytest
import torch
import torch.distributed as dist

from titan_parallel.checkpoint import CheckpointReader
from titan_parallel.errors import RankError
from titan_pretrain.config.run_folder import newest_checkpoint


@pytest.fixture
def fp16(tiny):
    def make(**scaling):
        loss_scaling = {"init_scale": 2.0**12, **scaling}
        return tiny(training={"precision": "fp16", "steps": 20, "loss_scaling": loss_scaling})

    return make


def overflow_at(step, rank, value=math.inf, times=math.inf):
    """Make the loss of one rank overflow in one step, at its first ``times`` computations."""

    def tamper(loop):
        original = loop.stepper.loss_sum
        left = times

        def loss_sum(batch):
            nonlocal left
            loss = original(batch)
            if loop.state.step + 1 == step and dist.get_rank() == rank and left > 0:
                left -= 1
                return loss * value
            return loss

        loop.stepper.loss_sum = loss_sum

    return tamper


def checkpoint_tensors(run_dir):
    reader = CheckpointReader(newest_checkpoint(run_dir))
    return {
        (section, info.name): reader.read_tensor(info.name, section)
        for section in ("model", "optimizer")
        for info in reader.iterate_tensors(section)
    }


def test_fp16_trains_like_fp32(train, rows, tiny, fp16, tmp_path):
    train(tiny(), 1, tmp_path / "fp32")
    train(fp16(), 1, tmp_path / "fp16")
    full, half = rows(tmp_path / "fp32"), rows(tmp_path / "fp16")
    for step in range(1, 21):
        assert half[step]["loss"] == pytest.approx(full[step]["loss"], rel=5e-3)
        assert half[step]["grad_norm"] == pytest.approx(full[step]["grad_norm"], rel=5e-2)
    assert half[20]["skipped"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(("value", "rank"), [(math.inf, 0), (math.nan, 1)])
def test_an_overflow_on_one_rank_skips_the_step_on_all(train, rows, fp16, tmp_path, rank, value):
    config = fp16()
    train(config, 2, tmp_path / "run", steps=5)
    before = checkpoint_tensors(tmp_path / "run")
    train(config, 2, tmp_path / "run", steps=1, tamper=overflow_at(6, rank, value))
    after = checkpoint_tensors(tmp_path / "run")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    table = rows(tmp_path / "run")
    assert table[5]["loss_scale"] == 2.0**12
    assert table[6]["loss_scale"] == 2.0**11
    assert table[6]["skipped"] == 1
    train(config, 2, tmp_path / "run")
    table = rows(tmp_path / "run")
    assert math.isfinite(table[20]["loss"])
    assert table[20]["skipped"] == 1


def test_too_many_skips_in_a_row_stop_with_a_diagnosis_and_a_checkpoint(train, fp16, tmp_path):
    def always(loop):
        original = loop.stepper.loss_sum
        loop.stepper.loss_sum = lambda batch: original(batch) * math.inf

    with pytest.raises(
        RankError, match=r"(?s)step 3: 3 steps in a row.*not finite on rank 0, 1.*step-00000002"
    ):
        train(fp16(max_skips_in_a_row=3), 2, tmp_path / "run", tamper=always)
    assert newest_checkpoint(tmp_path / "run").name == "step-00000002"


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_transient_nan_without_scaling_stops_the_run_and_loses_nothing(train, rows, tiny, tmp_path, rank):
    config = tiny(checkpoint={"every": 6, "keep": 1})
    train(config, 2, tmp_path / "straight")
    with pytest.raises(
        RankError, match=rf"step 8: the loss or its gradient.*not finite on rank {rank}\. .*step-00000007"
    ):
        train(config, 2, tmp_path / "run", tamper=overflow_at(8, rank, math.nan, times=1))
    kept = {path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*")}
    assert kept == {"step-00000006", "step-00000007"}, "the one before must outlive the emergency save"
    train(config, 2, tmp_path / "run")  # nothing is lost: it goes on with the batch that failed
    one, other = rows(tmp_path / "straight"), rows(tmp_path / "run")
    assert [one[step]["loss"] for step in range(1, 21)] == [other[step]["loss"] for step in range(1, 21)]
