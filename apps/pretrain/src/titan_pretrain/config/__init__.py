"""Configs: sections of options, TOML files and presets, overrides, and rules checked all at once.

from titan_pretrain.config import load_config
loaded = load_config("llama3_debug", overrides=["training.steps=20"])
loaded.config.training.steps, loaded.sources["training.steps"]
"""

from titan_pretrain.config.load import LoadedConfig, load_config
from titan_pretrain.config.rules import World
from titan_pretrain.config.sections import TrainConfig

__all__ = ["LoadedConfig", "TrainConfig", "World", "load_config"]
