import pytest
import torch
from torch import nn


class Block(nn.Linear):
    """A residual block."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(super().forward(x))


class Tiny(nn.Module):
    """Two blocks of odd widths, so that shards are uneven, in the manner of a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 10)
        self.layers = nn.ModuleDict({str(i): Block(10, 10) for i in range(2)})
        self.head = nn.Linear(10, 7, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers.values():
            x = layer(x)
        return self.head(x)


@pytest.fixture
def tiny_model():
    """A function that builds the same small model each time."""

    def build() -> Tiny:
        torch.manual_seed(0)
        return Tiny()

    return build
