// Passes over the elements of many tensors in one launch.
//
// Pointers and sizes come by value, as parameters, so that nothing is copied to the device first and a CUDA
// graph can hold the launch.  A block works on one chunk of one tensor; the chunks of all tensors are
// numbered, and chunk `first[t]` is the first one of tensor t.
#include <titan/device.cuh>
#include <titan/flat.cuh>

using namespace titan;

namespace {

constexpr int THREADS = 256;
constexpr int TOTAL_THREADS = 1024;
constexpr int CHUNK = 1 << 15;
// As many as fit into 4 KB of parameters.
constexpr int NORM_TENSORS = 200;
constexpr int CAST_TENSORS = 144;

// The part of a tensor that a block works on.
struct Chunk {
  int tensor, count;
  i64 begin;
};

template <int N>
__device__ __forceinline__ Chunk chunk_of_block(const Array<i64, N>& counts, const Array<int, N + 1>& first,
                                                int tensors) {
  int low = 0, high = tensors;  // first[low] <= blockIdx.x < first[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (first[middle] <= static_cast<int>(blockIdx.x)) low = middle;
    else high = middle;
  }
  const i64 begin = (static_cast<int>(blockIdx.x) - first[low]) * static_cast<i64>(CHUNK);
  return {low, static_cast<int>(min(static_cast<i64>(CHUNK), counts[low] - begin)), begin};
}

// The chunk's sum of squares, and 1 if it has an infinity or a NaN; the squares of finite elements may
// overflow, so the sum doesn't tell.
template <class T>
__device__ __forceinline__ void norm_of_chunk(Global<const T> x, int count, Global<float> squares,
                                              Global<float> strange, i64 record) {
  constexpr int W = WIDTH<T>;
  TITAN_SHARED(float, scratch, 32);
  const Row<const T> in(x, count);
  float sums[W] = {};
  bool finite = true;
  in.each(threadIdx.x, blockDim.x, [&](const Slot& s) {
    float v[W];
    in.load(s, v);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      sums[j] += v[j] * v[j];
      finite = finite && (float_bits(v[j]) & 0x7f800000u) != 0x7f800000u;
    }
  });
#pragma unroll
  for (int step = W / 2; step > 0; step /= 2)
#pragma unroll
    for (int j = 0; j < step; ++j) sums[j] += sums[j + step];
  const float total = block_reduce<Sum>(sums[0], scratch);
  const float found = block_reduce<Max>(finite ? 0.0f : 1.0f, scratch);
  if (threadIdx.x != 0) return;
  squares.store(record, total);
  strange.store(record, found);
}

// All records in one block, in an order that depends on their number only.
__device__ __forceinline__ void norm_total(Global<const float> squares, Global<const float> strange,
                                           Global<float> norm, Global<float> found, int records) {
  TITAN_SHARED(float, scratch, 32);
  float total = 0.0f, any = 0.0f;
  for (int i = threadIdx.x; i < records; i += blockDim.x) {
    total += squares.load(i);
    any = Max::combine(any, strange.load(i));
  }
  total = block_reduce<Sum>(total, scratch);
  any = block_reduce<Max>(any, scratch);
  if (threadIdx.x != 0) return;
  norm.store(0, __fsqrt_rn(total));
  found.store(0, any);
}

// The norm of each tensor by a warp; `places` are the tensors' places in the result.
template <int N>
__device__ __forceinline__ void norm_each(Global<const float> squares, Global<float> norms,
                                          const Array<int, N + 1>& first, const Array<int, N>& places,
                                          int tensors) {
  const int tensor = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  if (tensor >= tensors) return;
  float total = 0.0f;
  for (int i = first[tensor] + threadIdx.x % 32; i < first[tensor + 1]; i += 32) total += squares.load(i);
  total = warp_reduce<Sum>(total);
  if (threadIdx.x % 32 == 0) norms.store(places[tensor], __fsqrt_rn(total));
}

// `from` may be `to`: so it isn't const, which would mean that nobody writes there.
template <class S, class D>
__device__ __forceinline__ void cast_chunk(Global<S> from, Global<D> to, int count, float scale) {
  constexpr int W = WIDTH<S> < WIDTH<D> ? WIDTH<S> : WIDTH<D>;
  Flat<W>(count, from, to).for_each(threadIdx.x, blockDim.x, [&](auto width, i64 i) {
    float v[width.value];
    load_floats(from, i, v);
#pragma unroll
    for (int j = 0; j < width.value; ++j) v[j] *= scale;
    store_floats(to, i, v);
  });
}

}  // namespace

#define NORM(t, T)                                                                                         \
  TITAN_KERNEL(multi_tensor_norm_##t, THREADS,                                                             \
               (Array<Global<const T>, NORM_TENSORS> x, Array<i64, NORM_TENSORS> counts,                   \
                Array<int, NORM_TENSORS + 1> first, int tensors, Global<float> squares,                    \
                Global<float> strange, i64 record),                                                        \
               const Chunk c = chunk_of_block(counts, first, tensors);                                     \
               norm_of_chunk(x[c.tensor] + c.begin, c.count, squares, strange, record + blockIdx.x))
TITAN_FOR_EACH_FLOAT(NORM)

TITAN_KERNEL(multi_tensor_norm_total, TOTAL_THREADS,
             (Global<const float> squares, Global<const float> strange, Global<float> norm,
              Global<float> found, int records),
             norm_total(squares, strange, norm, found, records))

TITAN_KERNEL(multi_tensor_norm_each, THREADS,
             (Global<const float> squares, Global<float> norms, Array<int, NORM_TENSORS + 1> first,
              Array<int, NORM_TENSORS> places, int tensors),
             norm_each(squares, norms, first, places, tensors))

#define CAST(s, S, d, D)                                                                                   \
  TITAN_KERNEL(multi_tensor_cast_##s##_##d, THREADS,                                                       \
               (Array<Global<S>, CAST_TENSORS> from, Array<Global<D>, CAST_TENSORS> to,                    \
                Array<i64, CAST_TENSORS> counts, Array<int, CAST_TENSORS + 1> first, int tensors,          \
                Global<const float> scale, float factor),                                                  \
               const Chunk c = chunk_of_block(counts, first, tensors);                                     \
               cast_chunk(from[c.tensor] + c.begin, to[c.tensor] + c.begin, c.count,                       \
                          scale ? scale.load() * factor : factor))
#define CASTS(d, D)       \
  CAST(f16, half, d, D)   \
  CAST(bf16, bf16, d, D)  \
  CAST(f32, float, d, D)
TITAN_FOR_EACH_FLOAT(CASTS)
