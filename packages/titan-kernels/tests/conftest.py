"""Shared by all tests of the package."""

import os
from pathlib import Path

import pytest
import torch

# Before triton is imported: on a CPU its kernels run in its interpreter.
if os.environ.get("TITAN_TEST_DEVICE", "cpu") == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"


# What the kernels and the emulator compute does not depend on how the package was installed, so these
# stand for all in the session that tests the wheel alone; see "slow" in pyproject.toml.
QUICK = ("test_every_op.py", "test_rms_norm.py", "test_session.py")
TESTS = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if {TESTS / "ops", TESTS / "emulator"} & set(item.path.parents) and item.path.name not in QUICK:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def _poisoned_memory():
    """torch.empty gives NaN and the largest integers, so that nothing passes by luck."""
    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(before[0])
    torch.utils.deterministic.fill_uninitialized_memory = before[1]
