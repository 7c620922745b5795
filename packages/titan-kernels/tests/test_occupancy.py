from __future__ import annotations

import itertools
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from titan_kernels.images import KernelInfo
from titan_kernels.occupancy import occupancy

# NVIDIA's own rules, from the header that comes with CUDA; reads cases from stdin.
_PROGRAM = """
#include <cstddef>
#include <cstdio>
#include <algorithm>
using std::min; using std::max;
#include <cuda_occupancy.h>
int main() {
  int minor, registers, fixed, block, dynamic;
  while (std::scanf("%d %d %d %d %d", &minor, &registers, &fixed, &block, &dynamic) == 5) {
    cudaOccDeviceProp device;
    device.computeMajor = 7;
    device.computeMinor = minor;
    device.maxThreadsPerBlock = 1024;
    device.maxThreadsPerMultiprocessor = minor ? 1024 : 2048;
    device.regsPerBlock = device.regsPerMultiprocessor = 65536;
    device.warpSize = 32;
    device.sharedMemPerBlock = 48 * 1024;
    device.sharedMemPerMultiprocessor = device.sharedMemPerBlockOptin = (minor ? 64 : 96) * 1024;
    device.reservedSharedMemPerBlock = 0;
    device.numSms = 72;
    cudaOccFuncAttributes function;
    function.maxThreadsPerBlock = 1024;
    function.numRegs = registers;
    function.sharedSizeBytes = fixed;
    function.partitionedGCConfig = PARTITIONED_GC_OFF;
    function.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    function.maxDynamicSharedSizeBytes = dynamic;
    function.numBlockBarriers = 1;
    cudaOccDeviceState state;
    cudaOccResult result;
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &function, &state, block, dynamic))
      return 1;
    std::printf("%d\\n", result.activeBlocksPerMultiprocessor);
  }
}
"""


def kernel(registers: int, static_shared: int = 0, max_threads: int = 1024) -> KernelInfo:
    return KernelInfo((), max_threads, registers, 0, 0, 0, static_shared, 0, {}, {}, ())


@pytest.mark.parametrize(
    ("capability", "registers", "block", "shared", "blocks", "fraction", "limiter"),
    [
        ((7, 5), 64, 256, 0, 4, 1.0, "warps"),
        ((7, 0), 128, 256, 0, 2, 0.25, "registers"),
        ((7, 0), 40, 256, 0, 6, 0.75, "registers"),
        ((7, 5), 32, 32, 0, 16, 0.5, "blocks"),
        ((7, 5), 32, 128, 33 * 1024, 1, 0.125, "shared"),
        ((7, 5), 32, 128, 64 * 1024 + 1, 0, 0.0, "shared"),
    ],
)
def test_examples(
    capability: tuple[int, int],
    registers: int,
    block: int,
    shared: int,
    blocks: int,
    fraction: float,
    limiter: str,
) -> None:
    found = occupancy(kernel(registers), block, shared, capability)
    assert (found.blocks, found.fraction, found.limiter) == (blocks, fraction, limiter)
    assert found.warps == blocks * -(-block // 32)


@pytest.mark.parametrize("capability", [(7, 0), (7, 5)])
def test_agrees_with_nvidias_header(tmp_path: Path, capability: tuple[int, int]) -> None:
    pytest.importorskip("nvidia.cuda_runtime", reason="needs the dependency group kernel-build")
    source, program = tmp_path / "program.cpp", tmp_path / "program"
    source.write_text(_PROGRAM)
    include = Path(find_spec("nvidia.cuda_runtime").submodule_search_locations[0]) / "include"  # type: ignore
    subprocess.run(["c++", "-w", f"-I{include}", "-o", str(program), str(source)], check=True)
    registers = (16, 24, 32, 33, 40, 48, 64, 65, 80, 96, 127, 128, 168, 200, 255)
    cases = list(
        itertools.product(registers, (0, 100, 8192), (32, 96, 128, 160, 256, 512, 1024), (0, 1, 20000, 50000))
    )
    lines = [f"{capability[1]} {count} {fixed} {block} {dynamic}" for count, fixed, block, dynamic in cases]
    done = subprocess.run([str(program)], input="\n".join(lines), capture_output=True, text=True, check=True)
    expected = [int(line) for line in done.stdout.split()]
    found = [occupancy(kernel(c, f), b, d, capability).blocks for c, f, b, d in cases]
    assert len(expected) == len(cases)
    assert found == expected


def test_mistakes() -> None:
    with pytest.raises(ValueError, match=r"capability \(8, 0\) is unknown"):
        occupancy(kernel(32), 128, 0, (8, 0))
    with pytest.raises(ValueError, match=r"block \(512\) must lie between 1 and 256"):
        occupancy(kernel(32, max_threads=256), 512, 0, (7, 5))
