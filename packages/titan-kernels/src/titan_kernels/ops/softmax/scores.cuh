// The scores that a softmax sees: scaled, masked, up to the diagonal.
#pragma once

#include <titan/device.cuh>

namespace {

using namespace titan;

__device__ __forceinline__ float minus_infinity() { return bits_float(0xff800000u); }

// Query i sees keys 0 to i + diagonal.
struct Causal {
  int queries;
  i64 diagonal;

  __device__ __forceinline__ int visible(i64 row, int n) const {
    const i64 keys = static_cast<u32>(row) % static_cast<u32>(queries) + diagonal + 1;
    return static_cast<int>(keys < 0 ? 0 : keys < n ? keys : n);
  }
};

// At most one of the pointers is set: bytes (not 0: keep), addends in the dtype of x, addends in fp32.
// Rows are numbered over three dimensions of which the mask may lack some: `place` has the sizes of
// the last two and the strides of all three.
template <class T>
struct Mask {
  Global<const unsigned char> keep;
  Global<const T> narrow;
  Global<const float> wide;
  Array<i64, 5> place;
  bool vectors;  // whether every slot starts at a multiple of its size

  __device__ __forceinline__ i64 offset(i64 row) const {
    if (!keep && !narrow && !wide) return 0;
    const u32 r = static_cast<u32>(row), n1 = static_cast<u32>(place[0]), n2 = static_cast<u32>(place[1]);
    return r / n2 / n1 * place[2] + r / n2 % n1 * place[3] + r % n2 * place[4];
  }

  template <class M, int W, class R, class F>
  __device__ __forceinline__ void each(Global<const M> row, const R& in, const Slot& s, F f) const {
    constexpr int N = W * sizeof(M) > 16 ? 16 / sizeof(M) : W;
    if (vectors && s.full) {
#pragma unroll
      for (int j = 0; j < W; j += N) {
        const Vec<M, N> m = row.template load_vec<N>(s.begin + j);
#pragma unroll
        for (int i = 0; i < N; ++i) f(j + i, m[i]);
      }
    } else {
#pragma unroll
      for (int j = 0; j < W; ++j)
        if (in.has(s, j)) f(j, row.load(s.begin + j));
    }
  }

  template <int W, class R>
  __device__ __forceinline__ void apply(i64 at, const R& in, const Slot& s, float (&x)[W]) const {
    const auto hide = [&](int j, unsigned char m) { x[j] = m ? x[j] : minus_infinity(); };
    const auto add = [&](int j, auto m) { x[j] += to_float(m); };
    if (keep) each<unsigned char, W>(keep + at, in, s, hide);
    else if (narrow) each<T, W>(narrow + at, in, s, add);
    else if (wide) each<float, W>(wide + at, in, s, add);
  }
};

// The vector of a slot in the body, zero where it is hidden or does not exist.
template <class T, int W>
__device__ __forceinline__ Vec<T, W> fetch_visible(const Row<const T, W>& row, const Slot& s, int visible) {
  return s.full && s.exists && s.begin < visible ? row.fetch(s) : Vec<T, W>{};
}

template <class T, int W>
__device__ __forceinline__ void load_visible(const Row<const T, W>& row, const Slot& s,
                                             const Vec<T, W>& fetched, int visible, float (&x)[W]) {
#pragma unroll
  for (int j = 0; j < W; ++j) x[j] = 0.0f;
  if (s.full || (s.exists && s.begin < visible)) row.load(s, fetched, x);
}

// What the kernels share: the scores of a slot, minus infinity where there is none or it is hidden.
template <class T, int W>
struct Scores {
  Row<const T, W> in;
  Mask<T> mask;
  i64 mask_at;
  int visible;
  float scale;

  __device__ __forceinline__ Vec<T, W> fetch(const Slot& s) const { return fetch_visible(in, s, visible); }

  __device__ __forceinline__ void load(const Slot& s, const Vec<T, W>& fetched, float (&x)[W]) const {
    load_visible(in, s, fetched, visible, x);
#pragma unroll
    for (int j = 0; j < W; ++j) x[j] *= scale;
    if (s.exists && s.begin < visible) mask.template apply<W>(mask_at, in, s, x);
#pragma unroll
    for (int j = 0; j < W; ++j)
      if (!s.exists || s.begin + j >= visible || !in.has(s, j)) x[j] = minus_infinity();
  }
};

}  // namespace
