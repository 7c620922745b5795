"""Checkpoints: sharded saves that are verified when read, and Hugging Face safetensors folders."""

from titan_parallel.checkpoint.hf import LoadedWeights, export_safetensors, load_safetensors
from titan_parallel.checkpoint.manager import CheckpointManager, Loaded
from titan_parallel.checkpoint.reader import CheckpointReader, TensorInfo, verify

__all__ = [
    "CheckpointManager",
    "CheckpointReader",
    "Loaded",
    "LoadedWeights",
    "TensorInfo",
    "export_safetensors",
    "load_safetensors",
    "verify",
]
