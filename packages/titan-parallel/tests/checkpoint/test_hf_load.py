from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from titan_parallel.checkpoint import export_safetensors, hf_load, load_safetensors
from titan_parallel.errors import (
    CheckpointCorruptError,
    CheckpointMismatchError,
    CheckpointNotFoundError,
)
from titan_parallel.testing import run_ranks


@pytest.mark.parametrize("mesh", [(1, 4), (2, 2)])
def test_load_into_fsdp_ranks_is_bit_equal(lab, tmp_path, mesh):
    out = export_safetensors(lab.loaders(lab.model()), tmp_path / "hf", max_shard_bytes=400)
    wanted = lab.state(lab.model())

    def load():
        model = lab.model(seed=1, mesh=mesh)
        load_safetensors(out, model, lab.MAPPING)
        return lab.state(model)

    for state in run_ranks(4, load):
        lab.assert_equal(state, wanted)


class _Spy:
    """A safetensors file that counts the elements read from it."""

    def __init__(self, file: Path, framework: str) -> None:
        self._file = safe_open(file, framework=framework)
        self.read = 0

    def __enter__(self) -> _Spy:
        return self

    def __exit__(self, *_: object) -> None:
        _Spy.last = self

    def keys(self) -> list[str]:
        return self._file.keys()

    def get_slice(self, name: str) -> _Spy:
        self._slice = self._file.get_slice(name)
        return self

    def get_shape(self) -> list[int]:
        return self._slice.get_shape()

    def get_dtype(self) -> str:
        return self._slice.get_dtype()

    def __getitem__(self, part: tuple[slice, ...]) -> torch.Tensor:
        value = self._slice[part]
        self.read += value.numel()
        return value


@pytest.mark.parametrize(
    "placements",
    [(Shard(0), Shard(1)), (Shard(1), Shard(1)), (Replicate(), Shard(1)), (Shard(0), Replicate())],
    ids=str,
)
def test_any_sharding_reads_only_its_slices(tmp_path, monkeypatch, placements):
    weight = torch.arange(13 * 11.0).reshape(13, 11)
    save_file({"w": weight}, tmp_path / "model.safetensors")
    monkeypatch.setattr(hf_load, "safe_open", _Spy)

    def load() -> tuple[int, int]:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        module = nn.Module()
        module.w = nn.Parameter(distribute_tensor(torch.zeros(13, 11), mesh, placements))
        load_safetensors(tmp_path, module, {"w": "w"})
        assert torch.equal(module.w.full_tensor(), weight)
        return module.w.to_local().numel(), _Spy.last.read

    sizes = run_ranks(4, load)
    assert [read for _, read in sizes] == [own for own, _ in sizes]
    assert max(own for own, _ in sizes) < 13 * 11


def test_missing_unexpected_and_shape_in_words(lab, exported):
    content = load_file(exported / "model.safetensors")
    content["extra"] = torch.ones(1)
    content["lm_head.weight"] = torch.ones(3, 5)
    del content["model.embed.weight"]
    save_file(content, exported / "model.safetensors")
    model = lab.model(seed=1)
    before = lab.state(model)
    with pytest.raises(CheckpointMismatchError) as caught:
        load_safetensors(exported, model, lab.MAPPING)
    text = str(caught.value)
    assert text.startswith(f"weights of another model ({exported})")
    assert "1 missing (embedding.weight)" in text
    assert "1 unexpected (extra)" in text
    assert "1 of another shape (head.weight: saved [3, 5], model [3, 6])" in text
    lab.assert_equal(lab.state(model), before)


def test_tied_and_ignored_names(lab, exported):
    content = load_file(exported / "model.safetensors")
    del content["lm_head.weight"]
    content["model.layers.0.rotary.inv_freq"] = torch.ones(1)
    save_file(content, exported / "model.safetensors")
    model = lab.model(seed=1)
    before = model.head.weight.clone()
    options = {"may_be_absent": {"head.weight", "seen"}, "ignore": ["*.inv_freq"]}
    loaded = load_safetensors(exported, model, lab.MAPPING, **options)
    assert loaded.absent == ["head.weight"]
    assert torch.equal(model.head.weight, before)
    assert torch.equal(model.embedding.weight, lab.model().embedding.weight)


def test_one_name_may_fill_two_parameters(tmp_path):
    save_file({"shared": torch.arange(6.0).reshape(2, 3)}, tmp_path / "model.safetensors")
    model = nn.ModuleDict({"a": nn.Linear(3, 2, bias=False), "b": nn.Linear(3, 2, bias=False)})
    load_safetensors(tmp_path, model, {"a.weight": "shared", "b.weight": "shared"})
    assert torch.equal(model["a"].weight, model["b"].weight)


def test_casts_are_noted_and_overflow_is_an_error(tmp_path):
    save_file({"w": torch.tensor([[1e5, 1.0]]).bfloat16()}, tmp_path / "model.safetensors")
    model = nn.Linear(2, 1, bias=False)
    loaded = load_safetensors(tmp_path, model, {"weight": "w"})
    assert loaded.notes == ["1 tensors stored as bfloat16 are loaded as float32"]
    for options in ({"dtype": torch.float16}, {}):
        target = nn.Linear(2, 1, bias=False).to(torch.float32 if options else torch.float16)
        with pytest.raises(CheckpointMismatchError, match="too large for the parameter: weight as float16"):
            load_safetensors(tmp_path, target, {"weight": "w"}, **options)


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_weights_that_are_not_finite_are_named_once_with_their_file(lab, tmp_path, value):
    out = export_safetensors(lab.loaders(lab.model()), tmp_path / "hf")
    content = load_file(out / "model.safetensors")
    content["model.embed.weight"][0, 0] = value
    content["model.embed.weight"][12, 5] = value
    content["model.layers.1.part0.bias"][0] = value
    save_file(content, out / "model.safetensors")

    def load() -> str:
        with pytest.raises(CheckpointCorruptError) as caught:
            load_safetensors(out, lab.model(mesh=(1, 2)), lab.MAPPING)
        return str(caught.value)

    for text in run_ranks(2, load):
        names = text.partition("infinity): ")[2].partition(";")[0].split(", ")
        wanted = ("model.embed.weight", "model.layers.1.part0.bias")
        assert sorted(names) == [f"{name} in model.safetensors" for name in wanted]
        assert "take an earlier checkpoint" in text


def test_rounding_to_a_dtype(tmp_path):
    save_file({"w": torch.tensor([[1.0001]])}, tmp_path / "model.safetensors")
    model = nn.Linear(1, 1, bias=False)
    load_safetensors(tmp_path, model, {"weight": "w"}, dtype=torch.bfloat16)
    assert model.weight.item() == 1.0


def test_folders_that_hold_no_safetensors(lab, tmp_path):
    with pytest.raises(CheckpointNotFoundError, match="doesn't exist"):
        load_safetensors(tmp_path / "nowhere", lab.model(), lab.MAPPING)
    with pytest.raises(CheckpointNotFoundError, match="has no safetensors files"):
        load_safetensors(tmp_path, lab.model(), lab.MAPPING)
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(
        CheckpointNotFoundError, match=r"only pickles \(pytorch_model.bin\), .*save_pretrained"
    ):
        load_safetensors(tmp_path, lab.model(), lab.MAPPING)


def test_damaged_folders(lab, tmp_path):
    out = export_safetensors(lab.loaders(lab.model()), tmp_path / "hf", max_shard_bytes=400)
    second = next(out.glob("model-00002*"))
    os.truncate(second, second.stat().st_size - 3)
    with pytest.raises(CheckpointCorruptError, match=f"{second.name} can't be read as safetensors"):
        load_safetensors(out, lab.model(), lab.MAPPING)
    second.unlink()
    with pytest.raises(CheckpointCorruptError, match=f"{second.name} is missing"):
        load_safetensors(out, lab.model(), lab.MAPPING)
    (out / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(CheckpointCorruptError, match=r"index\.json is damaged"):
        load_safetensors(out, lab.model(), lab.MAPPING)
