from __future__ import annotations

import json
import os
import signal
import time
import weakref
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.distributed.fsdp import fully_shard

from titan_parallel.checkpoint import CheckpointReader, export_safetensors, load_safetensors
from titan_parallel.errors import CheckpointWriteError
from titan_parallel.testing import run_ranks


def test_one_file_without_an_index(lab, exported):
    assert [path.name for path in exported.iterdir()] == ["model.safetensors"]
    model = lab.model(seed=1)
    loaded = load_safetensors(exported, model, lab.MAPPING)
    assert (sorted(loaded.names), loaded.absent, loaded.notes) == (sorted(lab.MAPPING), [], [])
    lab.assert_equal(lab.state(model), lab.state(lab.model()))


def test_shards_and_index(lab, tmp_path):
    out = export_safetensors(
        lab.loaders(lab.model()), tmp_path / "hf", max_shard_bytes=400, metadata={"by": "me"}
    )
    index = json.loads((out / "model.safetensors.index.json").read_text())
    tensors = lab.model().state_dict().values()
    assert index["metadata"] == {
        "total_parameters": sum(t.numel() for t in tensors),
        "total_size": sum(t.nbytes for t in tensors),
    }
    assert set(index["weight_map"]) == set(lab.MAPPING.values())
    files = sorted(set(index["weight_map"].values()))
    assert files == [f"model-{i:05d}-of-{len(files):05d}.safetensors" for i in range(1, len(files) + 1)]
    assert len(files) > 2
    for name in files:
        content = load_file(out / name)
        assert {index["weight_map"][key] for key in content} == {name}
        assert sum(t.nbytes for t in content.values()) <= 400
    model = lab.model(seed=1)
    load_safetensors(out, model, lab.MAPPING)
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


def test_occupied_targets_are_refused(lab, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(CheckpointWriteError, match=r"full\) is not empty: name a new one"):
        export_safetensors(lab.loaders(lab.model()), tmp_path / "full")
    with pytest.raises(CheckpointWriteError, match=r"mine\) is a file"):
        export_safetensors(lab.loaders(lab.model()), tmp_path / "full" / "mine")
    (tmp_path / "empty").mkdir()
    export_safetensors(lab.loaders(lab.model()), tmp_path / "empty")
    assert (tmp_path / "empty" / "model.safetensors").exists()


def test_a_link_that_leads_nowhere_yet_gets_its_folder(lab, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    export_safetensors(lab.loaders(lab.model()), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "elsewhere" / "model.safetensors").exists()


def test_extras_are_published_with_the_weights(lab, tmp_path):
    def extras(folder: Path) -> None:
        assert not (tmp_path / "hf").exists()
        (folder / "config.json").write_text("{}")

    out = export_safetensors(lab.loaders(lab.model()), tmp_path / "hf", extras=extras)
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


def test_the_current_folder_is_filled_and_stays_itself(lab, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inode = tmp_path.stat().st_ino
    export_safetensors(lab.loaders(lab.model()), Path(), extras=lambda folder: (folder / "a.json").touch())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "model.safetensors"]
    assert tmp_path.stat().st_ino == inode
