"""Failures of PyTorch that a user can do something about, in words."""

from __future__ import annotations

import torch

from titan_parallel.runtime import Runtime, is_lost_peer
from titan_pretrain.config.sections import TrainConfig
from titan_pretrain.errors import TrainingError

__all__ = ["explain"]


def explain(error: RuntimeError, config: TrainConfig, runtime: Runtime) -> TrainingError | None:
    """What to tell the user about ``error``; None when it is a bug."""
    if is_lost_peer(error):
        return _lost_peer(config, runtime)
    if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
        return _out_of_memory(error, config, runtime)
    return None


def _lost_peer(config: TrainConfig, runtime: Runtime) -> TrainingError:
    return TrainingError(
        f"rank {runtime.rank} lost contact with another rank, which ended or did not answer within "
        f"run.comm_timeout_s ({config.run.comm_timeout_s})",
        hint="its own message, if there is one, names the cause; --resume auto continues the run",
    )


def _out_of_memory(error: RuntimeError, config: TrainConfig, runtime: Runtime) -> TrainingError:
    ways = []
    training = config.training
    if training.micro_batch_size > 1:
        smaller = training.micro_batch_size // 2
        ways.append(f"training.micro_batch_size = {smaller} (now {training.micro_batch_size})")
    if config.activation.checkpoint != "full":
        ways.append(f'activation.checkpoint = "full" (now "{config.activation.checkpoint}")')
    if training.seq_len > 512:
        ways.append(f"a shorter training.seq_len (now {training.seq_len})")
    ways.append("more processes to shard over")
    first_line = str(error).strip().partition("\n")[0]
    return TrainingError(
        f"rank {runtime.rank}: out of memory on {runtime.device}: {first_line}",
        hint=f"try, in this order: {'; '.join(ways)}; --resume auto continues from the last checkpoint",
    )
