// Sums of columns: the second step of every gradient that is a sum over rows.
#pragma once

#include <titan/device.cuh>

namespace titan {

constexpr int COLUMN_SUM_THREADS = 256;

// out[c] = the sum of partial[0 .. count)[c] for n columns, in a fixed order.  A block serves 32 columns;
// its warps share the rows.
template <class P>
__device__ __forceinline__ void column_sum(Global<const float> partial, Global<P> out, int count, int n) {
  constexpr int WARPS = COLUMN_SUM_THREADS / 32;
  TITAN_SHARED(float, sums, COLUMN_SUM_THREADS);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
  float total = 0.0f;
  if (column < n)
    for (int row = warp; row < count; row += WARPS) total += partial.load(row * (i64)n + column);
  sums.store(threadIdx.x, total);
  __syncthreads();
  if (warp != 0 || column >= n) return;
  for (int w = 1; w < WARPS; ++w) total += sums.load(w * 32 + lane);
  out.store(column, from_float<P>(total));
}

}  // namespace titan
