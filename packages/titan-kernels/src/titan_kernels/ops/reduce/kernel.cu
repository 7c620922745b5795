// Reductions of a tensor seen as (outer, reduced, inner), with inner == 1 (rows) or not (columns).
//
// Threads accumulate in registers, blocks merge their threads' accumulators in a tree.  Where one block does
// not see all elements of a result, it writes its accumulator as a record of `partial`, one plane per
// number, and merge() merges the records in a fixed order.
#include <titan/device.cuh>
#include <titan/flat.cuh>

using namespace titan;

namespace {

constexpr int ROW_THREADS = 256;
constexpr int COLUMN_THREADS = 512;
constexpr int MERGE_THREADS = 256;

// An accumulator holds PLANES numbers; the first one made stands for no element at all.
struct Total {
  static constexpr int PLANES = 1;
  float plane[PLANES] = {0.0f};
  __device__ __forceinline__ void add(float x) { plane[0] += x; }
  __device__ __forceinline__ void merge(const Total& other) { plane[0] += other.plane[0]; }
  __device__ __forceinline__ float value() const { return plane[0]; }
};

struct Largest {
  static constexpr int PLANES = 1;
  float plane[PLANES] = {Max::identity()};
  __device__ __forceinline__ void add(float x) { plane[0] = Max::combine(plane[0], x); }
  __device__ __forceinline__ void merge(const Largest& other) { add(other.plane[0]); }
  __device__ __forceinline__ float value() const { return plane[0]; }
};

// Mean, what its rounding lost, sum of squares about the mean, and count.  Without the second, a variance
// that is small beside the mean loses digits.  Welford, Technometrics 4 (1962); merged as in Chan, Golub and
// LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances" (1979).
struct Moments {
  static constexpr int PLANES = 4;
  float plane[PLANES] = {0.0f, 0.0f, 0.0f, 0.0f};

  __device__ __forceinline__ void add(float x) {
    const float delta = (x - plane[0]) - plane[1], before = plane[3];
    plane[3] += 1.0f;
    const float part = __fdividef(delta, plane[3]);
    move_mean(part);
    plane[2] += delta * (part * before);  // the square of a large first element is not 0 times infinity
  }
  __device__ __forceinline__ void merge(const Moments& other) {
    if (other.plane[3] == 0.0f) return;
    if (plane[3] == 0.0f) {
      *this = other;
      return;
    }
    const float delta = (other.plane[0] - plane[0]) + (other.plane[1] - plane[1]);
    const float count = plane[3] + other.plane[3], share = __fdividef(other.plane[3], count);
    move_mean(delta * share);
    plane[2] += other.plane[2] + delta * delta * plane[3] * share;
    plane[3] = count;
  }
  __device__ __forceinline__ float value() const { return plane[2]; }

 private:
  // Knuth's exact sum of two floats.
  __device__ __forceinline__ void move_mean(float by) {
    const float rest = plane[1] + by, sum = plane[0] + rest, added = sum - plane[0];
    plane[1] = (plane[0] - (sum - added)) + (rest - added);
    plane[0] = sum;
  }
};

// Elements of a thread's vector: 16 bytes, but no more accumulators than fit into registers.
template <class A, class T>
constexpr int LANES = A::PLANES > 1 ? 4 : WIDTH<T>;

// What becomes of an element first: nothing, its square or its absolute value.
enum Transform { KEEP, SQUARE, ABSOLUTE };

__device__ __forceinline__ float transformed(float x, int transform) {
  return transform == SQUARE ? x * x : transform == ABSOLUTE ? fabsf(x) : x;
}

template <int N, class T>
__device__ __forceinline__ void store_wide(Global<T> to, i64 i, const float (&x)[N]) {
  constexpr int PIECE = N < WIDTH<T> ? N : WIDTH<T>;
#pragma unroll
  for (int begin = 0; begin < N; begin += PIECE) {
    float piece[PIECE];
#pragma unroll
    for (int j = 0; j < PIECE; ++j) piece[j] = x[begin + j];
    store_floats(to, i + begin, piece);
  }
}

// The results, in one of three dtypes: pointers of the others are null.  For moments, the second pointer
// takes the mean, if it is wanted.
struct Results {
  Array<Global<half>, 2> f16;
  Array<Global<bf16>, 2> bf;
  Array<Global<float>, 2> f32;
  float divisor;
  int root;

  template <class A, int N>
  __device__ __forceinline__ void store(i64 i, const A (&a)[N]) const {
    float x[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      x[j] = a[j].value();
      if (divisor != 1.0f) x[j] /= divisor;
      if (root) x[j] = __fsqrt_rn(x[j]);
    }
    store_to(0, i, x);
    if constexpr (A::PLANES == Moments::PLANES) {
#pragma unroll
      for (int j = 0; j < N; ++j) x[j] = a[j].plane[0];
      store_to(1, i, x);
    }
  }

 private:
  template <int N>
  __device__ __forceinline__ void store_to(int k, i64 i, const float (&x)[N]) const {
    if (f16[k]) store_wide(f16[k], i, x);
    if (bf[k]) store_wide(bf[k], i, x);
    if (f32[k]) store_wide(f32[k], i, x);
  }
};

// N consecutive records.
template <class A, int N>
__device__ __forceinline__ void store_records(Global<float> partial, i64 plane_stride, i64 i,
                                              const A (&a)[N]) {
#pragma unroll
  for (int p = 0; p < A::PLANES; ++p) {
    float x[N];
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] = a[j].plane[p];
    store_wide(partial, p * plane_stride + i, x);
  }
}

// Merges over the threads of a team, threadIdx.x; every thread gets the result.
template <class A>
__device__ __forceinline__ void merge_team(A& a, Shared<float> scratch) {
  constexpr int WARPS = ROW_THREADS / 32;
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    A other;
#pragma unroll
    for (int p = 0; p < A::PLANES; ++p) other.plane[p] = __shfl_down_sync(FULL_MASK, a.plane[p], offset);
    a.merge(other);
  }
#pragma unroll
  for (int p = 0; p < A::PLANES; ++p) a.plane[p] = __shfl_sync(FULL_MASK, a.plane[p], 0);
  const int warps = blockDim.x / 32, first = threadIdx.y * warps;
  if (warps == 1) return;
  if (threadIdx.x % 32 == 0)
#pragma unroll
    for (int p = 0; p < A::PLANES; ++p) scratch.store(p * WARPS + first + threadIdx.x / 32, a.plane[p]);
  __syncthreads();
  for (int w = 0; w < warps; ++w) {
    A other;
#pragma unroll
    for (int p = 0; p < A::PLANES; ++p) other.plane[p] = scratch.load(p * WARPS + first + w);
    if (w == 0) a = other;
    else a.merge(other);
  }
  __syncthreads();
}

// Merges N accumulators of each thread over threadIdx.y, blockDim.y being a power of two; those with
// threadIdx.y == 0 get the results.
template <int THREADS, class A, int N>
__device__ __forceinline__ void merge_tree(A (&a)[N], Shared<float> scratch) {
  for (int half = blockDim.y / 2; half > 0; half /= 2) {
    const int upper = threadIdx.y - half, at = (upper >= 0 ? upper : threadIdx.y) * blockDim.x + threadIdx.x;
    if (upper >= 0 && upper < half)
#pragma unroll
      for (int j = 0; j < N; ++j)
#pragma unroll
        for (int p = 0; p < A::PLANES; ++p) scratch.store((p * N + j) * (THREADS / 2) + at, a[j].plane[p]);
    __syncthreads();
    if (upper < 0)
#pragma unroll
      for (int j = 0; j < N; ++j) {
        A other;
#pragma unroll
        for (int p = 0; p < A::PLANES; ++p) other.plane[p] = scratch.load((p * N + j) * (THREADS / 2) + at);
        a[j].merge(other);
      }
    __syncthreads();
  }
}

// A team reduces rows, or a segment of each: gridDim.x segments, of which records lie as (segment, row).  It
// takes `group` rows in turn and stores their results together, in whole sectors.
template <class A, class T>
__device__ __forceinline__ void rows(Global<const T> x, Global<float> partial, const Results& results,
                                     i64 rows, i64 n, int segment, int group, int transform) {
  constexpr int W = LANES<A, T>;
  TITAN_SHARED(float, scratch, A::PLANES * (ROW_THREADS / 32));
  const i64 begin = blockIdx.x * static_cast<i64>(segment);
  const int count = static_cast<int>(min(static_cast<i64>(segment), n - begin));
  for (i64 block = blockIdx.y * static_cast<i64>(blockDim.y) * group; block < rows;
       block += static_cast<i64>(gridDim.y) * blockDim.y * group) {
    const i64 first = block + threadIdx.y * group;
    A kept[1];
    for (int k = 0; k < group; ++k) {
      const i64 row = first + k;
      const Row<const T, W> in(x + row * n + begin, row < rows ? count : 0);
      A lanes[W];
      in.each(threadIdx.x, blockDim.x, [&](const Slot& s) {
        float v[W];
        in.load(s, v);
#pragma unroll
        for (int j = 0; j < W; ++j)
          if (in.has(s, j)) lanes[j].add(transformed(v[j], transform));
      });
#pragma unroll
      for (int step = W / 2; step > 0; step /= 2)
#pragma unroll
        for (int j = 0; j < step; ++j) lanes[j].merge(lanes[j + step]);
      merge_team(lanes[0], scratch);
      if (threadIdx.x == k) kept[0] = lanes[0];
    }
    const i64 row = first + threadIdx.x;
    if (threadIdx.x >= group || row >= rows) continue;
    if (partial) store_records(partial, gridDim.x * rows, blockIdx.x * rows + row, kept);
    else results.store(row, kept);
  }
}

// The `length` elements of an outer index are read as lines of `width`, a multiple of W and of inner, that
// begin at vector boundaries, up to W - 1 elements before the first: so threads keep to their columns of
// the line.  Records lie as (outer, block of lines, column of the line).
template <class A, class T>
__device__ __forceinline__ void columns(Global<const T> x, Global<float> partial, const Results& results,
                                        i64 length, int width, int tiles, int transform) {
  constexpr int W = LANES<A, T>;
  TITAN_SHARED(float, scratch, A::PLANES * W * (COLUMN_THREADS / 2));
  const i64 outer = blockIdx.x / tiles, start = outer * length;
  const int shift = static_cast<int>(start % W);
  const int column = (blockIdx.x % tiles * blockDim.x + threadIdx.x) * W;
  const Global<const T> from = x + (start - shift);
  const i64 end = shift + length, step = static_cast<i64>(gridDim.y) * blockDim.y * width;
  A a[W];
  i64 at = (blockIdx.y * static_cast<i64>(blockDim.y) + threadIdx.y) * width + column;
  for (; column < width && at < end; at += step) {
    if (at >= shift && at + W <= end) {
      float v[W];
      load_floats(from, at, v);
#pragma unroll
      for (int j = 0; j < W; ++j) a[j].add(transformed(v[j], transform));
    } else {
#pragma unroll
      for (int j = 0; j < W; ++j)
        if (at + j >= shift && at + j < end) a[j].add(transformed(to_float(from.load(at + j)), transform));
    }
  }
  merge_tree<COLUMN_THREADS>(a, scratch);
  if (threadIdx.y != 0 || column >= width) return;
  const i64 record = (outer * gridDim.y + blockIdx.y) * width + column;
  if (partial) store_records(partial, static_cast<i64>(gridDim.x / tiles) * gridDim.y * width, record, a);
  else results.store(outer * width + column, a);
}

// Merges `count` records per result, which lie as (outer, count, inner).  For records of columns(), inner
// index i of the lines is (i + shift) % inner, with the shift of the outer index; `width` is 1 for others.
template <class A>
__device__ __forceinline__ void merge(Global<const float> partial, const Results& results, i64 outputs,
                                      int inner, int count, i64 length, int width) {
  TITAN_SHARED(float, scratch, A::PLANES * (MERGE_THREADS / 2));
  const i64 output = blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x, outer = output / inner;
  const int shift = static_cast<int>(outer * length % width);
  const i64 at = outer * count * inner + (output - outer * inner + shift) % inner, stride = outputs * count;
  A a[1];
  if (output < outputs)
    for (int c = threadIdx.y; c < count; c += blockDim.y) {
      A other;
#pragma unroll
      for (int p = 0; p < A::PLANES; ++p)
        other.plane[p] = partial.load(p * stride + at + c * static_cast<i64>(inner));
      a[0].merge(other);
    }
  merge_tree<MERGE_THREADS>(a, scratch);
  if (threadIdx.y == 0 && output < outputs) results.store(output, a);
}

}  // namespace

#define RESULTS \
  Array<Global<half>, 2> f16, Array<Global<bf16>, 2> bf, Array<Global<float>, 2> f32, float divisor, int root
#define KERNELS(t, T, kind, A)                                                                              \
  TITAN_KERNEL(reduce_rows_##kind##_##t, ROW_THREADS,                                                       \
               (Global<const T> x, Global<float> partial, RESULTS, i64 count, i64 n, int segment, int group, \
                int transform),                                                                             \
               rows<A>(x, partial, Results{f16, bf, f32, divisor, root}, count, n, segment, group,           \
                       transform))                                                                           \
  TITAN_KERNEL(reduce_columns_##kind##_##t, COLUMN_THREADS,                                                 \
               (Global<const T> x, Global<float> partial, RESULTS, i64 length, int width, int tiles,        \
                int transform),                                                                             \
               columns<A>(x, partial, Results{f16, bf, f32, divisor, root}, length, width, tiles, transform))
#define MERGE(kind, A)                                                                                      \
  TITAN_KERNEL(reduce_merge_##kind, MERGE_THREADS,                                                          \
               (Global<const float> partial, RESULTS, i64 outputs, int inner, int count, i64 length,        \
                int width),                                                                                 \
               merge<A>(partial, Results{f16, bf, f32, divisor, root}, outputs, inner, count, length, width))
#define KIND(kind, A)              \
  KERNELS(f16, half, kind, A)      \
  KERNELS(bf16, bf16, kind, A)     \
  KERNELS(f32, float, kind, A)     \
  MERGE(kind, A)

KIND(total, Total)
KIND(largest, Largest)
KIND(moments, Moments)
