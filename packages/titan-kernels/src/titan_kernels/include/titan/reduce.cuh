// Reductions over a warp or a block, deterministic: the order depends on nothing but the geometry.
#pragma once

namespace titan {

struct Sum {
  __device__ __forceinline__ static float identity() { return 0.0f; }
  __device__ __forceinline__ static float combine(float a, float b) { return a + b; }
};

// Propagates NaN as torch.amax does.
struct Max {
  __device__ __forceinline__ static float identity() { return bits_float(0xff800000u); }
  __device__ __forceinline__ static float combine(float a, float b) {
    return a > b || a != a ? a : b;
  }
};

constexpr u32 FULL_MASK = 0xffffffffu;

// Every lane gets the result.
template <class Operation>
__device__ __forceinline__ float warp_reduce(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) x = Operation::combine(x, __shfl_xor_sync(FULL_MASK, x, offset));
  return x;
}

// Every thread gets the result.  blockDim.x is a multiple of 32; `scratch` holds 32 floats and is free
// for the next call when this one returns.
template <class Operation>
__device__ __forceinline__ float block_reduce(float x, Shared<float> scratch) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  x = warp_reduce<Operation>(x);
  if (warps == 1) return x;
  if (lane == 0) scratch.store(warp, x);
  __syncthreads();
  x = warp_reduce<Operation>(lane < warps ? scratch.load(lane) : Operation::identity());
  __syncthreads();
  return x;
}

}  // namespace titan
