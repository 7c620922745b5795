"""What the user probably meant: keys, sections and values."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from titan_pretrain.config.fields import KeyPath, find_option, options

__all__ = ["closest", "did_you_mean", "suggest_key"]

SYNONYMS = {
    "activation_checkpoint": "activation",
    "activation_checkpointing": "activation",
    "batch_size": "training.micro_batch_size",
    "bf16": "training.precision",
    "checkpointing": "checkpoint",
    "clip_grad_norm": "optim.max_grad_norm",
    "context_length": "training.seq_len",
    "context_parallel_degree": "parallel.cp",
    "data_parallel_replicate_degree": "parallel.dp_replicate",
    "data_parallel_shard_degree": "parallel.dp_shard",
    "dtype": "training.precision",
    "expert_parallel_degree": "parallel.ep",
    "folder": "run.dir",
    "fp16": "training.precision",
    "fsdp_reshard_after_forward": "parallel.reshard_after_forward",
    "grad_clip": "optim.max_grad_norm",
    "gradient_accumulation_steps": "training.global_batch_size",
    "hf_assets_path": "tokenizer.path",
    "hidden_size": "model.dim",
    "intermediate_size": "model.ffn_dim",
    "interval": "checkpoint.every",
    "job": "run",
    "keep_latest_k": "checkpoint.keep",
    "learning_rate": "optim.lr",
    "local_batch_size": "training.micro_batch_size",
    "log_freq": "metrics.every",
    "lr_scheduler": "lr",
    "max_iters": "training.steps",
    "max_norm": "optim.max_grad_norm",
    "max_seq_len": "training.seq_len",
    "max_steps": "training.steps",
    "min_lr_factor": "lr.min_ratio",
    "mixed_precision": "training.precision",
    "n_layer": "model.n_layers",
    "num_attention_heads": "model.n_heads",
    "num_hidden_layers": "model.n_layers",
    "num_key_value_heads": "model.n_kv_heads",
    "num_workers": "data.workers",
    "output_dir": "run.dir",
    "parallelism": "parallel",
    "pipeline_parallel_degree": "parallel.pp",
    "save_interval": "checkpoint.every",
    "scheduler": "lr",
    "sequence_length": "training.seq_len",
    "tensor_parallel_degree": "parallel.tp",
    "tie_word_embeddings": "model.tied_embeddings",
    "validator": "validation",
    "weight_tying": "model.tied_embeddings",
}
"""Names of other trainers, and words a search by spelling would miss."""


def closest(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The choice spelled most like ``word``, capitals aside; None when nothing is near."""
    by_lower = {choice.lower(): choice for choice in choices}
    found = get_close_matches(word.lower()[:100], by_lower, n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else None


def did_you_mean(names: Iterable[str]) -> str | None:
    """``did you mean `a` or `b`?``; None for no names."""
    quoted = [f"`{name}`" for name in names]
    return f"did you mean {' or '.join(quoted)}?" if quoted else None


def suggest_key(path: KeyPath, *, is_section: bool = False) -> list[str]:
    """Existing keys the unknown ``path`` may have meant, best first, at most three.

    Args:
        path: the unknown key from the root.
        is_section: whether the user wrote it as a table.
    """
    word = path[-1]
    if word.lower() in SYNONYMS:
        return [SYNONYMS[word.lower()]]
    if is_section:
        return _near_siblings(path, cutoff=0.5)
    elsewhere = [option.name for option in options().values() if option.path[-1] == word]
    return elsewhere[:3] or _near_siblings(path) or _near_anywhere(path)


def _near_siblings(path: KeyPath, cutoff: float = 0.6) -> list[str]:
    siblings = [other[-1] for other in options() if other[:-1] == path[:-1]]
    found = closest(path[-1], siblings, cutoff)
    return [".".join((*path[:-1], found))] if found else []


def _near_anywhere(path: KeyPath) -> list[str]:
    """The same misspelling in another section."""
    names = {other[-1] for other, option in options().items() if option.section is None}
    found = closest(path[-1], names, cutoff=0.75)
    if found is None:
        whole = closest(".".join(path), [option.name for option in options().values()], cutoff=0.75)
        return [whole] if whole else []
    return [".".join(other) for other in options() if other[-1] == found][:3]


def known_keys(path: KeyPath) -> str:
    """The keys that exist where ``path`` does not, for when nothing is near."""
    siblings = [other[-1] for other in options() if other[:-1] == path[:-1]]
    parent = find_option(path[:-1])
    where = f"keys of [{parent.name}]" if parent else "sections"
    return f"{where}: {', '.join(siblings)}"
