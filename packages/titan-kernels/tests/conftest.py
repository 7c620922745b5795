"""Shared by all tests of the package."""

import os

import pytest
import torch

# Before triton is imported: on a CPU its kernels run in its interpreter.
if os.environ.get("TITAN_TEST_DEVICE", "cpu") == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(autouse=True)
def _poisoned_memory():
    """torch.empty gives NaN and the largest integers, so that nothing passes by luck."""
    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(before[0])
    torch.utils.deterministic.fill_uninitialized_memory = before[1]
