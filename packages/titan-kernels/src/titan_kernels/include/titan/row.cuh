// Rows of any length at any address, in 16-byte accesses.
//
// A row of an odd number of elements starts at an odd address, where no vector access is allowed.  A
// Row therefore counts its vectors from the 16-byte boundary at or below its first element: vector k
// holds the elements k * WIDTH - shift ... + WIDTH.  Only the first and the last vector can be cut off;
// they move in pieces of falling size, so that each sector is touched about once.
#pragma once

namespace titan {

template <class T>
class Row {
 public:
  using value_type = typename Global<T>::value_type;
  static constexpr int W = WIDTH<value_type>;

  __device__ __forceinline__ Row(Global<T> first, int count)
      : shift(static_cast<int>(first.address() % 16) / static_cast<int>(sizeof(value_type))),
        vectors((count + shift + W - 1) / W),
        first_(first),
        count_(count) {}

  const int shift;    // elements of vector 0 before the row
  const int vectors;  // vectors that hold some element of the row

  // The row index of element j of vector k, and whether the row has it.
  __device__ __forceinline__ int index(int k, int j) const { return k * W - shift + j; }
  __device__ __forceinline__ bool has(int k, int j) const {
    return index(k, j) >= 0 && index(k, j) < count_;
  }

  // Elements outside the row read as `fill`.
  __device__ __forceinline__ void load(int k, float (&x)[W], float fill = 0.0f) const {
    const int begin = index(k, 0);
    if (begin >= 0 && begin + W <= count_) {
      const Vec<value_type, W> v = first_.template load_vec<W>(begin);
#pragma unroll
      for (int j = 0; j < W; ++j) x[j] = to_float(v[j]);
    } else {
#pragma unroll
      for (int j = 0; j < W; ++j) x[j] = fill;
      if constexpr (W > 4) load_piece<4>(begin, x);
      if constexpr (W > 2) load_piece<2>(begin, x);
      load_piece<1>(begin, x);
    }
  }

  __device__ __forceinline__ void store(int k, const float (&x)[W]) const {
    const int begin = index(k, 0);
    if (begin >= 0 && begin + W <= count_) {
      Vec<value_type, W> v;
#pragma unroll
      for (int j = 0; j < W; ++j) v[j] = from_float<value_type>(x[j]);
      first_.template store_vec<W>(begin, v);
    } else {
      if constexpr (W > 4) store_piece<4>(begin, x);
      if constexpr (W > 2) store_piece<2>(begin, x);
      store_piece<1>(begin, x);
    }
  }

 private:
  // Whether the aligned piece [j, j + N) of the vector at `begin` lies inside the row while the piece
  // of twice its size around it does not.
  template <int N>
  __device__ __forceinline__ bool own_piece(int begin, int j) const {
    const bool inside = begin + j >= 0 && begin + j + N <= count_;
    if (2 * N >= W) return inside;
    const int around = begin + j / (2 * N) * (2 * N);
    return inside && !(around >= 0 && around + 2 * N <= count_);
  }

  template <int N>
  __device__ __forceinline__ void load_piece(int begin, float (&x)[W]) const {
#pragma unroll
    for (int j = 0; j < W; j += N) {
      if (!own_piece<N>(begin, j)) continue;
      const Vec<value_type, N> v = first_.template load_vec<N>(begin + j);
#pragma unroll
      for (int i = 0; i < N; ++i) x[j + i] = to_float(v[i]);
    }
  }

  template <int N>
  __device__ __forceinline__ void store_piece(int begin, const float (&x)[W]) const {
#pragma unroll
    for (int j = 0; j < W; j += N) {
      if (!own_piece<N>(begin, j)) continue;
      Vec<value_type, N> v;
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] = from_float<value_type>(x[j + i]);
      first_.template store_vec<N>(begin + j, v);
    }
  }

  Global<T> first_;
  int count_;
};

}  // namespace titan
