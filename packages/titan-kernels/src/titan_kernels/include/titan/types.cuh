// Element types: fp16, bf16 and fp32 in memory, fp32 in registers.
#pragma once

namespace titan {

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(bf16 x) { return bits_float(static_cast<u32>(x.bits) << 16); }

// Rounds to nearest even; a NaN stays a NaN.
__device__ __forceinline__ bf16 to_bf16(float x) {
  const u32 bits = float_bits(x);
  const u32 rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return bf16{static_cast<unsigned short>((x != x ? bits | 0x400000u : rounded) >> 16)};
}

template <class T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x) { return x; }
template <> __device__ __forceinline__ half from_float<half>(float x) { return to_half(x); }
template <> __device__ __forceinline__ bf16 from_float<bf16>(float x) { return to_bf16(x); }

// Elements of one 16-byte access.
template <class T> constexpr int WIDTH = 16 / static_cast<int>(sizeof(T));

}  // namespace titan

// The three instances every floating-point kernel has: DEFINE(suffix, type).
#define TITAN_FOR_EACH_FLOAT(DEFINE) \
  DEFINE(f16, titan::half)           \
  DEFINE(bf16, titan::bf16)          \
  DEFINE(f32, float)
