// Everything a kernel of this package includes.
//
// Kernels are written once and compiled twice: by NVRTC for the GPU, and by a host compiler against
// the SIMT emulator (TITAN_EMULATED).  Standard CUDA names mean the same in both: threadIdx, blockIdx,
// blockDim, gridDim, __syncthreads(), __syncwarp(), the full-mask __shfl_*_sync(), __ballot_sync(),
// __any_sync() and __all_sync(), and the fp32 math functions.  Memory is reached through Global<T> and
// Shared<T> only, so that the emulator sees every access.
#pragma once

#ifdef TITAN_EMULATED
#include <titan_emulator/emulator.h>
#else
#include <titan/cuda/platform.cuh>
#include <titan/cuda/memory.cuh>
#include <titan/cuda/tensor_core.cuh>
#endif

#include <titan/types.cuh>
#include <titan/reduce.cuh>
#include <titan/row.cuh>
