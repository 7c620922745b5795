// Rows of a table by index, and the table's gradient without atomics.
//
// The gradient works on positions sorted by index: a row of the table owns a segment of them.  Segments of
// at most `tile` positions are summed in one go.  Longer ones are cut at the multiples of `tile`, so that
// many blocks share them, and the sums of their pieces are added in order.
//
// Columns are split into groups, one per blockIdx.y.
#include <titan/device.cuh>

using namespace titan;

namespace {

constexpr int MAX_THREADS = 256;
constexpr int FORWARD_WARPS = 4;
constexpr int TABLE_ROWS = 8;  // per block of the gradient

__device__ __forceinline__ float nan() { return bits_float(0x7fffffffu); }

struct Columns {
  int first, count;
  __device__ __forceinline__ Columns(int n, int group)
      : first(blockIdx.y * group), count(min(group, n - first)) {}
};

// A warp per position.
template <class T>
__device__ __forceinline__ void forward(Global<const i64> indices, Global<const T> weight, Global<T> out,
                                        i64 positions, i64 rows, int n, int group, int stride, float scale) {
  constexpr int W = WIDTH<T>;
  TITAN_DYNAMIC_SHARED(T, shared);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 position = blockIdx.x * static_cast<i64>(FORWARD_WARPS) + warp;
  if (position >= positions) return;
  const Columns columns(n, group);
  const i64 index = indices.load(position);
  const bool exists = index >= 0 && index < rows;
  const float factor = exists ? scale : nan();
  const Global<T> place = out + (position * n + columns.first);
  const Global<const T> source = weight + ((exists ? index * n : 0) + columns.first);
  const Row<T> to(place, columns.count);
  const Row<const T> from(source, columns.count);
  if (!exists || (source.address() - place.address()) % 16 == 0) {
    to.each(lane, 32, [&](const Slot& s) {
      float x[W] = {};
      if (exists) from.load(s, x);
#pragma unroll
      for (int j = 0; j < W; ++j) x[j] *= factor;
      to.store(s, x);
    });
    return;
  }
  // Rows that lie differently against 16-byte boundaries change lanes in shared memory.
  const TransposedRow<T, W> staged(shared + warp * W * stride, stride);
  from.each(lane, 32, [&](const Slot& s) {
    float x[W];
    from.load(s, x);
#pragma unroll
    for (int j = 0; j < W; ++j)
      if (from.has(s, j)) staged.store(s.begin + j, from_float<T>(x[j] * factor));
  });
  __syncwarp();
  to.each(lane, 32, [&](const Slot& s) {
    float x[W];
#pragma unroll
    for (int j = 0; j < W; ++j) x[j] = to.has(s, j) ? to_float(staged.load(s.begin + j)) : 0.0f;
    to.store(s, x);
  });
}

// A row of fp32 sums in shared memory, for rows of T.
template <class T>
class RowSum {
 public:
  // `steady` says that rows follow each other at whole vectors, so that a thread meets the same elements
  // in all of them.
  __device__ __forceinline__ RowSum(Shared<float> shared, int stride, bool steady)
      : sums_(shared, stride), steady_(steady) {}

  template <class R>
  __device__ __forceinline__ void add(const Row<const R>& row, bool first) const {
    row.each(threadIdx.x, blockDim.x, [&](const Slot& s) {
      float x[Row<const R>::W];
      row.load(s, x);
#pragma unroll
      for (int j = 0; j < Row<const R>::W; ++j) {
        const int e = s.begin + j;
        if (row.has(s, j)) sums_.store(e, first ? x[j] : sums_.load(e) + x[j]);
      }
    });
    if (!steady_) __syncthreads();
  }

  template <class R>
  __device__ __forceinline__ void write(const Row<R>& row, float scale) const {
    __syncthreads();
    row.each(threadIdx.x, blockDim.x, [&](const Slot& s) {
      float x[Row<R>::W];
#pragma unroll
      for (int j = 0; j < Row<R>::W; ++j) x[j] = row.has(s, j) ? scale * sums_.load(s.begin + j) : 0.0f;
      row.store(s, x);
    });
    __syncthreads();
  }

 private:
  TransposedRow<float, WIDTH<T>> sums_;
  bool steady_;
};

// The pieces of long segments that lie in one tile: piece 0 of the segment with the tile's first position,
// piece 1 of the one with its last position, if that is another.
template <class T>
__device__ __forceinline__ void sum_pieces(Global<const T> grad, Global<const i64> sorted,
                                           Global<const i64> order, Global<const int> starts,
                                           Global<float> pieces, int positions, i64 rows, i64 padding, int n,
                                           int group, int stride, int tile) {
  TITAN_DYNAMIC_SHARED(float, shared);
  const Shared<int> places = (shared + WIDTH<T> * stride).template as<int>();
  const RowSum<T> sum(shared, stride, n % WIDTH<T> == 0);
  const Columns columns(n, group);
  const int tile_begin = blockIdx.x * tile, tile_end = min(tile_begin + tile, positions);
  for (int piece = 0; piece < 2; ++piece) {
    const i64 row = sorted.load(piece == 0 ? tile_begin : tile_end - 1);
    if (row < 0 || row >= rows || row == padding) continue;
    const int begin = starts.load(row), end = starts.load(row + 1);
    if (end - begin <= tile || (piece == 1 && begin <= tile_begin)) continue;
    const int from = max(begin, tile_begin), count = min(end, tile_end) - from;
    for (int i = threadIdx.x; i < count; i += blockDim.x) places.store(i, static_cast<int>(order.load(from + i)));
    __syncthreads();
    for (int i = 0; i < count; ++i)
      sum.add(Row<const T>(grad + (places.load(i) * static_cast<i64>(n) + columns.first), columns.count), i == 0);
    const i64 slot = 2 * static_cast<i64>(blockIdx.x) + piece;
    sum.write(Row<float>(pieces + (slot * n + columns.first), columns.count), 1.0f);
  }
}

template <class T, class P>
__device__ __forceinline__ void gradient(Global<const T> grad, Global<const i64> order, Global<const int> starts,
                                         Global<const float> pieces, Global<P> out, i64 rows, i64 padding, int n,
                                         int group, int stride, int tile, float scale) {
  TITAN_DYNAMIC_SHARED(float, shared);
  TITAN_SHARED(int, begins, TABLE_ROWS + 1);
  const Shared<int> places = (shared + WIDTH<T> * stride).template as<int>();
  const RowSum<T> sum(shared, stride, n % WIDTH<T> == 0);
  const Columns columns(n, group);
  const i64 first_row = blockIdx.x * static_cast<i64>(TABLE_ROWS);
  const int count = static_cast<int>(min(static_cast<i64>(TABLE_ROWS), rows - first_row));
  // All positions first, so that their loads wait together.
  if (threadIdx.x <= count) begins.store(threadIdx.x, starts.load(first_row + threadIdx.x));
  __syncthreads();
  for (int r = 0; r < count; ++r) {
    const int begin = begins.load(r), size = begins.load(r + 1) - begin;
    for (int i = threadIdx.x; i < size && size <= tile; i += blockDim.x)
      places.store(r * tile + i, static_cast<int>(order.load(begin + i)));
  }
  __syncthreads();
  for (int r = 0; r < count; ++r) {
    const Row<P> to(out + ((first_row + r) * n + columns.first), columns.count);
    const int begin = begins.load(r), end = begins.load(r + 1);
    if (begin == end || first_row + r == padding) {
      to.each(threadIdx.x, blockDim.x, [&](const Slot& s) { to.store(s, {}); });
      continue;
    }
    if (end - begin <= tile) {
      for (int i = 0; i < end - begin; ++i) {
        const i64 place = places.load(r * tile + i);
        sum.add(Row<const T>(grad + (place * n + columns.first), columns.count), i == 0);
      }
    } else {
      for (int t = begin / tile; t <= (end - 1) / tile; ++t) {
        const i64 slot = 2 * static_cast<i64>(t) + (t * tile < begin);
        sum.add(Row<const float>(pieces + (slot * n + columns.first), columns.count), t == begin / tile);
      }
    }
    sum.write(to, scale);
  }
}

}  // namespace

#define FORWARD_AND_PIECES(t, T)                                                                              \
  TITAN_KERNEL(embedding_forward_##t, 32 * FORWARD_WARPS,                                                     \
               (Global<const i64> indices, Global<const T> weight, Global<T> out, i64 positions, i64 rows,    \
                int n, int group, int stride, float scale),                                                   \
               forward<T>(indices, weight, out, positions, rows, n, group, stride, scale))                    \
  TITAN_KERNEL(embedding_pieces_##t, MAX_THREADS,                                                             \
               (Global<const T> grad, Global<const i64> sorted, Global<const i64> order,                      \
                Global<const int> starts, Global<float> pieces, int positions, i64 rows, i64 padding, int n,  \
                int group, int stride, int tile),                                                             \
               sum_pieces<T>(grad, sorted, order, starts, pieces, positions, rows, padding, n, group, stride, \
                             tile))
TITAN_FOR_EACH_FLOAT(FORWARD_AND_PIECES)

#define GRADIENT(t, T, p, P)                                                                                   \
  TITAN_KERNEL(embedding_gradient_##t##_##p, MAX_THREADS,                                                      \
               (Global<const T> grad, Global<const i64> order, Global<const int> starts,                       \
                Global<const float> pieces, Global<P> out, i64 rows, i64 padding, int n, int group, int stride, \
                int tile, float scale),                                                                        \
               gradient<T, P>(grad, order, starts, pieces, out, rows, padding, n, group, stride, tile, scale))
GRADIENT(f16, half, f16, half)
GRADIENT(f16, half, f32, float)
GRADIENT(bf16, bf16, bf16, bf16)
GRADIENT(bf16, bf16, f32, float)
GRADIENT(f32, float, f32, float)
