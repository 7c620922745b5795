"""A small network with uneven dimensions, and what tests do with it on any number of ranks."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from titan_parallel.checkpoint import CheckpointManager, export_safetensors

torch.set_num_threads(1)  # ranks are forks of this process


class Net(nn.Module):
    """13, 7 and 3 divide by no number of ranks; 3 rows on 4 ranks leave one without any."""

    def __init__(self, hidden: int = 7) -> None:
        super().__init__()
        self.embedding = nn.Embedding(13, 6)
        self.layers = nn.ModuleList(
            [nn.Sequential(nn.Linear(6, hidden), nn.Tanh(), nn.Linear(hidden, 6)) for _ in range(2)]
        )
        self.head = nn.Linear(6, 3, bias=False)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


class Lab:
    """Builds, trains and compares networks."""

    Net = Net
    # Names in a safetensors folder by the network's names.
    MAPPING: ClassVar[dict[str, str]] = {
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

    def loaders(self, model: nn.Module) -> list[tuple[str, Callable[[], Tensor]]]:
        """What `export_safetensors` takes."""
        state = model.state_dict()
        return [(self.MAPPING[name], lambda tensor=tensor: tensor) for name, tensor in state.items()]

    def model(self, *, seed: int = 0, mesh: tuple[int, int] | None = None, hidden: int = 7) -> Net:
        """A network; on ``mesh`` (dp_replicate, dp_shard) it is sharded with FSDP2."""
        torch.manual_seed(seed)
        model = Net(hidden)
        if mesh is not None:
            device_mesh = init_device_mesh("cpu", mesh, mesh_dim_names=("dp_replicate", "dp_shard"))
            for layer in model.layers:
                fully_shard(layer, mesh=device_mesh)
            fully_shard(model, mesh=device_mesh)
        return model

    def optimizer(self, model: nn.Module, **options: Any) -> torch.optim.AdamW:
        decayed = [p for p in model.parameters() if p.dim() > 1]
        others = [p for p in model.parameters() if p.dim() <= 1]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95), **options)

    def train(self, model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
        """Every rank sees the same data, so any mesh computes (nearly) the same."""
        for step in range(steps):
            tokens = (torch.arange(12).reshape(2, 6) * (step + 3)) % 13
            model(tokens).float().pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            model.seen += 1

    def state(self, model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> dict[str, Tensor]:
        """Full copies of all parameters, buffers and optimizer state."""
        found = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
        if optimizer is not None:
            names = {p: name for name, p in model.named_parameters()}
            for parameter, entries in optimizer.state.items():
                found |= {f"optim.{names[parameter]}.{key}": value for key, value in entries.items()}
        return {name: self.full(tensor) for name, tensor in found.items()}

    def full(self, tensor: Tensor) -> Tensor:
        tensor = tensor.detach()
        return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).clone()

    def assert_equal(self, got: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
        """Bit for bit."""
        assert got.keys() == wanted.keys()
        different = [name for name in wanted if not torch.equal(got[name], wanted[name])]
        assert not different

    def save(self, folder: Path, step: int, model: nn.Module, optimizer: Any = None, keep: int = 2) -> Path:
        with CheckpointManager(folder, keep=keep) as manager:
            return manager.save(
                step, model=model, optimizer=optimizer, trainer={"step": step}, per_rank={"rank": rank()}
            )

    def trained(self, folder: Path, steps: int = 3, mesh: tuple[int, int] | None = None) -> dict[str, Tensor]:
        """Train a network, save it as ``step-<steps>`` and return its state."""
        model = self.model(mesh=mesh)
        optimizer = self.optimizer(model)
        self.train(model, optimizer, steps)
        self.save(folder, steps, model, optimizer)
        return self.state(model, optimizer)


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


@pytest.fixture(scope="session")
def lab() -> Lab:
    return Lab()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture
def exported(lab: Lab, tmp_path: Path) -> Path:
    """A safetensors folder of the network."""
    return export_safetensors(lab.loaders(lab.model()), tmp_path / "hf")


@contextlib.contextmanager
def _mounted(path: Path, options: str) -> Iterator[Path]:
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user can't mount a tmpfs; the RLIMIT_FSIZE tests cover full disks")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one mebibyte."""
    with _mounted(tmp_path / "disk", "size=1m") as path:
        yield path
