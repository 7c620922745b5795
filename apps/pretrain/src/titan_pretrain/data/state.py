"""The loader's part of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from titan_pretrain.errors import TrainingError, UsageError

__all__ = ["check_fingerprint", "merge_states"]

# What a user must set to get back to the checkpoint's data, by fingerprint key.
_OPTIONS = {
    "source": "data",
    "tokenizer": "tokenizer",
    "seq_len": "training.seq_len",
    "seed": "training.seed",
    "shuffle": "data.shuffle",
    "document_mask": "data.document_mask",
    "holdout": "the validation hold-out",
}


def merge_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Unite the states of all data-parallel ranks.

    Args:
        states: ``TokenLoader.state_dict()`` of every rank, all taken at the same step.

    Returns:
        A state that any number of ranks can load.

    Raises:
        TrainingError: The states don't fit together: a rank is missing, doubled or at another step.
    """
    if not states:
        raise TrainingError("no data state to merge")
    for key in ("num_shards", "global_sequences", "fingerprint"):
        if any(state[key] != states[0][key] for state in states):
            raise TrainingError(f"the ranks' data states differ in {key}: {[state[key] for state in states]}")
    shards: dict[str, Any] = {}
    for state in states:
        doubled = shards.keys() & state["shards"].keys()
        if doubled:
            raise TrainingError(f"two data states hold virtual shard {min(doubled, key=int)}")
        shards |= state["shards"]
    _check_complete(shards, int(states[0]["num_shards"]))
    ordered = dict(sorted(shards.items(), key=lambda item: int(item[0])))
    return {**states[0], "sequences": states[0]["global_sequences"], "shards": ordered}


def _check_complete(shards: Mapping[str, Any], num_shards: int) -> None:
    missing = num_shards - len(shards)
    if missing:
        raise TrainingError(
            f"the data state lacks {missing} of {num_shards} virtual shards: a rank's state is missing"
        )


def check_fingerprint(saved: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Check that a checkpoint continues on the same data.

    Raises:
        UsageError: Dataset, tokenizer, sequence length, seed or a switch differs; names all of them.
    """
    differing = [key for key in _OPTIONS if saved.get(key) != current.get(key)]
    if not differing:
        return
    details = "; ".join(
        f"{_OPTIONS[key]}: {_show(saved.get(key))} in the checkpoint, {_show(current.get(key))} now"
        for key in differing
    )
    raise UsageError(
        f"the checkpoint's data can't be continued: {details}; restore these settings, or start a new run "
        "from its weights with checkpoint.init_from"
    )


def _show(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key}={item}" for key, item in value.items())
    return str(value)
