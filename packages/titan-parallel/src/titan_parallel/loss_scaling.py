"""Dynamic loss scaling for fp16 (Micikevicius et al., "Mixed Precision Training", arXiv:1710.03740).

fp16 gradients below 6e-8 vanish and above 65504 overflow.  The loss is multiplied by a scale that
grows while gradients stay finite and shrinks when they overflow; a step that overflowed is skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from torch import Tensor

__all__ = ["DynamicLossScaler", "ScalerState"]


class ScalerState(TypedDict):
    """What a checkpoint keeps of a scaler."""

    enabled: bool
    scale: float
    good_steps: int
    skipped: int


@dataclass
class DynamicLossScaler:
    """The loss scale and the rule that moves it.

    It has no verdict of its own: :func:`titan_parallel.gradients.measure_gradients` gives every rank
    the same one, so the scale is the same on every rank without being communicated.

    Attributes:
        scale: current factor, a power of two if the settings are.
        growth_factor: multiplies the scale after ``growth_interval`` good steps in a row.
        backoff_factor: multiplies the scale after a step with a non-finite gradient.
        growth_interval: good steps in a row before growth.
        min_scale: floor.
        max_scale: ceiling.
        enabled: False keeps the scale at 1 for precisions that need none.
    """

    scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 1000
    min_scale: float = 1.0
    max_scale: float = 2.0**32
    enabled: bool = True
    good_steps: int = 0
    skips_in_a_row: int = 0
    skipped: int = 0

    def __post_init__(self) -> None:
        if not self.enabled:
            self.scale = 1.0

    def scale_loss(self, loss: Tensor) -> Tensor:
        """The loss to call ``backward`` on."""
        return loss * self.scale if self.enabled else loss

    def update(self, finite: bool) -> None:
        """Take the world's verdict on this step's gradients and move the scale."""
        if not self.enabled:
            return
        if not finite:
            self.scale = max(self.min_scale, self.scale * self.backoff_factor)
            self.good_steps = 0
            self.skips_in_a_row += 1
            self.skipped += 1
            return
        self.skips_in_a_row = 0
        self.good_steps += 1
        if self.good_steps == self.growth_interval:
            self.scale = min(self.max_scale, self.scale * self.growth_factor)
            self.good_steps = 0

    def state_dict(self) -> ScalerState:
        """State to resume from exactly."""
        return ScalerState(
            enabled=self.enabled, scale=self.scale, good_steps=self.good_steps, skipped=self.skipped
        )

    def load_state_dict(self, state: ScalerState) -> None:
        """Take up a saved state, unless this or the saved scaler is disabled.

        Skips in a row are counted anew: whoever resumes after too many of them has changed something.
        """
        if self.enabled and state["enabled"]:
            self.scale = float(state["scale"])
            self.good_steps = int(state["good_steps"])
            self.skipped = int(state["skipped"])
