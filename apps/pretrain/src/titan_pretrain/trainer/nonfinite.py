"""What to do when numbers stop being finite: save what is sound, and never what is not."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import nn

from titan_parallel.finite import nonfinite_tensors
from titan_pretrain.errors import TrainingError
from titan_pretrain.trainer.state import RunState
from titan_pretrain.trainer.step import StepResult

__all__ = ["check_finite", "give_up", "save_if_finite"]

_NAMED = 3  # tensors in a message


def check_finite(origin: str, model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
    """Refuse to start from what can't be trained on; every rank calls it.

    Args:
        origin: where the weights are from, for the message.
        model: as loaded.
        optimizer: likewise.

    Raises:
        TrainingError: a value is not finite on some rank.
    """
    names = nonfinite_tensors(model, optimizer)
    if names:
        raise TrainingError(
            f"{origin} holds values that are not finite ({_listed(names)}): the training that wrote it had "
            "diverged",
            hint="take an earlier checkpoint, and a lower optim.lr",
        )


def save_if_finite(state: RunState, *, data: dict[str, Any] | None = None, retain: bool = True) -> Path:
    """Write a checkpoint; every rank calls it.

    Args:
        state: what to save.
        data: as in :meth:`RunState.save`.
        retain: as in :meth:`RunState.save`.

    Raises:
        TrainingError: a value is not finite on some rank; nothing is written or deleted.
    """
    names = nonfinite_tensors(state.model, state.optimizer)
    if names:
        raise TrainingError(_ruined(state, names), hint=_way_back(state))
    return state.save(data=data, retain=retain)


def give_up(
    state: RunState, result: StepResult, cursor: dict[str, Any], *, again: Callable[[], bool]
) -> NoReturn:
    """Stop after a step whose loss or gradients were not finite; every rank calls it.

    The state before that step is saved if it is sound.  It is not when its own numbers are not finite,
    nor when the step fails a second time: a run resumed from there would end here again.  With loss
    scaling the latter is no verdict on the state, from which another precision may go on.

    Args:
        state: as it was before the step, but for the loss scale.
        result: of the step.
        cursor: this rank's loader state before it.
        again: computes the step's gradients once more and tells whether they are finite on all ranks.
    """
    what = f"step {state.step + 1}: {_what_happened(state)}; {_where(result)}"
    names = nonfinite_tensors(state.model, state.optimizer)
    if names:
        raise TrainingError(f"{what}; {_ruined(state, names)}", hint=_way_back(state))
    if not (state.scaler.enabled or again()):
        raise TrainingError(
            f"{what}. The weights are finite, but give the same when computed again, as weights do that have "
            "grown too large: they are not saved, for a run resumed from them would end here too",
            hint=_way_back(state),
        )
    # Nothing older is deleted: this state may still be worse than those before it.
    saved = state.save(data=cursor, retain=False)
    raise TrainingError(f"{what}. The state before this step is saved in {saved}", hint=_way_on(state))


def _what_happened(state: RunState) -> str:
    scaler = state.scaler
    if not scaler.enabled:
        return "the loss or its gradient is not finite"
    return (
        f"{scaler.skips_in_a_row} steps in a row had non-finite gradients (loss scale {scaler.scale:g}; "
        f"training.loss_scaling.max_skips_in_a_row)"
    )


def _where(result: StepResult) -> str:
    finite = torch.tensor([int(torch.isfinite(result.loss).item())])
    gathered = [torch.zeros_like(finite) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, finite)
    bad = [str(rank) for rank, flag in enumerate(gathered) if not flag.item()]
    if not bad:
        return "the loss is finite on every rank, so the backward pass overflowed"
    return f"the loss is not finite on rank {', '.join(bad)}"


def _ruined(state: RunState, names: Sequence[str]) -> str:
    return (
        f"step {state.step} left weights or optimizer states that are not finite ({_listed(names)}): "
        "they are not saved"
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _way_on(state: RunState) -> str:
    """For a state that was saved."""
    if state.scaler.enabled:
        return 'lower optim.lr, or look for a layer that overflows fp16 with training.precision = "fp32"'
    return "computed again, this step is sound: go on with --resume; if it happens again, test the hardware"


def _way_back(state: RunState) -> str:
    """For a state that is lost: the newest one before it."""
    earlier = state.earlier_checkpoint()
    if earlier is None:
        lr, warmup = state.config.optim.lr, state.config.lr.warmup_steps
        return (
            f"there is no earlier checkpoint: start again with a lower optim.lr ({lr:g}) or more "
            f"lr.warmup_steps ({warmup}), and save more often with checkpoint.every"
        )
    return f"{_resume(state, earlier)}; a lower optim.max_grad_norm helps too"


def _resume(state: RunState, checkpoint: Path) -> str:
    lower = f"--set optim.lr={state.config.optim.lr / 2:g}"
    return f"go on from the checkpoint before, more gently: --resume {shlex.quote(str(checkpoint))} {lower}"
