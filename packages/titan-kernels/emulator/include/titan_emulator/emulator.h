// The SIMT emulator: everything that CUDA and titan/cuda/*.cuh provide to a kernel, for a host compiler.
//
// One fiber per CUDA thread; blocks run one after the other.  See docs/emulator.md.  Kernels compile
// against the headers of this directory and are linked with runtime/runtime.cpp.
#pragma once

#include <titan_emulator/device_math.h>
#include <titan_emulator/global_memory.h>
#include <titan_emulator/half2.h>
#include <titan_emulator/platform.h>
#include <titan_emulator/registry.h>
#include <titan_emulator/shared_memory.h>
#include <titan_emulator/tensor_core.h>
#include <titan_emulator/warp.h>
