// Element-wise kernels: one pass over the elements of several tensors, in wide accesses.
#pragma once

#include <titan/device.cuh>

namespace titan {

// A width as a type, for generic lambdas.
template <int N>
struct Width {
  static constexpr int value = N;
};

// N elements from element `i` on, in one access.
template <int N, class T>
__device__ __forceinline__ void load_floats(Global<T> from, i64 i, float (&x)[N], Site site = Site::here()) {
  const auto v = from.template load_vec<N>(i, site);
#pragma unroll
  for (int j = 0; j < N; ++j) x[j] = to_float(v[j]);
}

template <int N, class T>
__device__ __forceinline__ void store_floats(Global<T> to, i64 i, const float (&x)[N], Site site = Site::here()) {
  Vec<T, N> v;
#pragma unroll
  for (int j = 0; j < N; ++j) v[j] = from_float<T>(x[j]);
  to.template store_vec<N>(i, v, site);
}

// The elements 0 ... count-1 of some tensors, shared by the threads of the grid's x dimension.
//
// The elements between the first and the last boundary that all tensors have in common go in vectors of
// W, the others one by one; tensors without a common boundary go one by one altogether.  W is WIDTH<T> of
// the largest element type T, so that tensors of several types can be mixed.
//
//   Flat<W>(count, x, y).for_each([&](auto width, i64 i) {
//     float v[width.value];
//     load_floats(x, i, v);
//     ...
//     store_floats(y, i, v);
//   });
template <int W>
class Flat {
 public:
  // Null pointers, for tensors that a call does without, fit every boundary.
  template <class... T>
  __device__ __forceinline__ explicit Flat(i64 count, Global<T>... tensors) : count_(count) {
    int before = -1;
    bool common = true;
    (meet(tensors, before, common), ...);
    head_ = before < 0 ? 0 : before;
    vectors_ = common && count > head_ ? (count - head_) / W : 0;
  }

  template <class F>
  __device__ __forceinline__ void for_each(F f) const {
    const i64 thread = blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x;
    for_each(thread, gridDim.x * static_cast<i64>(blockDim.x), f);
  }

  // The same for other ways to share the work: this is number `thread` of `threads`.
  template <class F>
  __device__ __forceinline__ void for_each(i64 thread, i64 threads, F f) const {
    const i64 in_vectors = vectors_ * W;
    for (i64 v = thread; v < vectors_; v += threads) f(Width<W>(), head_ + v * W);
    for (i64 e = thread; e < count_ - in_vectors; e += threads) f(Width<1>(), e < head_ ? e : e + in_vectors);
  }

 private:
  // Elements of the tensor before its first vector boundary, and whether the others have as many.
  template <class T>
  __device__ __forceinline__ static void meet(Global<T> tensor, int& before, bool& common) {
    if (!tensor) return;
    const int past = static_cast<int>(tensor.address() / sizeof(T) % W), mine = past == 0 ? 0 : W - past;
    common = common && (before < 0 || before == mine);
    before = mine;
  }

  i64 count_, vectors_;
  int head_;
};

}  // namespace titan
