// Layer normalisation of rows, with an optional residual added first.
//
// A team holds a row in registers, so the second moment is summed about the mean.  Where rows are whole
// vectors (ALIGNED), a thread meets the same columns in every row and keeps their parameters and their
// sums of gradients in registers too; else these are in shared memory, where any thread finds them.
#include <titan/column_sum.cuh>
#include <titan/device.cuh>
#include <titan/team.cuh>

using namespace titan;

namespace {

constexpr int ELEMENTS = 16;  // of a row in a thread

// A weight or bias: in the dtype of x or in fp32, so one of the pointers is null; both where there is none.
template <class T>
struct Parameter {
  Global<const T> narrow;
  Global<const float> wide;

  __device__ __forceinline__ float load(int e, float absent) const {
    return narrow ? to_float(narrow.load(e)) : wide ? wide.load(e) : absent;
  }
};

template <class T, bool ALIGNED>
struct Layout {
  static constexpr int W = WIDTH<T>, V = ELEMENTS / W, SLOTS = ALIGNED ? V : V + 1;
  using In = Row<const T>;
  using Out = Row<T>;
  using SharedRow = TransposedRow<float, W>;

  __device__ __forceinline__ static Slot slot(const In& row, int i) {
    return row.template slot<V>(i, threadIdx.x, blockDim.x);
  }
};

__device__ __forceinline__ int thread_in_block() { return threadIdx.y * blockDim.x + threadIdx.x; }
__device__ __forceinline__ int threads_of_block() { return blockDim.x * blockDim.y; }

// Values of the thread's columns.  Row starts are multiples of 16 bytes, so slot i of thread r begins in
// column (i * team + r) * W.
template <class T>
class RegisterColumns {
  using L = Layout<T, true>;

 public:
  __device__ __forceinline__ explicit RegisterColumns(float value) {
#pragma unroll
    for (int i = 0; i < L::V; ++i)
#pragma unroll
      for (int j = 0; j < L::W; ++j) x_[i][j] = value;
  }
  __device__ __forceinline__ float get(int i, int j, int) const { return x_[i][j]; }
  __device__ __forceinline__ void add(int i, int j, int, float x) { x_[i][j] += x; }

  template <class F>  // f(column, value) for each of the row's columns
  __device__ __forceinline__ void each(int n, F f) {
#pragma unroll
    for (int i = 0; i < L::V; ++i) {
      const int begin = (i * blockDim.x + threadIdx.x) * L::W;
      if (begin >= n) continue;
#pragma unroll
      for (int j = 0; j < L::W; ++j) f(begin + j, x_[i][j]);
    }
  }

 private:
  float x_[L::V][L::W];
};

// The same for rows of any shift: a row in shared memory.
template <class T>
class SharedColumns {
 public:
  using SharedRow = typename Layout<T, false>::SharedRow;
  __device__ __forceinline__ explicit SharedColumns(SharedRow row) : row_(row) {}
  __device__ __forceinline__ float get(int, int, int e) const { return row_.load(e); }
  __device__ __forceinline__ void add(int, int, int e, float x) { row_.store(e, row_.load(e) + x); }

 private:
  SharedRow row_;
};

template <class T, class SharedRow>
__device__ __forceinline__ void stage(const SharedRow& to, const Parameter<T>& from, int n, float absent) {
  for (int e = thread_in_block(); e < n; e += threads_of_block()) to.store(e, from.load(e, absent));
  __syncthreads();
}

// A parameter, read from global memory once per block.  Row `k` of shared memory keeps it, or lends its
// space where registers do: then k is 0 for every parameter.
template <class T, bool ALIGNED>
__device__ __forceinline__ auto parameter(const Parameter<T>& from, Shared<float> shared, int stride, int k, int n,
                                          float absent) {
  using L = Layout<T, ALIGNED>;
  const typename L::SharedRow row(shared + (ALIGNED ? 0 : k * L::W * stride), stride);
  stage(row, from, n, absent);
  if constexpr (ALIGNED) {
    RegisterColumns<T> columns(absent);
    columns.each(n, [&](int e, float& x) { x = row.load(e); });
    __syncthreads();
    return columns;
  } else {
    return SharedColumns<T>(row);
  }
}

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
    float v[L::SLOTS][L::W], total = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < L::SLOTS; ++i) {
      const Slot s = L::slot(in, i);
      if (!s.exists) continue;
      in.load(s, v[i]);
      if (residual) {
        float r[L::W];
        added.load(s, r);
        // Rounded as the stored sum is: the backward sees nothing else.
#pragma unroll
        for (int j = 0; j < L::W; ++j) v[i][j] = to_float(from_float<T>(v[i][j] + r[j]));
        summed.store(s, v[i]);
      }
#pragma unroll
      for (int j = 0; j < L::W; ++j) total += v[i][j];
    }
    const float center = reduce.operator()<Sum>(total) / n;
#pragma unroll
    for (int i = 0; i < L::SLOTS; ++i) {
      const Slot s = L::slot(in, i);
      if (!s.exists) continue;
#pragma unroll
      for (int j = 0; j < L::W; ++j) {
        v[i][j] -= center;
        if (in.has(s, j)) squares += v[i][j] * v[i][j];
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

// Sums of the team's rows by column, all zero: the first or the second (k) of two.  Shared memory has a row
// for each of them, after that of the weight.
template <class T, bool ALIGNED>
__device__ __forceinline__ auto zero_sums(Shared<float> shared, int stride, int k) {
  using L = Layout<T, ALIGNED>;
  if constexpr (ALIGNED) {
    return RegisterColumns<T>(0.0f);
  } else {
    const int row = L::W * stride;
    for (int i = threadIdx.x; i < row; i += blockDim.x) shared.store((1 + 2 * threadIdx.y + k) * row + i, 0.0f);
    return SharedColumns<T>(typename L::SharedRow(shared + (1 + 2 * threadIdx.y + k) * row, stride));
  }
}

// The block's sums of a column, from the registers of its teams, one team after the other.
template <class T>
__device__ __forceinline__ void write_sums(RegisterColumns<T>& sums, typename Layout<T, true>::SharedRow row,
                                           Global<float> partial, int n) {
  for (int team = 0; team < blockDim.y; ++team) {
    if (threadIdx.y == team)
      sums.each(n, [&](int e, float& x) { row.store(e, team == 0 ? x : row.load(e) + x); });
    __syncthreads();
  }
  if (partial)
    for (int e = thread_in_block(); e < n; e += threads_of_block()) partial.store(e, row.load(e));
  __syncthreads();
}

// Backward: with g = dy * weight and xhat = (x - mean) * rstd,
// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) + dsum; and per block the sums of dy * xhat and dy over
// its rows, which column_sum() adds up over the blocks.
template <class T, bool ALIGNED>
__device__ __forceinline__ void backward(Global<const T> dy, Global<const T> x, Parameter<T> weight,
                                         Global<const float> statistics, Global<const T> dsum, Global<T> dx,
                                         Global<float> weight_sums, Global<float> bias_sums, i64 rows, int n,
                                         int stride) {
  using L = Layout<T, ALIGNED>;
  TITAN_DYNAMIC_SHARED(float, shared);
  TITAN_SHARED(float, scratch, TEAM_SCRATCH);
  TeamReduce reduce(scratch);
  const auto weights = parameter<T, ALIGNED>(weight, shared, stride, 0, n, 1.0f);
  auto dweight = zero_sums<T, ALIGNED>(shared, stride, 0), dbias = zero_sums<T, ALIGNED>(shared, stride, 1);
  __syncthreads();

  for (i64 first = blockIdx.x * static_cast<i64>(blockDim.y); first < rows; first += gridDim.x * blockDim.y) {
    const i64 row = first + threadIdx.y;
    const int count = row < rows ? n : 0;
    const typename L::In grad(dy + row * n, count), in(x + row * n, count), passed(dsum + row * n, count);
    const typename L::Out out(dx + row * n, count);
    const Vec<float, 2> given = statistics.template load_vec<2>(2 * (row < rows ? row : first));
    const float center = given[0], scale = given[1];
    float g[L::SLOTS][L::W], xhat[L::SLOTS][L::W], dots[2] = {};
#pragma unroll
    for (int i = 0; i < L::SLOTS; ++i) {
      const Slot s = L::slot(in, i);
      if (!s.exists) continue;
      grad.load(s, g[i]);
      in.load(s, xhat[i]);
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

  const Global<float> weight_out = weight_sums + blockIdx.x * static_cast<i64>(n);
  const Global<float> bias_out = bias_sums + blockIdx.x * static_cast<i64>(n);
  if constexpr (ALIGNED) {
    const typename L::SharedRow row(shared, stride);
    if (weight_sums) write_sums(dweight, row, weight_out, n);
    if (bias_sums) write_sums(dbias, row, bias_out, n);
  } else {
    __syncthreads();
    for (int e = thread_in_block(); e < n; e += threads_of_block()) {
      float totals[2] = {};
      for (int k = 0; k < 2 * blockDim.y; ++k)
        totals[k % 2] += typename L::SharedRow(shared + (1 + k) * L::W * stride, stride).load(e);
      if (weight_sums) weight_out.store(e, totals[0]);
      if (bias_sums) bias_out.store(e, totals[1]);
    }
  }
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
