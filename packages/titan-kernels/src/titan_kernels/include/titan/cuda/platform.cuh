// What NVRTC needs that the emulator provides in its own way: launches, integers, 16-bit floats.
#pragma once

#include <cuda_fp16.h>

namespace titan {

using i32 = int;
using i64 = long long;
using u32 = unsigned int;
using u64 = unsigned long long;
using half = __half;

// bfloat16 as a storage format: arithmetic is fp32, so it needs no hardware support.
struct alignas(2) bf16 {
  unsigned short bits;
};

// Stands for the source line of a memory access, which only the emulator keeps.
struct Site {
  __device__ __forceinline__ static constexpr Site here() { return {}; }
};

__device__ __forceinline__ float to_float(half x) { return __half2float(x); }
__device__ __forceinline__ half to_half(float x) { return __float2half_rn(x); }
__device__ __forceinline__ u32 float_bits(float x) { return __float_as_uint(x); }
__device__ __forceinline__ float bits_float(u32 x) { return __uint_as_float(x); }

}  // namespace titan

// A kernel with C linkage: name, largest block, parameter list, body.  Scalars arrive as int, long long
// or float; pointers as Global<T>.
#define TITAN_KERNEL(name, threads, params, ...) \
  extern "C" __global__ void __launch_bounds__(threads, 1) name params { __VA_ARGS__; }
