"""The build's own modules, and what they need: NVRTC from the dependency group kernel-build."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2]
sys.path.insert(0, str(PACKAGE / "build_tools"))

SOURCE = """
#include <titan/device.cuh>
#include "shared.h"
using namespace titan;
TITAN_KERNEL(scale, 128, (Global<const float> x, Global<float> y, i64 count, int step, float by), {
  for (i64 i = blockIdx.x * 128 + threadIdx.x; i < count; i += step) y.store(i, x.load(i) * by * SCALE);
})
TITAN_KERNEL(gather, 64, (Array<Global<const half>, 4> from, Array<i64, 4> counts, Global<half> to), {
  TITAN_SHARED(float, sums, 32);
  sums.store(threadIdx.x % 32, to_float(from[blockIdx.x].load(threadIdx.x)));
  __syncthreads();
  if (threadIdx.x < counts[blockIdx.x]) to.store(threadIdx.x, to_half(sums.load(31 - threadIdx.x % 32)));
})
"""


@pytest.fixture
def ops(tmp_path: Path) -> Path:
    """Two kernel units, ``first`` and ``second``."""
    pytest.importorskip("nvidia.cuda_nvrtc", reason="needs the dependency group kernel-build")
    for unit in ("first", "second"):
        folder = tmp_path / "ops" / unit
        folder.mkdir(parents=True)
        (folder / "kernel.cu").write_text(SOURCE)
        (folder / "shared.h").write_text("#pragma once\n#define SCALE 2.0f\n")
    return tmp_path / "ops"


@pytest.fixture
def include() -> Path:
    return PACKAGE / "src/titan_kernels/include"
