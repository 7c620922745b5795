"""Metrics of a made-up run."""

import pytest

from titan_pretrain.metrics import StepMetrics


@pytest.fixture
def step_metrics():
    """A maker of StepMetrics with plausible values; keywords replace them."""

    def make(step, **changes):
        values = {
            "step": step,
            "loss": 8.0 - step / 20,
            "grad_norm": 1.25,
            "lr": 2e-3,
            "tokens": 2048 * step,
            "tokens_per_s": 10240.0,
            "loss_scale": None,
            "skipped": 0,
            "memory_gib": 0.5,
            "mfu": None,
        }
        return StepMetrics(**{**values, **changes})

    return make
