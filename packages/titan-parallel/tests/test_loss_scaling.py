import pytest
import torch

from titan_parallel.loss_scaling import DynamicLossScaler


def _scales(verdicts, **settings):
    scaler = DynamicLossScaler(**settings)
    scales = []
    for finite in verdicts:
        scaler.update(finite)
        scales.append(scaler.scale)
    return scales


def test_sequence_equals_torchs_grad_scaler():
    verdicts = [True, True, False, True, True, True, False, False, True, True, True, True]
    torchs, tracker = torch.tensor(16.0), torch.tensor(0, dtype=torch.int32)
    expected = []
    for finite in verdicts:
        torch._amp_update_scale_(torchs, tracker, torch.tensor(float(not finite)), 2.0, 0.5, 3)
        expected.append(torchs.item())
    assert _scales(verdicts, scale=16.0, growth_interval=3) == expected


def test_floor_and_ceiling():
    assert _scales([False] * 4, scale=4.0, min_scale=2.0) == [2.0] * 4
    assert _scales([True] * 3, scale=4.0, growth_interval=1, max_scale=8.0) == [8.0] * 3


def test_counts_skips():
    scaler = DynamicLossScaler()
    for finite in (False, False, True, False):
        scaler.update(finite)
    assert (scaler.skipped, scaler.skips_in_a_row) == (3, 1)


def test_state_continues_exactly():
    verdicts = [True, True, False, True, True, True, True]
    first = DynamicLossScaler(scale=8.0, growth_interval=3)
    for finite in verdicts[:4]:
        first.update(finite)
    second = DynamicLossScaler(scale=1.0, growth_interval=3)
    second.load_state_dict(first.state_dict())
    for finite in verdicts[4:]:
        first.update(finite)
        second.update(finite)
    assert second == first


@pytest.mark.parametrize("finite", [True, False])
def test_disabled_is_one_forever(finite):
    scaler = DynamicLossScaler(enabled=False)
    scaler.update(finite)
    loss = torch.ones(())
    assert scaler.scale == 1.0
    assert scaler.scale_loss(loss) is loss
    scaler.load_state_dict({"enabled": True, "scale": 8.0, "good_steps": 1, "skipped": 0})
    assert scaler.scale == 1.0


def test_a_scale_of_a_disabled_scaler_is_not_taken_up():
    scaler = DynamicLossScaler(scale=4096.0)
    scaler.load_state_dict(DynamicLossScaler(enabled=False).state_dict())
    assert scaler.scale == 4096.0


def test_skips_in_a_row_are_counted_anew_after_a_resume():
    first, second = DynamicLossScaler(), DynamicLossScaler()
    for _ in range(3):
        first.update(False)
    second.load_state_dict(first.state_dict())
    assert (second.skips_in_a_row, second.skipped, second.scale) == (0, 3, first.scale)
