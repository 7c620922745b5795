// Softmax of rows: scale, then mask, then exponentials over their sum.
//
// A team holds a row in registers, so each element is read once and written once; rows that are too long
// for that are read twice.  What the causal mask hides is not read at all.
#include <titan/device.cuh>
#include <titan/team.cuh>

#include "scores.cuh"

using namespace titan;

namespace {

constexpr int ELEMENTS = 32;  // of a row in a thread

// Input and output move in vectors of as many elements as fit the wider type.
template <class T, class O>
struct Layout {
  static constexpr int W = WIDTH<T> < WIDTH<O> ? WIDTH<T> : WIDTH<O>, V = ELEMENTS / W;
};

// What to subtract from the scores of a row with this maximum.  Without scores it is minus infinity, which
// makes the row NaN, or 0, which makes it 0.
__device__ __forceinline__ float shift_of(float maximum, bool zero) {
  return zero && maximum == minus_infinity() ? 0.0f : maximum;
}

__device__ __forceinline__ float inverse(float total) { return total == 0.0f ? 0.0f : 1.0f / total; }

template <class T, class O>
__device__ __forceinline__ void forward(Global<const T> x, const Mask<T>& mask, Global<O> y, i64 rows, int n,
                                        Causal causal, float scale, bool zero) {
  constexpr int W = Layout<T, O>::W, V = Layout<T, O>::V;
  TITAN_SHARED(float, scratch, TEAM_SCRATCH);
  TeamReduce reduce(scratch);
  for (i64 first = blockIdx.x * static_cast<i64>(blockDim.y); first < rows; first += gridDim.x * blockDim.y) {
    const i64 row = first + threadIdx.y;
    const int count = row < rows ? n : 0;
    const int visible = causal.visible(row, count);
    const Scores<T, W> scores{{x + row * n, count}, mask, mask.offset(row), visible, scale};
    const Row<O, W> out(y + row * n, count);
    Vec<T, W> given[V + 1];
#pragma unroll
    for (int i = 0; i <= V; ++i) given[i] = scores.fetch(out.template slot<V>(i, threadIdx.x, blockDim.x));
    float v[V + 1][W], maximum = minus_infinity(), total = 0.0f;
#pragma unroll
    for (int i = 0; i <= V; ++i) {
      const Slot s = out.template slot<V>(i, threadIdx.x, blockDim.x);
      if (!s.full && !s.exists) continue;
      scores.load(s, given[i], v[i]);
#pragma unroll
      for (int j = 0; j < W; ++j) maximum = Max::combine(maximum, v[i][j]);
    }
    const float shift = shift_of(reduce.operator()<Max>(maximum), zero);
#pragma unroll
    for (int i = 0; i <= V; ++i) {
      const Slot s = out.template slot<V>(i, threadIdx.x, blockDim.x);
      if (!s.full && !s.exists) continue;
#pragma unroll
      for (int j = 0; j < W; ++j) {
        v[i][j] = expf(v[i][j] - shift);
        total += v[i][j];
      }
    }
    const float factor = inverse(reduce.operator()<Sum>(total));
#pragma unroll
    for (int i = 0; i <= V; ++i) {
      const Slot s = out.template slot<V>(i, threadIdx.x, blockDim.x);
      if (!s.exists) continue;
#pragma unroll
      for (int j = 0; j < W; ++j) v[i][j] *= factor;
      out.store(s, v[i]);
    }
  }
}

// Rows of any length, a block each: the first pass finds maximum and sum together, with every thread
// scaling its sum down when its maximum grows (Milakov and Gimelshein, arXiv:1805.02867).
template <class T, class O>
__device__ __forceinline__ void forward_long(Global<const T> x, const Mask<T>& mask, Global<O> y, i64 rows,
                                             int n, Causal causal, float scale, bool zero) {
  constexpr int W = Layout<T, O>::W;
  TITAN_SHARED(float, scratch, TEAM_SCRATCH);
  TeamReduce reduce(scratch);
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    const Scores<T, W> scores{{x + row * n, n}, mask, mask.offset(row), causal.visible(row, n), scale};
    const Row<O, W> out(y + row * n, n);
    float maximum = minus_infinity(), total = 0.0f, v[W];
    out.each(threadIdx.x, blockDim.x, [&](const Slot& s) {
      float larger = maximum, sum = 0.0f;
      scores.load(s, scores.fetch(s), v);
#pragma unroll
      for (int j = 0; j < W; ++j) larger = Max::combine(larger, v[j]);
      if (larger == minus_infinity()) return;
#pragma unroll
      for (int j = 0; j < W; ++j) sum += expf(v[j] - larger);
      total = total * expf(maximum - larger) + sum;
      maximum = larger;
    });
    const float shift = shift_of(reduce.operator()<Max>(maximum), zero);
    if (maximum != minus_infinity()) total *= expf(maximum - shift);
    const float factor = inverse(reduce.operator()<Sum>(total));
    out.each(threadIdx.x, blockDim.x, [&](const Slot& s) {
      scores.load(s, scores.fetch(s), v);
#pragma unroll
      for (int j = 0; j < W; ++j) v[j] = expf(v[j] - shift) * factor;
      out.store(s, v);
    });
  }
}

// Backward: dx = scale * y * (dy - sum(y * dy)).
template <class T, class O, int W>
struct Gradient {
  Row<const O, W> grad, in;
  Row<T, W> out;
  int visible;
  float scale;

  __device__ __forceinline__ Vec<O, W> fetch_gradient(const Slot& s) const {
    return fetch_visible(grad, s, visible);
  }
  __device__ __forceinline__ Vec<O, W> fetch_result(const Slot& s) const {
    return fetch_visible(in, s, visible);
  }

  // Gradient and result, 0 where the row has no element or it was hidden.
  __device__ __forceinline__ void load(const Slot& s, const Vec<O, W>& gradient, const Vec<O, W>& result,
                                       float (&g)[W], float (&y)[W]) const {
    load_visible(grad, s, gradient, visible, g);
    load_visible(in, s, result, visible, y);
#pragma unroll
    for (int j = 0; j < W; ++j)
      if (s.begin + j >= visible) g[j] = y[j] = 0.0f;
  }

  __device__ __forceinline__ void store(const Slot& s, const float (&g)[W], const float (&y)[W],
                                        float dot) const {
    float d[W];
#pragma unroll
    for (int j = 0; j < W; ++j) d[j] = scale * (y[j] * (g[j] - dot));
    out.store(s, d);
  }
};

template <class T, class O>
__device__ __forceinline__ void backward(Global<const O> dy, Global<const O> y, Global<T> dx, i64 rows, int n,
                                         Causal causal, float scale) {
  constexpr int W = Layout<T, O>::W, V = Layout<T, O>::V;
  TITAN_SHARED(float, scratch, TEAM_SCRATCH);
  TeamReduce reduce(scratch);
  for (i64 first = blockIdx.x * static_cast<i64>(blockDim.y); first < rows; first += gridDim.x * blockDim.y) {
    const i64 row = first + threadIdx.y, at = row * n;
    const int count = row < rows ? n : 0;
    const Gradient<T, O, W> gradient{{dy + at, count}, {y + at, count}, {dx + at, count},
                                     causal.visible(row, count), scale};
    Vec<O, W> given_g[V + 1], given_y[V + 1];
#pragma unroll
    for (int i = 0; i <= V; ++i) {
      const Slot s = gradient.out.template slot<V>(i, threadIdx.x, blockDim.x);
      given_g[i] = gradient.fetch_gradient(s);
      given_y[i] = gradient.fetch_result(s);
    }
    float g[V + 1][W], v[V + 1][W], dot = 0.0f;
#pragma unroll
    for (int i = 0; i <= V; ++i) {
      const Slot s = gradient.out.template slot<V>(i, threadIdx.x, blockDim.x);
      if (!s.full && !s.exists) continue;
      gradient.load(s, given_g[i], given_y[i], g[i], v[i]);
#pragma unroll
      for (int j = 0; j < W; ++j) dot += g[i][j] * v[i][j];
    }
    dot = reduce.operator()<Sum>(dot);
#pragma unroll
    for (int i = 0; i <= V; ++i) {
      const Slot s = gradient.out.template slot<V>(i, threadIdx.x, blockDim.x);
      if (s.exists) gradient.store(s, g[i], v[i], dot);
    }
  }
}

template <class T, class O>
__device__ __forceinline__ void backward_long(Global<const O> dy, Global<const O> y, Global<T> dx, i64 rows,
                                              int n, Causal causal, float scale) {
  constexpr int W = Layout<T, O>::W;
  TITAN_SHARED(float, scratch, TEAM_SCRATCH);
  TeamReduce reduce(scratch);
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    const i64 at = row * n;
    const Gradient<T, O, W> gradient{{dy + at, n}, {y + at, n}, {dx + at, n}, causal.visible(row, n), scale};
    float g[W], v[W], dot = 0.0f;
    gradient.out.each(threadIdx.x, blockDim.x, [&](const Slot& s) {
      gradient.load(s, gradient.fetch_gradient(s), gradient.fetch_result(s), g, v);
#pragma unroll
      for (int j = 0; j < W; ++j) dot += g[j] * v[j];
    });
    dot = reduce.operator()<Sum>(dot);
    gradient.out.each(threadIdx.x, blockDim.x, [&](const Slot& s) {
      gradient.load(s, gradient.fetch_gradient(s), gradient.fetch_result(s), g, v);
      gradient.store(s, g, v, dot);
    });
  }
}

}  // namespace

#define FORWARD(t, T, o, O, which)                                                                     \
  TITAN_KERNEL(softmax_##which##_##t##_##o, TEAM_MAX_THREADS,                                          \
               (Global<const T> x, Global<const unsigned char> keep, Global<const T> addends,          \
                Global<const float> wide_addends, Array<i64, 5> place, int vectors, Global<O> y,       \
                i64 rows, int n, int queries, i64 diagonal, float scale, int zero),                    \
               which<T, O>(x, {keep, addends, wide_addends, place, vectors != 0}, y, rows, n,          \
                           {queries, diagonal}, scale, zero != 0))
#define BACKWARD(t, T, o, O, which)                                                                    \
  TITAN_KERNEL(softmax_##which##_##t##_##o, TEAM_MAX_THREADS,                                          \
               (Global<const O> dy, Global<const O> y, Global<T> dx, i64 rows, int n, int queries,     \
                i64 diagonal, float scale),                                                            \
               which<T, O>(dy, y, dx, rows, n, {queries, diagonal}, scale))
#define KERNELS(t, T, o, O)           \
  FORWARD(t, T, o, O, forward)        \
  FORWARD(t, T, o, O, forward_long)   \
  BACKWARD(t, T, o, O, backward)      \
  BACKWARD(t, T, o, O, backward_long)

KERNELS(f16, half, f16, half)
KERNELS(f16, half, f32, float)
KERNELS(bf16, bf16, bf16, bf16)
KERNELS(bf16, bf16, f32, float)
KERNELS(f32, float, f32, float)
