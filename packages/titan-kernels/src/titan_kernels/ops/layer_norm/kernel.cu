// Layer normalisation of rows, with an optional residual added first.
//
// A team holds a row in registers, so the second moment is summed about the mean.
#include <titan/column_sum.cuh>
#include <titan/columns.cuh>
#include <titan/device.cuh>

using namespace titan;

namespace {

template <class T, bool ALIGNED>
__device__ __forceinline__ void forward(Global<const T> x, Global<const T> residual, Parameter<T> weight,
                                        Parameter<T> bias, Global<T> y, Global<T> sum,
                                        Global<float> statistics, i64 rows, int n, int stride, float eps) {
  using L = Layout<T, ALIGNED>;
  TITAN_DYNAMIC_SHARED(float, shared);
  TITAN_SHARED(float, scratch, TEAM_SCRATCH);
  TeamReduce reduce(scratch);
  const auto weights = parameter<T, ALIGNED>(weight, shared, stride, 0, n, 1.0f);
  const auto biases = parameter<T, ALIGNED>(bias, shared, stride, 1, n, 0.0f);

  for (i64 first = blockIdx.x * static_cast<i64>(blockDim.y); first < rows; first += gridDim.x * blockDim.y) {
    const i64 row = first + threadIdx.y;
    const int count = row < rows ? n : 0;
    const typename L::In in(x + row * n, count), added(residual + row * n, count);
    const typename L::Out out(y + row * n, count), summed(sum + row * n, count);
    typename L::Vectors given, given_residual;
    L::fetch(in, given);
    if (residual) L::fetch(added, given_residual);
    float v[L::SLOTS][L::W], total = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < L::SLOTS; ++i) {
      const Slot s = L::slot(in, i);
      if (!ALIGNED && !s.exists) continue;
      in.load(s, given[i], v[i]);
      if (residual) {
        float r[L::W];
        added.load(s, given_residual[i], r);
        // Rounded as the stored sum is: the backward sees nothing else.
#pragma unroll
        for (int j = 0; j < L::W; ++j) v[i][j] = to_float(from_float<T>(v[i][j] + r[j]));
        if (s.exists) summed.store(s, v[i]);
      }
#pragma unroll
      for (int j = 0; j < L::W; ++j) total += v[i][j];
    }
    const float center = reduce.operator()<Sum>(total) / n;
#pragma unroll
    for (int i = 0; i < L::SLOTS; ++i) {
      const Slot s = L::slot(in, i);
      if (!ALIGNED && !s.exists) continue;
#pragma unroll
      for (int j = 0; j < L::W; ++j) {
        v[i][j] -= center;
        if (s.exists && in.has(s, j)) squares += v[i][j] * v[i][j];
      }
    }
    const float scale = rsqrtf(reduce.operator()<Sum>(squares) / n + eps);
    if (threadIdx.x == 0 && row < rows) statistics.template store_vec<2>(2 * row, {center, scale});
#pragma unroll
    for (int i = 0; i < L::SLOTS; ++i) {
      const Slot s = L::slot(in, i);
      if (!s.exists) continue;
#pragma unroll
      for (int j = 0; j < L::W; ++j)
        if (in.has(s, j))
          v[i][j] = v[i][j] * scale * weights.get(i, j, s.begin + j) + biases.get(i, j, s.begin + j);
      out.store(s, v[i]);
    }
  }
}

// Backward: with g = dy * weight and xhat = (x - mean) * rstd,
// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) + dsum; and per block the sums of dy * xhat and dy over
// its rows, which column_sum() adds up over the blocks.  Each may be absent.
template <class T, bool ALIGNED>
__device__ __forceinline__ void backward(Global<const T> dy, Global<const T> x, Parameter<T> weight,
                                         Global<const float> moments, Global<const T> dsum, Global<T> dx,
                                         Global<float> weight_sums, Global<float> bias_sums, i64 rows, int n,
                                         int stride) {
  using L = Layout<T, ALIGNED>;
  TITAN_DYNAMIC_SHARED(float, shared);
  TITAN_SHARED(float, scratch, TEAM_SCRATCH);
  TITAN_SHARED(float, passed_on, TeamStatistics<2>::SCRATCH);
  TeamReduce reduce(scratch);
  const auto weights = parameter<T, ALIGNED>(weight, shared, stride, 0, n, 1.0f);
  auto dweight = zero_sums<T, ALIGNED, 2>(shared, stride, 0), dbias = zero_sums<T, ALIGNED, 2>(shared, stride, 1);
  TeamStatistics<2> statistics(moments, rows, passed_on);
  __syncthreads();

  for (i64 first = blockIdx.x * static_cast<i64>(blockDim.y); first < rows; first += gridDim.x * blockDim.y) {
    const i64 row = first + threadIdx.y;
    const int count = row < rows ? n : 0;
    const typename L::In grad(dy + row * n, count), in(x + row * n, count), passed(dsum + row * n, count);
    const typename L::Out out(dx + row * n, count);
    const Vec<float, 2> mine = statistics.next();
    const float center = mine[0], scale = mine[1];
    typename L::Vectors given_grad, given_x;
    L::fetch(grad, given_grad);
    L::fetch(in, given_x);
    float g[L::SLOTS][L::W], xhat[L::SLOTS][L::W], dots[2] = {};
#pragma unroll
    for (int i = 0; i < L::SLOTS; ++i) {
      const Slot s = L::slot(in, i);
      if (!ALIGNED && !s.exists) continue;
      grad.load(s, given_grad[i], g[i]);
      in.load(s, given_x[i], xhat[i]);
#pragma unroll
      for (int j = 0; j < L::W; ++j) {
        if (!in.has(s, j)) continue;
        const int e = s.begin + j;
        xhat[i][j] = (xhat[i][j] - center) * scale;
        dweight.add(i, j, e, g[i][j] * xhat[i][j]);
        dbias.add(i, j, e, g[i][j]);
        g[i][j] *= weights.get(i, j, e);
        dots[0] += g[i][j];
        dots[1] += g[i][j] * xhat[i][j];
      }
    }
    reduce.operator()<Sum>(dots);
    // Rows shift against each other, so the next row's sums in shared memory belong to other threads.
    if (!ALIGNED) __syncthreads();
    if (!dx) continue;
#pragma unroll
    for (int i = 0; i < L::SLOTS; ++i) {
      const Slot s = L::slot(in, i);
      if (!s.exists) continue;
      float d[L::W] = {};
      if (dsum) passed.load(s, d);
#pragma unroll
      for (int j = 0; j < L::W; ++j)
        g[i][j] = scale * (g[i][j] - dots[0] / n - xhat[i][j] * (dots[1] / n)) + d[j];
      out.store(s, g[i]);
    }
  }
  write_sums<T, ALIGNED, 2>(dweight, shared, stride, 0, weight_sums, n);
  write_sums<T, ALIGNED, 2>(dbias, shared, stride, 1, bias_sums, n);
}

}  // namespace

#define FORWARD(t, T, rows_are, ALIGNED)                                                                   \
  TITAN_KERNEL(layer_norm_forward_##t##_##rows_are, TEAM_MAX_THREADS,                                      \
               (Global<const T> x, Global<const T> residual, Global<const T> weight,                       \
                Global<const float> wide_weight, Global<const T> bias, Global<const float> wide_bias,      \
                Global<T> y, Global<T> sum, Global<float> statistics, i64 rows, int n, int stride,         \
                float eps),                                                                                \
               forward<T, ALIGNED>(x, residual, {weight, wide_weight}, {bias, wide_bias}, y, sum,          \
                                   statistics, rows, n, stride, eps))
#define BACKWARD(t, T, rows_are, ALIGNED)                                                                  \
  TITAN_KERNEL(layer_norm_backward_##t##_##rows_are, TEAM_MAX_THREADS,                                     \
               (Global<const T> dy, Global<const T> x, Global<const T> weight,                             \
                Global<const float> wide_weight, Global<const float> statistics, Global<const T> dsum,     \
                Global<T> dx, Global<float> weight_sums, Global<float> bias_sums, i64 rows, int n,         \
                int stride),                                                                               \
               backward<T, ALIGNED>(dy, x, {weight, wide_weight}, statistics, dsum, dx, weight_sums,       \
                                    bias_sums, rows, n, stride))
#define KERNELS(t, T)              \
  FORWARD(t, T, aligned, true)     \
  FORWARD(t, T, shifted, false)    \
  BACKWARD(t, T, aligned, true)    \
  BACKWARD(t, T, shifted, false)
TITAN_FOR_EACH_FLOAT(KERNELS)

#define COLUMN_SUM(p, P)                                                           \
  TITAN_KERNEL(layer_norm_column_sum_##p, COLUMN_SUM_THREADS,                      \
               (Global<const float> partial, Global<P> out, int count, int n),     \
               column_sum(partial, out, count, n))
TITAN_FOR_EACH_FLOAT(COLUMN_SUM)
