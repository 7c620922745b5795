"""Rules about datasets, files and packages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from glob import glob
from importlib.util import find_spec
from pathlib import Path

from titan_pretrain.config.near_miss import closest
from titan_pretrain.config.rules import Findings, World, broken, rule, start_rule
from titan_pretrain.config.sections import DataConfig, TrainConfig

FILE_KINDS = ("text", "jsonl", "parquet")
HUB_KINDS = ("hf", "c4")
KINDS = ("python-stdlib", *FILE_KINDS, *HUB_KINDS)
FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
DATA = ("data", "validation.data")


def _datasets(config: TrainConfig) -> Iterator[tuple[str, DataConfig]]:
    yield "data", config.data
    if config.validation.data is not None:
        yield "validation.data", config.validation.data


def _reads(*names: str) -> tuple[str, ...]:
    return tuple(f"{prefix}.{name}" for prefix in DATA for name in names)


@rule(*_reads("dataset"))
def dataset_is_known(config: TrainConfig) -> Findings:
    """One of ours, or a function of the user's."""
    for prefix, data in _datasets(config):
        if data.dataset not in KINDS and not FUNCTION.fullmatch(data.dataset):
            near = closest(data.dataset, KINDS)
            way_out = f'did you mean "{near}"?' if near else 'your own dataset is "module:function"'
            quoted = ", ".join(f'"{kind}"' for kind in KINDS)
            yield broken(config, f"{prefix}.dataset", f"must be one of {quoted} or module:function", way_out)


@rule(*_reads("path", "dataset"))
def path_suits_dataset(config: TrainConfig) -> Findings:
    """Files where files are read, none where they would be ignored."""
    for prefix, data in _datasets(config):
        option, kind = f"{prefix}.path", data.dataset
        if kind in (*FILE_KINDS, "hf") and not data.path:
            what = "a local folder or a name on the hub" if kind == "hf" else "files, folders or globs"
            way_out = f'give {what}: {option} = "..."'
            yield broken(config, option, f'is required by {prefix}.dataset "{kind}"', way_out)
        elif kind == "hf" and len(data.path) > 1:
            yield broken(config, option, f'must be one name with {prefix}.dataset "{kind}"', "keep one")
        elif data.path and (kind == "python-stdlib" or FUNCTION.fullmatch(kind)):
            way_out = 'for files use dataset "text", "jsonl" or "parquet"'
            yield broken(config, option, f'has no effect with {prefix}.dataset "{kind}"', way_out)


@rule(*_reads("subset", "dataset"))
def subset_suits_dataset(config: TrainConfig) -> Findings:
    """Only Hugging Face datasets have subsets."""
    for prefix, data in _datasets(config):
        if data.subset is not None and data.dataset not in HUB_KINDS:
            must = f'has no effect with {prefix}.dataset "{data.dataset}"'
            yield broken(config, f"{prefix}.subset", must, "leave it out")


@rule("validation.data", "validation.every")
def validation_data_is_used(config: TrainConfig) -> Findings:
    """A dataset that is never read is a forgotten switch."""
    if config.validation.data is not None and config.validation.every == 0:
        must = "must be at least 1 when [validation.data] is given"
        yield broken(config, "validation.every", must, "set it, or leave out [validation.data]")


@rule("checkpoint.init_from")
def init_from_is_a_folder(config: TrainConfig) -> Findings:
    """``hf:DIR`` or a folder; no web addresses, no other schemes."""
    value = config.checkpoint.init_from
    if value is None:
        return
    scheme, colon, rest = value.partition(":")
    if colon and (scheme != "hf" or not rest.strip() or rest.startswith("//")):
        way_out = "download the folder first" if "//" in rest else 'such as "hf:models/llama"'
        yield broken(config, "checkpoint.init_from", 'must be "hf:DIR" or a checkpoint folder', way_out)


@start_rule("tokenizer.path")
def tokenizer_exists(config: TrainConfig, _world: World) -> Findings:
    """Better now than after the processes have started."""
    path = config.tokenizer.path
    if path is not None and not Path(path).expanduser().exists():
        way_out = 'give a tokenizer.json or tokenizer.model, or "none" to train a BPE on the data'
        yield broken(config, "tokenizer.path", "no such file or folder", way_out)


@start_rule("checkpoint.init_from")
def init_from_exists(config: TrainConfig, _world: World) -> Findings:
    """Better now than after the processes have started."""
    value = config.checkpoint.init_from
    if value is None or any(init_from_is_a_folder(config)):
        return
    if not Path(value.removeprefix("hf:")).expanduser().is_dir():
        yield broken(config, "checkpoint.init_from", "no such folder")


@start_rule(*_reads("path", "dataset"))
def data_exists(config: TrainConfig, _world: World) -> Findings:
    """Each path names at least one file."""
    for prefix, data in _datasets(config):
        reads_files = data.dataset in (*FILE_KINDS, "c4")
        missing = [path for path in data.path if reads_files and not _names_a_file(path)]
        for path in missing:
            way_out = "relative paths start at the current folder"
            yield broken(config, f"{prefix}.path", f"no file matches {path}", way_out)


def _names_a_file(path: str) -> bool:
    whole = Path(path).expanduser()
    return whole.exists() or bool(glob(str(whole), recursive=True))  # noqa: PTH207 - absolute globs


@start_rule("metrics.wandb_project")
def wandb_is_installed(config: TrainConfig, _world: World) -> Findings:
    """Only some runs need it, so it is no dependency."""
    if config.metrics.wandb_project is not None and find_spec("wandb") is None:
        yield broken(config, "metrics.wandb_project", "needs the wandb package", "pip install wandb")


@start_rule(*_reads("dataset", "path"))
def datasets_is_installed(config: TrainConfig, _world: World) -> Findings:
    """Only some runs need it, so it is no dependency."""
    for prefix, data in _datasets(config):
        uses_hub = data.dataset == "hf" or (data.dataset == "c4" and not data.path)
        if uses_hub and find_spec("datasets") is None:
            yield broken(config, f"{prefix}.dataset", "needs the datasets package", "pip install datasets")
