"""Llama 3 in Hugging Face's format: names of the weights and config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from titan_pretrain.config.sections import ModelConfig
from titan_pretrain.errors import DataError, UsageError

__all__ = ["hf_config", "hf_names", "read_hf_config"]

_BLOCK = {
    "attention_norm.weight": "input_layernorm.weight",
    "attention.wq.weight": "self_attn.q_proj.weight",
    "attention.wk.weight": "self_attn.k_proj.weight",
    "attention.wv.weight": "self_attn.v_proj.weight",
    "attention.wo.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "feed_forward.w1.weight": "mlp.gate_proj.weight",
    "feed_forward.w2.weight": "mlp.down_proj.weight",
    "feed_forward.w3.weight": "mlp.up_proj.weight",
}


def hf_names(config: ModelConfig) -> dict[str, str]:
    """Our parameter names -> Hugging Face's, in the model's order.

    Both rotate half-split, so no weight is permuted.
    """
    names = {"tok_embeddings.weight": "model.embed_tokens.weight"}
    for layer in range(config.n_layers):
        names |= {
            f"layers.{layer}.{ours}": f"model.layers.{layer}.{theirs}" for ours, theirs in _BLOCK.items()
        }
    names["norm.weight"] = "model.norm.weight"
    if not config.tied_embeddings:
        names["output.weight"] = "lm_head.weight"
    return names


def hf_config(config: ModelConfig, *, max_seq_len: int, bos_id: int | None, eos_id: int) -> dict[str, Any]:
    """The contents of config.json for ``LlamaForCausalLM``."""
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rope_theta}
    if config.rope_scaling is not None:
        rope |= {
            "rope_type": "llama3",
            "factor": config.rope_scaling.factor,
            "low_freq_factor": config.rope_scaling.low_freq_factor,
            "high_freq_factor": config.rope_scaling.high_freq_factor,
            "original_max_position_embeddings": config.rope_scaling.original_max_seq_len,
        }
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": config.dim,
        "intermediate_size": config.ffn_dim,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kv_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": max_seq_len,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": rope if config.rope_scaling is not None else None,
        "rope_parameters": rope,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": config.tied_embeddings,
        "initializer_range": config.init_std,
        "bos_token_id": bos_id,
        "eos_token_id": eos_id,
        "torch_dtype": "float32",
        "dtype": "float32",
    }


def read_hf_config(folder: Path) -> dict[str, Any]:
    """The options of :class:`ModelConfig` that ``folder``'s config.json fixes.

    Raises:
        DataError: there is no readable config.json.
        UsageError: it describes another architecture.
    """
    path = folder / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"checkpoint.init_from (hf:{folder}) needs a readable config.json: {error}",
            hint="give the folder that transformers' save_pretrained wrote",
        ) from None
    kind = raw.get("model_type") if isinstance(raw, dict) else None
    if kind != "llama":
        raise UsageError(
            f"checkpoint.init_from (hf:{folder}): its config.json describes {kind!r}; only 'llama' is known"
        )
    rope = raw.get("rope_parameters") or {}
    heads = raw["num_attention_heads"]
    return {
        "dim": raw["hidden_size"],
        "ffn_dim": raw["intermediate_size"],
        "n_layers": raw["num_hidden_layers"],
        "n_heads": heads,
        "n_kv_heads": raw.get("num_key_value_heads", heads),
        "vocab_size": raw["vocab_size"],
        "norm_eps": raw.get("rms_norm_eps", 1e-6),
        "rope_theta": raw.get("rope_theta", rope.get("rope_theta", 10000.0)),
        "rope_scaling": _read_rope_scaling(raw.get("rope_scaling") or rope),
        "tied_embeddings": raw.get("tie_word_embeddings", False),
    }


def _read_rope_scaling(raw: dict[str, Any]) -> dict[str, Any] | None:
    kind = raw.get("rope_type", raw.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise UsageError(f"rope scaling of type {kind!r} is not supported; only 'llama3' is")
    return {
        "factor": raw["factor"],
        "low_freq_factor": raw["low_freq_factor"],
        "high_freq_factor": raw["high_freq_factor"],
        "original_max_seq_len": raw["original_max_position_embeddings"],
    }
