// Rows of any length at any address, in 16-byte accesses.
//
// A row of an odd number of elements starts at an odd address, where no vector access is allowed.  A
// Row has a body of whole vectors at 16-byte boundaries, and at most two edges: a vector that begins
// before the row (edge 0) and one that ends after it (edge 1).  Edges move in pieces of falling size, so
// that each sector is touched about once.
//
// A team of threads holds a row in V + 1 slots per thread: slots 0 ... V-1 are body vectors, slot V is an
// edge for the team's first two threads and nothing for the others.  So the long code for edges exists
// once, and rows without edges skip it.
#pragma once

namespace titan {

struct Slot {
  int begin;    // row index of its first element; negative for edge 0
  bool exists;  // whether this thread holds anything here
  bool full;    // a body vector; a compile-time constant in an unrolled loop
};

// Vectors of fewer elements than fill 16 bytes are for rows that move together with rows of a wider type.
template <class T, int ELEMENTS = WIDTH<typename Global<T>::value_type>>
class Row {
 public:
  using value_type = typename Global<T>::value_type;
  static constexpr int W = ELEMENTS;

  __device__ __forceinline__ Row(Global<T> first, int count) : first_(first), count_(count) {
    constexpr int SIZE = static_cast<int>(sizeof(value_type));
    const int before = static_cast<int>(first.address() % (W * SIZE)) / SIZE;
    head_ = before == 0 ? 0 : W - before;
    body_ = count > head_ ? (count - head_) / W : 0;
  }

  // Slot `i` of V + 1 of thread `rank` in a team of `size` >= 2 threads; V * size >= count / W.
  template <int V>
  __device__ __forceinline__ Slot slot(int i, int rank, int size) const {
    if (i < V) {
      const int k = rank + i * size;
      return {head_ + k * W, k < body_, true};
    }
    const int begin = rank == 0 ? head_ - W : head_ + body_ * W;
    return {begin, rank == 0 ? head_ > 0 : rank == 1 && begin < count_, false};
  }

  // Calls f(slot) for every slot of thread `rank`, for rows that are too long for registers.
  template <class F>
  __device__ __forceinline__ void each(int rank, int size, F f) const {
    for (int k = rank; k < body_; k += size) f(Slot{head_ + k * W, true, true});
    const Slot edge = slot<0>(0, rank, size);
    if (edge.exists) f(edge);
  }

  // Whether the row has element `j` of the slot.
  __device__ __forceinline__ bool has(const Slot& s, int j) const {
    return s.full || (s.begin + j >= 0 && s.begin + j < count_);
  }

  // Elements outside the row read as `fill`.
  __device__ __forceinline__ void load(const Slot& s, float (&x)[W], float fill = 0.0f,
                                       Site site = Site::here()) const {
    if (s.full) return load_piece<W>(s, 0, x, site);
#pragma unroll
    for (int j = 0; j < W; ++j) x[j] = fill;
    pieces([&](auto n, int j) { load_piece<decltype(n)::value>(s, j, x, site); }, s);
  }

  // A body vector as it lies in memory.  A thread waits where it first uses it, so vectors fetched one
  // after the other are on their way together; load() waits for each.
  __device__ __forceinline__ Vec<value_type, W> fetch(const Slot& s, Site site = Site::here()) const {
    return first_.template load_vec<W>(s.begin, site);
  }

  // load(), with the vector fetched before if the slot is one of the body.
  __device__ __forceinline__ void load(const Slot& s, const Vec<value_type, W>& fetched, float (&x)[W],
                                       Site site = Site::here()) const {
    if (!s.full) return load(s, x, 0.0f, site);
#pragma unroll
    for (int j = 0; j < W; ++j) x[j] = to_float(fetched[j]);
  }

  __device__ __forceinline__ void store(const Slot& s, const float (&x)[W], Site site = Site::here()) const {
    if (s.full) return store_piece<W>(s, 0, x, site);
    pieces([&](auto n, int j) { store_piece<decltype(n)::value>(s, j, x, site); }, s);
  }

 private:
  template <int N>
  struct Size {
    static constexpr int value = N;
  };

  // Calls `move` for the largest aligned pieces of an edge that lie inside the row.
  template <class F>
  __device__ __forceinline__ void pieces(F move, const Slot& s) const {
    if constexpr (W > 4) pieces_of<4>(move, s);
    pieces_of<2>(move, s);
    pieces_of<1>(move, s);
  }

  template <int N, class F>
  __device__ __forceinline__ void pieces_of(F move, const Slot& s) const {
#pragma unroll
    for (int j = 0; j < W; j += N) {
      const bool in_larger = 2 * N < W && inside<2 * N>(s.begin + j / (2 * N) * (2 * N));
      if (inside<N>(s.begin + j) && !in_larger) move(Size<N>(), j);
    }
  }

  template <int N>
  __device__ __forceinline__ bool inside(int begin) const {
    return begin >= 0 && begin + N <= count_;
  }

  template <int N>
  __device__ __forceinline__ void load_piece(const Slot& s, int j, float (&x)[W], Site site) const {
    const Vec<value_type, N> v = first_.template load_vec<N>(s.begin + j, site);
#pragma unroll
    for (int i = 0; i < N; ++i) x[j + i] = to_float(v[i]);
  }

  template <int N>
  __device__ __forceinline__ void store_piece(const Slot& s, int j, const float (&x)[W], Site site) const {
    Vec<value_type, N> v;
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = from_float<value_type>(x[j + i]);
    first_.template store_vec<N>(s.begin + j, v, site);
  }

  Global<T> first_;
  int count_, head_, body_;
};

// A row of parameters or sums in shared memory, readable without bank conflicts from slots with any shift:
// lanes hold consecutive vectors, so for each j they touch consecutive words.  `stride` is the length of
// one of the WIDTH columns: see transposed_stride() in rows.py.
template <class P, int W>
class TransposedRow {
 public:
  __device__ __forceinline__ TransposedRow(Shared<P> base, int stride) : base_(base), stride_(stride) {}
  __device__ __forceinline__ P load(int e, Site site = Site::here()) const { return base_.load(at(e), site); }
  __device__ __forceinline__ void store(int e, P x, Site site = Site::here()) const {
    base_.store(at(e), x, site);
  }

  __device__ __forceinline__ void fill(Global<const P> from, int n, Site site = Site::here()) const {
    for (int e = threadIdx.x; e < n; e += blockDim.x) store(e, from.load(e, site), site);
  }
  __device__ __forceinline__ void fill(P value, int n, Site site = Site::here()) const {
    for (int e = threadIdx.x; e < n; e += blockDim.x) store(e, value, site);
  }

 private:
  __device__ __forceinline__ int at(int e) const { return e % W * stride_ + e / W; }
  Shared<P> base_;
  int stride_;
};

}  // namespace titan
