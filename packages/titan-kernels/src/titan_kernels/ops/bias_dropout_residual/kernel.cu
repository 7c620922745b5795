// dropout(x + bias) / (1 - p) + residual, and its backward, which draws the mask again.
//
// A thread keeps to one vector of columns and walks over rows, so that its part of the bias, or of the
// bias's gradient, stays in registers.  This needs rows of one alignment: gridDim.y times the row length is
// a multiple of the vector width W, so all rows of a block are shifted equally against the vectors.
#include <titan/column_sum.cuh>
#include <titan/device.cuh>
#include <titan/flat.cuh>
#include <titan/philox.cuh>

using namespace titan;

namespace {

constexpr int MAX_THREADS = 512;

template <class A, class B>
constexpr int COMMON_WIDTH = WIDTH<A> < WIDTH<B> ? WIDTH<A> : WIDTH<B>;

// Keeps an element if its 32 random bits are no less than `threshold`, which is p * 2^32: from 0 (keeps
// everything) to 2^32 (nothing); neither needs a seed.
class Dropout {
 public:
  __device__ __forceinline__ Dropout(Global<const i64> seed, i64 offset, i64 threshold, float scale)
      : philox_(seed ? seed.load() : 0),
        offset_(offset),
        threshold_(threshold),
        scale_(scale),
        random_(seed) {}

  template <int N>
  __device__ __forceinline__ void apply(i64 element, float (&x)[N]) const {
    const u32 keep = random_ ? philox_.at_least<N>(threshold_, offset_ + element) : threshold_ > 0 ? 0 : ~0u;
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] = keep >> j & 1 ? x[j] * scale_ : 0.0f;
  }

 private:
  Philox philox_;
  i64 offset_, threshold_;
  float scale_;
  bool random_;
};

// The matrix of `total` elements in rows of `n` (the last one may be shorter), as a thread walks over it.
template <int W>
class Walk {
 public:
  __device__ __forceinline__ Walk(i64 total, int n)
      : total_(total), n_(n), tile_(blockIdx.x * blockDim.x * W - shift_of_block(n)) {}

  // First column of the block's tile and of the thread's vector; negative where a vector begins in
  // the row before.
  __device__ __forceinline__ int tile() const { return tile_; }
  __device__ __forceinline__ int begin() const { return tile_ + static_cast<int>(threadIdx.x) * W; }

  // Calls f(index of the row's first element, elements of the row, slot).
  template <class F>
  __device__ __forceinline__ void rows(F f) const {
    const i64 step = static_cast<i64>(gridDim.y) * blockDim.y * n_;
    i64 first = (blockIdx.y + static_cast<i64>(gridDim.y) * threadIdx.y) * n_;
    for (; first < total_; first += step) {
      const int count = static_cast<int>(min(static_cast<i64>(n_), total_ - first));
      if (begin() < count) f(first, count, Slot{begin(), true, begin() >= 0 && begin() + W <= count});
    }
  }

 private:
  // By how many elements the block's rows begin behind a vector boundary.
  __device__ __forceinline__ static int shift_of_block(int n) {
    return static_cast<int>(blockIdx.y * static_cast<i64>(n) % W);
  }

  i64 total_;
  int n_, tile_;
};

// The thread's part of the bias, which is in the dtype of x or in fp32: one of the pointers is null.
template <int W, class T>
__device__ __forceinline__ void load_bias(Global<const T> narrow, Global<const float> wide,
                                          const Walk<W>& walk, int n, Shared<float> shared, int stride,
                                          float (&b)[W]) {
  const TransposedRow<float, W> row(shared, stride);
  for (int e = threadIdx.y * blockDim.x + threadIdx.x; e < blockDim.x * W; e += blockDim.x * blockDim.y) {
    const int column = min(max(walk.tile() + e, 0), n - 1);
    row.store(e, narrow ? to_float(narrow.load(column)) : wide.load(column));
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < W; ++j) b[j] = row.load(threadIdx.x * W + j);
}

template <class T, class R>
__device__ __forceinline__ void forward(Global<const T> x, Global<const T> bias,
                                        Global<const float> wide_bias, Global<const R> residual,
                                        Global<R> y, Global<const i64> seed, i64 total, int n, i64 offset,
                                        i64 threshold, float scale, int stride) {
  constexpr int W = COMMON_WIDTH<T, R>;
  TITAN_DYNAMIC_SHARED(float, shared);
  const Dropout dropout(seed, offset, threshold, scale);
  const Walk<W> walk(total, n);
  float b[W] = {};
  if (bias || wide_bias) load_bias(bias, wide_bias, walk, n, shared, stride, b);
  walk.rows([&](i64 first, int count, const Slot& s) {
    float v[W], r[W] = {};
    Row<const T, W>(x + first, count).load(s, v);
    if (residual) Row<const R, W>(residual + first, count).load(s, r);
#pragma unroll
    for (int j = 0; j < W; ++j) v[j] += b[j];
    dropout.apply(first + s.begin, v);
#pragma unroll
    for (int j = 0; j < W; ++j) v[j] += r[j];
    Row<R, W>(y + first, count).store(s, v);
  });
}

// dx, and per block the sums of dx over its rows, which column_sum() adds up over the blocks.  Either may be
// absent.
template <class R, class T>
__device__ __forceinline__ void backward(Global<const R> dy, Global<T> dx, Global<float> partial,
                                         Global<const i64> seed, i64 total, int n, i64 offset, i64 threshold,
                                         float scale, int stride) {
  constexpr int W = COMMON_WIDTH<T, R>;
  TITAN_DYNAMIC_SHARED(float, shared);
  const Dropout dropout(seed, offset, threshold, scale);
  const Walk<W> walk(total, n);
  float sums[W] = {};
  walk.rows([&](i64 first, int count, const Slot& s) {
    float v[W];
    Row<const R, W>(dy + first, count).load(s, v);
    dropout.apply(first + s.begin, v);
#pragma unroll
    for (int j = 0; j < W; ++j) sums[j] += v[j];
    if (dx) Row<T, W>(dx + first, count).store(s, v);
  });
  if (!partial) return;
  const TransposedRow<float, W> mine(shared + threadIdx.y * W * stride, stride);
#pragma unroll
  for (int j = 0; j < W; ++j) mine.store(threadIdx.x * W + j, sums[j]);
  __syncthreads();
  for (int e = threadIdx.y * blockDim.x + threadIdx.x; e < blockDim.x * W; e += blockDim.x * blockDim.y) {
    const int column = walk.tile() + e;
    float sum = 0.0f;
    for (int team = 0; team < blockDim.y; ++team)
      sum += TransposedRow<float, W>(shared + team * W * stride, stride).load(e);
    if (column >= 0 && column < n) partial.store(blockIdx.y * static_cast<i64>(n) + column, sum);
  }
}

}  // namespace

#define KERNELS(t, T, r, R)                                                                                 \
  TITAN_KERNEL(bias_dropout_residual_forward_##t##_##r, MAX_THREADS,                                        \
               (Global<const T> x, Global<const T> bias, Global<const float> wide_bias,                     \
                Global<const R> residual, Global<R> y, Global<const i64> seed, i64 total, int n, i64 offset, \
                i64 threshold, float scale, int stride),                                                    \
               forward(x, bias, wide_bias, residual, y, seed, total, n, offset, threshold, scale, stride))  \
  TITAN_KERNEL(bias_dropout_residual_backward_##r##_##t, MAX_THREADS,                                       \
               (Global<const R> dy, Global<T> dx, Global<float> partial, Global<const i64> seed, i64 total, \
                int n, i64 offset, i64 threshold, float scale, int stride),                                 \
               backward(dy, dx, partial, seed, total, n, offset, threshold, scale, stride))

KERNELS(f16, half, f16, half)
KERNELS(f16, half, f32, float)
KERNELS(bf16, bf16, bf16, bf16)
KERNELS(bf16, bf16, f32, float)
KERNELS(f32, float, f32, float)

#define COLUMN_SUM(p, P)                                                        \
  TITAN_KERNEL(bias_dropout_residual_column_sum_##p, COLUMN_SUM_THREADS,        \
               (Global<const float> partial, Global<P> out, int count, int n),  \
               column_sum(partial, out, count, n))
TITAN_FOR_EACH_FLOAT(COLUMN_SUM)
