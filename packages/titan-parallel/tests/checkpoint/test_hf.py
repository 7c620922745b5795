from __future__ import annotations

import json
import os
import signal
import time
import weakref
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from titan_parallel.checkpoint import CheckpointReader, export_safetensors, load_safetensors
from titan_parallel.errors import (
    CheckpointCorruptError,
    CheckpointMismatchError,
    CheckpointNotFoundError,
    CheckpointWriteError,
)
from titan_parallel.testing import run_ranks

MAPPING = {
    "embedding.weight": "model.embed.weight",
    "head.weight": "lm_head.weight",
    "seen": "seen",
    **{
        f"layers.{i}.{j}.{kind}": f"model.layers.{i}.part{j}.{kind}"
        for i in (0, 1)
        for j in (0, 2)
        for kind in ("weight", "bias")
    },
}


def _loaders(model: nn.Module):
    state = model.state_dict()
    return [(MAPPING[name], lambda tensor=tensor: tensor) for name, tensor in state.items()]


@pytest.fixture
def exported(lab, tmp_path) -> Path:
    return export_safetensors(_loaders(lab.model()), tmp_path / "hf")


def test_one_file_without_an_index(lab, exported):
    assert [path.name for path in exported.iterdir()] == ["model.safetensors"]
    model = lab.model(seed=1)
    loaded = load_safetensors(exported, model, MAPPING)
    assert (sorted(loaded.names), loaded.absent, loaded.notes) == (sorted(MAPPING), [], [])
    lab.assert_equal(lab.state(model), lab.state(lab.model()))


def test_shards_and_index(lab, tmp_path):
    out = export_safetensors(
        _loaders(lab.model()), tmp_path / "hf", max_shard_bytes=400, metadata={"by": "me"}
    )
    index = json.loads((out / "model.safetensors.index.json").read_text())
    tensors = lab.model().state_dict().values()
    assert index["metadata"] == {
        "total_parameters": sum(t.numel() for t in tensors),
        "total_size": sum(t.nbytes for t in tensors),
    }
    assert set(index["weight_map"]) == set(MAPPING.values())
    files = sorted(set(index["weight_map"].values()))
    assert files == [f"model-{i:05d}-of-{len(files):05d}.safetensors" for i in range(1, len(files) + 1)]
    assert len(files) > 2
    for name in files:
        content = load_file(out / name)
        assert {index["weight_map"][key] for key in content} == {name}
        assert sum(t.nbytes for t in content.values()) <= 400
    model = lab.model(seed=1)
    load_safetensors(out, model, MAPPING)
    lab.assert_equal(lab.state(model), lab.state(lab.model()))


def test_only_a_shard_is_in_memory(tmp_path):
    """Tensors of earlier shards are gone before later ones are read."""
    alive: list[weakref.ref] = []
    most = 0

    def read() -> torch.Tensor:
        nonlocal most
        most = max(most, sum(ref() is not None for ref in alive))
        tensor = torch.ones(100)
        alive.append(weakref.ref(tensor.untyped_storage()))
        return tensor

    export_safetensors([(f"t{i}", read) for i in range(12)], tmp_path / "hf", max_shard_bytes=1200)
    assert most <= 3


def test_views_are_exported_with_their_own_data_only(tmp_path):
    whole = torch.arange(12.0).reshape(3, 4)
    views = {"row": whole[1], "column": whole[:, 1], "whole": whole}
    out = export_safetensors([(n, lambda t=t: t) for n, t in views.items()], tmp_path / "hf")
    content = load_file(out / "model.safetensors")
    assert all(torch.equal(content[name], tensor) for name, tensor in views.items())


@pytest.mark.parametrize("mesh", [(1, 4), (2, 2)])
def test_load_into_fsdp_ranks_is_bit_equal(lab, tmp_path, mesh):
    out = export_safetensors(_loaders(lab.model()), tmp_path / "hf", max_shard_bytes=400)
    wanted = lab.state(lab.model())

    def load():
        model = lab.model(seed=1, mesh=mesh)
        load_safetensors(out, model, MAPPING)
        return lab.state(model)

    for state in run_ranks(4, load):
        lab.assert_equal(state, wanted)


def test_any_sharding_reads_only_its_slices(tmp_path, monkeypatch):
    weight = torch.arange(13 * 11.0).reshape(13, 11)
    save_file({"w": weight}, tmp_path / "model.safetensors")
    placements = [
        (Shard(0), Shard(1)),
        (Shard(1), Shard(1)),
        (Replicate(), Shard(1)),
        (Shard(0), Replicate()),
    ]

    def load(index: int) -> int:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        module = nn.Module()
        empty = torch.zeros(13, 11)
        module.w = nn.Parameter(distribute_tensor(empty, mesh, placements[index]))
        load_safetensors(tmp_path, module, {"w": "w"})
        assert isinstance(module.w, DTensor)
        assert torch.equal(module.w.full_tensor(), weight)
        return module.w.to_local().numel()

    for index in range(len(placements)):
        sizes = run_ranks(4, load, index)
        assert max(sizes) < 13 * 11


def test_missing_unexpected_and_shape_in_words(lab, exported):
    content = load_file(exported / "model.safetensors")
    content["extra"] = torch.ones(1)
    content["lm_head.weight"] = torch.ones(3, 5)
    del content["model.embed.weight"]
    save_file(content, exported / "model.safetensors")
    model = lab.model(seed=1)
    before = lab.state(model)
    with pytest.raises(CheckpointMismatchError) as caught:
        load_safetensors(exported, model, MAPPING)
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
    loaded = load_safetensors(exported, model, MAPPING, **options)
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


def test_rounding_to_a_dtype(tmp_path):
    save_file({"w": torch.tensor([[1.0001]])}, tmp_path / "model.safetensors")
    model = nn.Linear(1, 1, bias=False)
    load_safetensors(tmp_path, model, {"weight": "w"}, dtype=torch.bfloat16)
    assert model.weight.item() == 1.0


def test_folders_that_hold_no_safetensors(lab, tmp_path):
    with pytest.raises(CheckpointNotFoundError, match="doesn't exist"):
        load_safetensors(tmp_path / "nowhere", lab.model(), MAPPING)
    with pytest.raises(CheckpointNotFoundError, match="has no safetensors files"):
        load_safetensors(tmp_path, lab.model(), MAPPING)
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(
        CheckpointNotFoundError, match=r"only pickles \(pytorch_model.bin\), .*save_pretrained"
    ):
        load_safetensors(tmp_path, lab.model(), MAPPING)


def test_damaged_folders(lab, tmp_path):
    out = export_safetensors(_loaders(lab.model()), tmp_path / "hf", max_shard_bytes=400)
    second = next(out.glob("model-00002*"))
    os.truncate(second, second.stat().st_size - 3)
    with pytest.raises(CheckpointCorruptError, match=f"{second.name} can't be read as safetensors"):
        load_safetensors(out, lab.model(), MAPPING)
    second.unlink()
    with pytest.raises(CheckpointCorruptError, match=f"{second.name} is missing"):
        load_safetensors(out, lab.model(), MAPPING)
    (out / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(CheckpointCorruptError, match=r"index\.json is damaged"):
        load_safetensors(out, lab.model(), MAPPING)


def test_occupied_targets_are_refused(lab, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(CheckpointWriteError, match=r"full\) is not empty: name a new one"):
        export_safetensors(_loaders(lab.model()), tmp_path / "full")
    with pytest.raises(CheckpointWriteError, match=r"mine\) is a file"):
        export_safetensors(_loaders(lab.model()), tmp_path / "full" / "mine")
    (tmp_path / "empty").mkdir()
    export_safetensors(_loaders(lab.model()), tmp_path / "empty")
    assert (tmp_path / "empty" / "model.safetensors").exists()


def test_extras_are_published_with_the_weights(lab, tmp_path):
    def extras(folder: Path) -> None:
        assert not (tmp_path / "hf").exists()
        (folder / "config.json").write_text("{}")

    out = export_safetensors(_loaders(lab.model()), tmp_path / "hf", extras=extras)
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "model.safetensors"]


def test_failed_export_leaves_nothing(small_disk, tmp_path):
    loaders = [("a", lambda: torch.ones(10**6))]
    with pytest.raises(CheckpointWriteError, match=r"could not be written: .*No space left"):
        export_safetensors(loaders, small_disk / "hf")
    assert list(small_disk.iterdir()) == []
    with pytest.raises(ZeroDivisionError):
        export_safetensors([("a", lambda: torch.ones(1 // 0))], tmp_path / "hf")
    assert list(tmp_path.glob("*hf*")) == []


def test_killed_export_leaves_no_target_and_is_cleaned_up(tmp_path):
    out = tmp_path / "hf"
    pid = os.fork()
    if pid == 0:
        export_safetensors(
            [("a", lambda: torch.ones(1)), ("b", lambda: time.sleep(60))], out, max_shard_bytes=1
        )
        os._exit(0)
    while not list(tmp_path.glob(".hf.writing*")):
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert not out.exists()
    export_safetensors([("a", lambda: torch.ones(1))], out)
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_transformers_loads_an_export_of_a_sharded_checkpoint(lab, folder, tmp_path):
    """Checkpoint of two ranks -> reader -> shards of safetensors -> the same logits."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=67,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        tie_word_embeddings=False,
    )

    def build(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return transformers.LlamaForCausalLM(config)

    def save() -> None:
        model = build(0)
        for layer in model.model.layers:
            fully_shard(layer)
        fully_shard(model)
        lab.save(folder, 1, model)

    run_ranks(2, save)
    reader = CheckpointReader(folder / "step-00000001")
    loaders = [(i.name, lambda i=i: reader.read_tensor(i.name)) for i in reader.iterate_tensors()]
    out = export_safetensors(loaders, tmp_path / "hf", max_shard_bytes=20_000, extras=config.save_pretrained)
    assert len(list(out.glob("*.safetensors"))) > 1
    loaded = transformers.AutoModelForCausalLM.from_pretrained(out)
    tokens = torch.arange(30).reshape(2, 15)
    with torch.no_grad():
        assert torch.equal(loaded(tokens).logits, build(0)(tokens).logits)

    back = build(1)
    load_safetensors(out, back, {name: name for name in back.state_dict()})
    assert torch.equal(back(tokens).logits, build(0)(tokens).logits)

    again = tmp_path / "saved by transformers"
    build(2).save_pretrained(again, max_shard_size="20KB")
    load_safetensors(again, back, {name: name for name in back.state_dict()})
    assert torch.equal(back(tokens).logits, build(2)(tokens).logits)
