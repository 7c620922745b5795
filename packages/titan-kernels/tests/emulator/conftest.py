"""Runs the test kernels beside this file."""

from pathlib import Path

import pytest

from titan_kernels.emulator import emulated

KERNELS = Path(__file__).parent / "kernels"


class TestKernels:
    """The kernels of one file in ``kernels/``."""

    __test__ = False

    def __init__(self, file):
        self.path = KERNELS / file
        self.source = self.path.read_text().splitlines()

    def __call__(self, kernel, args, *, grid=1, block=32, shared=0, **options):
        """Launches a kernel and returns the report."""
        grid = (grid, 1, 1) if isinstance(grid, int) else grid
        block = (block, 1, 1) if isinstance(block, int) else block
        with emulated(**options) as session:
            return session.run(self.path, kernel, grid, block, args, shared)

    def line(self, mark):
        """The line that a comment ``// mark`` is in."""
        found = [
            n for n, text in enumerate(self.source, 1) if mark in (m.strip() for m in text.split("//")[1:])
        ]
        assert len(found) == 1, f"{mark}: {found}"
        return found[0]


@pytest.fixture(scope="session")
def memory_bugs():
    return TestKernels("memory_bugs.cu")


@pytest.fixture(scope="session")
def order_bugs():
    return TestKernels("order_bugs.cu")


@pytest.fixture(scope="session")
def counting():
    return TestKernels("counting.cu")


@pytest.fixture(scope="session")
def warps():
    return TestKernels("warps.cu")


@pytest.fixture(scope="session")
def numerics():
    return TestKernels("numerics.cu")


@pytest.fixture(scope="session")
def matrices():
    return TestKernels("matrices.cu")


@pytest.fixture(scope="session")
def rows():
    return TestKernels("rows.cu")
