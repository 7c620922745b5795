// Rotary position embedding of one or two tensors (queries and keys) in one launch.
//
// A warp takes a range of tokens, counted with the sequences of the batch innermost, and rotates all heads
// of a token before it goes on.  So it reads cosines and sines once per position and not once per head; they
// wait in shared memory of the warp's own.  All tensors are (B, T, H, D) by strides.
#include <titan/flat.cuh>

using namespace titan;

namespace {

constexpr int THREADS = 128;

// Pointers and strides of the tensors: `x` to read, `y` to write, which may be the same.
template <class T>
struct Tensors {
  Array<Global<T>, 2> x, y;
  Array<i64, 12> strides;  // batch, time, head of each x, then of each y
  Array<i64, 2> heads;     // 0 for a tensor that is not there

  __device__ __forceinline__ Global<T> source(int i, int b, int t, int h) const { return x[i] + offset(i, b, t, h); }
  __device__ __forceinline__ Global<T> target(int i, int b, int t, int h) const {
    return y[i] + offset(i + 2, b, t, h);
  }

 private:
  __device__ __forceinline__ i64 offset(int i, int b, int t, int h) const {
    return b * strides[3 * i] + t * strides[3 * i + 1] + h * strides[3 * i + 2];
  }
};

// Rows of cosines and sines; those of dtype T where there are any, else those of fp32.
template <class T>
struct Tables {
  Global<const T> cos, sin;
  Global<const float> wide_cos, wide_sin;
  int rows;
  float sign;  // -1 rotates backwards

  // The row of a position; OUTSIDE for one that the tables do not have.
  static constexpr int OUTSIDE = -1;
  __device__ __forceinline__ int row(i64 position) const {
    return position >= 0 && position < rows ? static_cast<int>(position) : OUTSIDE;
  }

  // There is no way to report a bad position from here, so its row is NaN.
  template <int N>
  __device__ __forceinline__ void fill(const TransposedRow<float, N>& c, const TransposedRow<float, N>& s, int row,
                                       int pairs) const {
    const i64 begin = row * static_cast<i64>(pairs);
#pragma unroll 1
    for (int e = threadIdx.x % 32; e < pairs; e += 32) {
      c.store(e, row == OUTSIDE ? bits_float(0x7fc00000u) : read(cos, wide_cos, begin + e));
      s.store(e, row == OUTSIDE ? bits_float(0x7fc00000u) : sign * read(sin, wide_sin, begin + e));
    }
  }

 private:
  __device__ __forceinline__ static float read(Global<const T> table, Global<const float> wide, i64 i) {
    return table ? to_float(table.load(i)) : wide.load(i);
  }
};

// N pairs of a head from pair `p` on: elements p and p + pairs, or 2p and 2p + 1.
template <int N, bool INTERLEAVED, class T>
__device__ __forceinline__ void load_pairs(Global<T> head, int p, int pairs, float (&a)[N], float (&b)[N]) {
  if constexpr (INTERLEAVED && N > 1) {
    float both[2 * N];
    load_floats(head, 2 * p, both);
#pragma unroll
    for (int j = 0; j < N; ++j) a[j] = both[2 * j], b[j] = both[2 * j + 1];
  } else {
    load_floats(head, INTERLEAVED ? 2 * p : p, a);
    load_floats(head, INTERLEAVED ? 2 * p + 1 : p + pairs, b);
  }
}

template <int N, bool INTERLEAVED, class T>
__device__ __forceinline__ void store_pairs(Global<T> head, int p, int pairs, const float (&a)[N],
                                            const float (&b)[N]) {
  if constexpr (INTERLEAVED && N > 1) {
    float both[2 * N];
#pragma unroll
    for (int j = 0; j < N; ++j) both[2 * j] = a[j], both[2 * j + 1] = b[j];
    store_floats(head, 2 * p, both);
  } else {
    store_floats(head, INTERLEAVED ? 2 * p : p, a);
    store_floats(head, INTERLEAVED ? 2 * p + 1 : p + pairs, b);
  }
}

// All heads of one token: lanes share the pairs of a head, and where these leave lanes over, several heads.
template <int N, bool INTERLEAVED, class T>
__device__ __forceinline__ void rotate(const Tensors<T>& tensors, const TransposedRow<float, N>& cosines,
                                       const TransposedRow<float, N>& sines, int batch, int time, int pairs) {
  const int lane = threadIdx.x % 32, vectors = pairs / N, team = vectors < 32 ? vectors : 32, teams = 32 / team;
  if (lane >= team * teams) return;
  for (int v = lane % team; v < vectors; v += team) {
    float c[N], s[N];
#pragma unroll
    for (int j = 0; j < N; ++j) c[j] = cosines.load(v * N + j), s[j] = sines.load(v * N + j);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll 1
      for (int h = lane / team; h < tensors.heads[i]; h += teams) {
        float a[N], b[N];
        load_pairs<N, INTERLEAVED>(tensors.source(i, batch, time, h), v * N, pairs, a, b);
#pragma unroll
        for (int j = 0; j < N; ++j) {
          const float first = a[j] * c[j] - b[j] * s[j];
          b[j] = b[j] * c[j] + a[j] * s[j];
          a[j] = first;
        }
        store_pairs<N, INTERLEAVED>(tensors.target(i, batch, time, h), v * N, pairs, a, b);
      }
    }
  }
}

// The elements of each head behind the rotated ones.
template <int N, class T>
__device__ __forceinline__ void copy_rest(const Tensors<T>& tensors, int batch, int time, int begin, int rest) {
  const int vectors = rest / N;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll 1
    for (int k = threadIdx.x % 32; k < tensors.heads[i] * vectors; k += 32) {
      const int h = k / vectors, e = begin + k % vectors * N;
      const auto piece = tensors.source(i, batch, time, h).template load_vec<N>(e);
      tensors.target(i, batch, time, h).template store_vec<N>(e, piece);
    }
  }
}

template <class T, bool INTERLEAVED, bool VECTORS>
__device__ __forceinline__ void rope(const Tensors<T>& tensors, const Tables<T>& tables, Global<const i64> positions,
                                     i64 position_batch, i64 position_time, int tokens, int batches,
                                     int tokens_per_warp, int pairs, int rest, int stride) {
  constexpr int W = VECTORS ? WIDTH<T> : 1, N = VECTORS && INTERLEAVED ? W / 2 : W;
  TITAN_DYNAMIC_SHARED(float, shared);
  const int warp = threadIdx.x / 32;
  const TransposedRow<float, N> cosines(shared + warp * 2 * N * stride, stride);
  const TransposedRow<float, N> sines(shared + (warp * 2 + 1) * N * stride, stride);
  const int first = (static_cast<int>(blockIdx.x) * (THREADS / 32) + warp) * tokens_per_warp;
  const int count = first < tokens ? min(tokens_per_warp, tokens - first) : 0;

  int time = first / batches, batch = first - time * batches, known = Tables<T>::OUTSIDE - 1;
  for (int i = 0; i < count; ++i) {
    const int row = tables.row(positions ? positions.load(batch * position_batch + time * position_time) : time);
    if (row != known) {
      __syncwarp();
      tables.fill(cosines, sines, row, pairs);
      __syncwarp();
      known = row;
    }
    rotate<N, INTERLEAVED>(tensors, cosines, sines, batch, time, pairs);
    if (rest > 0) copy_rest<W>(tensors, batch, time, 2 * pairs, rest);
    if (++batch == batches) batch = 0, ++time;
  }
}

}  // namespace

#define KERNEL(pairing, INTERLEAVED, t, T, access, VECTORS)                                             \
  TITAN_KERNEL(rope_##pairing##_##t##_##access, THREADS,                                                \
               (Array<Global<T>, 2> x, Array<Global<T>, 2> y, Array<i64, 12> strides, Array<i64, 2> heads, \
                Global<const T> cos, Global<const T> sin, Global<const float> wide_cos,                 \
                Global<const float> wide_sin, int rows, float sign, Global<const i64> positions,        \
                i64 position_batch, i64 position_time, int tokens, int batches, int tokens_per_warp,    \
                int pairs, int rest, int stride),                                                       \
               rope<T, INTERLEAVED, VECTORS>({x, y, strides, heads}, {cos, sin, wide_cos, wide_sin, rows, sign}, \
                                             positions, position_batch, position_time, tokens, batches, \
                                             tokens_per_warp, pairs, rest, stride))
#define KERNELS(t, T)                                       \
  KERNEL(half, false, t, T, vectors, true)                  \
  KERNEL(half, false, t, T, elements, false)                \
  KERNEL(interleaved, true, t, T, vectors, true)            \
  KERNEL(interleaved, true, t, T, elements, false)

TITAN_FOR_EACH_FLOAT(KERNELS)
