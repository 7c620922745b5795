// Root mean square normalisation of rows, with an optional residual added first.
//
// A block walks over rows with a stride of the whole grid, so the weight is read once per block and not
// once per row, and waits in shared memory.
#include <titan/column_sum.cuh>
#include <titan/device.cuh>

using namespace titan;

namespace {

template <class T, class P, int V, bool ONE_WARP>
__device__ __forceinline__ void forward(Global<const T> x, Global<const T> residual, Global<const P> weight,
                                        Global<T> y, Global<T> sum, Global<float> rstd, i64 rows, int n,
                                        int stride, float eps) {
  using In = Row<const T>;
  using Threads = Team<ONE_WARP>;
  constexpr int W = In::W;
  TITAN_DYNAMIC_SHARED(P, shared);
  TITAN_SHARED(float, scratch, 32);
  const TransposedRow<P, W> weights(shared, stride);
  if (weight) weights.fill(weight, n);
  __syncthreads();

  for (i64 row = Threads::first_row(); row < rows; row += Threads::row_stride()) {
    const In in(x + row * n, n), added(residual + row * n, n);
    const Row<T> out(y + row * n, n), summed(sum + row * n, n);
    float v[V + 1][W], squares = 0.0f;
#pragma unroll
    for (int i = 0; i <= V; ++i) {
      const Slot s = in.template slot<V>(i, Threads::rank(), Threads::size());
      if (!s.exists) continue;
      in.load(s, v[i]);
      if (residual) {
        float r[W];
        added.load(s, r);
        // Rounded as the stored sum is: the backward sees nothing else.
#pragma unroll
        for (int j = 0; j < W; ++j) v[i][j] = to_float(from_float<T>(v[i][j] + r[j]));
        summed.store(s, v[i]);
      }
#pragma unroll
      for (int j = 0; j < W; ++j) squares += v[i][j] * v[i][j];
    }
    const float scale = rsqrtf(Threads::template reduce<Sum>(squares, scratch) / n + eps);
    if (Threads::rank() == 0) rstd.store(row, scale);
#pragma unroll
    for (int i = 0; i <= V; ++i) {
      const Slot s = in.template slot<V>(i, Threads::rank(), Threads::size());
      if (!s.exists) continue;
#pragma unroll
      for (int j = 0; j < W; ++j) {
        v[i][j] *= scale;
        if (weight && in.has(s, j)) v[i][j] *= to_float(weights.load(s.begin + j));
      }
      out.store(s, v[i]);
    }
  }
}

// dx = rstd * (g - xhat * mean(g * xhat)) + dsum with g = dy * weight and xhat = x * rstd; and per block the
// sum of dy * xhat over its rows, which column_sum() adds up over the blocks.
template <class T, class P, int V, bool ONE_WARP>
__device__ __forceinline__ void backward(Global<const T> dy, Global<const T> x, Global<const P> weight,
                                         Global<const float> rstd, Global<const T> dsum, Global<T> dx,
                                         Global<float> partial, i64 rows, int n, int stride) {
  using In = Row<const T>;
  using Threads = Team<ONE_WARP>;
  constexpr int W = In::W;
  TITAN_DYNAMIC_SHARED(float, shared);
  TITAN_SHARED(float, scratch, 32);
  // One row of sums per team: teams of a block work on different rows at the same time.
  const TransposedRow<float, W> sums(shared + Threads::index() * W * stride, stride);
  const TransposedRow<P, W> weights((shared + Threads::teams() * W * stride).template as<P>(), stride);
  if (weight) {
    weights.fill(weight, n);
    for (int i = threadIdx.x; i < Threads::teams() * W * stride; i += blockDim.x) shared.store(i, 0.0f);
  }
  __syncthreads();

  for (i64 row = Threads::first_row(); row < rows; row += Threads::row_stride()) {
    const In grad(dy + row * n, n), in(x + row * n, n), passed(dsum + row * n, n);
    const Row<T> out(dx + row * n, n);
    const float scale = rstd.load(row);
    float g[V + 1][W], xhat[V + 1][W], dot = 0.0f;
#pragma unroll
    for (int i = 0; i <= V; ++i) {
      const Slot s = in.template slot<V>(i, Threads::rank(), Threads::size());
      if (!s.exists) continue;
      grad.load(s, g[i]);
      in.load(s, xhat[i]);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        xhat[i][j] *= scale;
        if (weight && in.has(s, j)) {
          sums.store(s.begin + j, sums.load(s.begin + j) + g[i][j] * xhat[i][j]);
          g[i][j] *= to_float(weights.load(s.begin + j));
        }
        dot += g[i][j] * xhat[i][j];
      }
    }
    const float mean = Threads::template reduce<Sum>(dot, scratch) / n;
    // Rows shift against each other, so the next row's sums belong to other threads.
    Threads::sync();
#pragma unroll
    for (int i = 0; i <= V; ++i) {
      const Slot s = in.template slot<V>(i, Threads::rank(), Threads::size());
      if (!s.exists) continue;
      float d[W] = {};
      if (dsum) passed.load(s, d);
#pragma unroll
      for (int j = 0; j < W; ++j) g[i][j] = scale * (g[i][j] - xhat[i][j] * mean) + d[j];
      out.store(s, g[i]);
    }
  }
  if (!weight) return;
  __syncthreads();
  for (int e = threadIdx.x; e < n; e += blockDim.x) {
    float total = 0.0f;
    for (int team = 0; team < Threads::teams(); ++team)
      total += TransposedRow<float, W>(shared + team * W * stride, stride).load(e);
    partial.store(blockIdx.x * static_cast<i64>(n) + e, total);
  }
}

}  // namespace

#define FORWARD(t, T, p, P, v, V, ONE_WARP)                                                              \
  TITAN_KERNEL(rms_norm_forward_##t##_##p##_##v, 512,                                                    \
               (Global<const T> x, Global<const T> residual, Global<const P> weight, Global<T> y,        \
                Global<T> sum, Global<float> rstd, i64 rows, int n, int stride, float eps),              \
               forward<T, P, V, ONE_WARP>(x, residual, weight, y, sum, rstd, rows, n, stride, eps))
#define BACKWARD(t, T, p, P, v, V, ONE_WARP)                                                             \
  TITAN_KERNEL(rms_norm_backward_##t##_##p##_##v, 512,                                                   \
               (Global<const T> dy, Global<const T> x, Global<const P> weight, Global<const float> rstd, \
                Global<const T> dsum, Global<T> dx, Global<float> partial, i64 rows, int n, int stride), \
               backward<T, P, V, ONE_WARP>(dy, x, weight, rstd, dsum, dx, partial, rows, n, stride))
#define KERNELS(t, T, p, P)            \
  FORWARD(t, T, p, P, warp, 2, true)   \
  FORWARD(t, T, p, P, v2, 2, false)    \
  FORWARD(t, T, p, P, v4, 4, false)    \
  BACKWARD(t, T, p, P, warp, 2, true)  \
  BACKWARD(t, T, p, P, v2, 2, false)   \
  BACKWARD(t, T, p, P, v4, 4, false)

KERNELS(f16, half, f16, half)
KERNELS(f16, half, f32, float)
KERNELS(bf16, bf16, bf16, bf16)
KERNELS(bf16, bf16, f32, float)
KERNELS(f32, float, f32, float)

#define COLUMN_SUM(p, P)                                                           \
  TITAN_KERNEL(rms_norm_column_sum_##p, COLUMN_SUM_THREADS,                        \
               (Global<const float> partial, Global<P> out, int count, int n),     \
               column_sum(partial, out, count, n))
TITAN_FOR_EACH_FLOAT(COLUMN_SUM)
