// Shuffles, votes, barriers with votes, atomics, and the order in which threads run.
#include <titan/device.cuh>

using namespace titan;

namespace {

// Per lane: the four shuffles of `x` with the lane's own operand.
template <class T>
__device__ void shuffles(Global<const T> x, Global<const int> operand, Global<T> y, int width) {
  const int lane = threadIdx.x, o = operand.load(lane);
  const T value = x.load(lane);
  y.store(lane, __shfl_sync(FULL_MASK, value, o, width));
  y.store(32 + lane, __shfl_up_sync(FULL_MASK, value, 3, width));
  y.store(64 + lane, __shfl_down_sync(FULL_MASK, value, 5, width));
  y.store(96 + lane, __shfl_xor_sync(FULL_MASK, value, 6, width));
}

__device__ void votes(Global<const int> predicate, Global<int> y) {
  const int i = threadIdx.x, p = predicate.load(i);
  const Global<int> mine = y + i * 6;
  mine.store(0, static_cast<int>(__ballot_sync(FULL_MASK, p)));
  mine.store(1, __any_sync(FULL_MASK, p));
  mine.store(2, __all_sync(FULL_MASK, p));
  mine.store(3, __syncthreads_count(p));
  mine.store(4, __syncthreads_or(p));
  mine.store(5, __syncthreads_and(p));
}

__device__ void atomics(Global<int> counters, Global<float> sum, Global<int> order) {
  TITAN_SHARED(int, local, 4);
  if (threadIdx.x < 4) local.store(threadIdx.x, 0);
  __syncthreads();
  local.atomic_add(threadIdx.x % 4, 1);
  __syncthreads();
  if (threadIdx.x < 4) counters.atomic_add(threadIdx.x, local.load(threadIdx.x));
  counters.atomic_max(4, static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x));
  sum.atomic_add(0, 0.5f);
  const int place = counters.atomic_add(5, 1);
  order.store(place, static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x));
}

__device__ void reductions(Global<const float> x, Global<float> y) {
  TITAN_SHARED(float, scratch, 32);
  const float value = x.load(threadIdx.x);
  y.store(threadIdx.x, block_reduce<Sum>(value, scratch));
  y.store(blockDim.x + threadIdx.x, block_reduce<Max>(value, scratch));
}

// Where in grid and block a thread is, and what blocks share.
__device__ void indices(Global<int> y) {
  const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  y.store(block * blockDim.x * blockDim.y * blockDim.z + thread, block * 1000 + thread);
}

// Partial sums that the last block to finish adds up: blocks order each other by fence and counter.
template <bool FENCE>
__device__ void last_block(Global<const float> x, Global<float> partial, Global<int> finished,
                           Global<float> y) {
  TITAN_SHARED(int, last, 1);
  if (threadIdx.x == 0) {
    partial.store(blockIdx.x, x.load(blockIdx.x));
    if (FENCE) __threadfence();
    last.store(0, finished.atomic_add(0, 1) == static_cast<int>(gridDim.x) - 1);
  }
  __syncthreads();
  if (last.load(0) == 0 || threadIdx.x != 0) return;
  float sum = 0;
  for (int i = 0; i < static_cast<int>(gridDim.x); ++i) sum += partial.load(i);
  y.store(0, sum);
}

// Arrays of arguments: sizes and pointers by value.
__device__ void packed(Array<Global<const float>, 3> in, Array<i64, 3> sizes, Array<float, 3> scale,
                       Global<float> y) {
  for (int k = 0; k < 3; ++k)
    if (in[k] && threadIdx.x < sizes[k]) y.store(k * 32 + threadIdx.x, in[k].load(threadIdx.x) * scale[k]);
}

}  // namespace

TITAN_KERNEL(shuffles_f32, 32, (Global<const float> x, Global<const int> operand, Global<float> y, int width),
             shuffles<float>(x, operand, y, width))
TITAN_KERNEL(shuffles_f16, 32, (Global<const half> x, Global<const int> operand, Global<half> y, int width),
             shuffles<half>(x, operand, y, width))
TITAN_KERNEL(shuffles_i64, 32, (Global<const i64> x, Global<const int> operand, Global<i64> y, int width),
             shuffles<i64>(x, operand, y, width))
TITAN_KERNEL(votes_i32, 1024, (Global<const int> predicate, Global<int> y), votes(predicate, y))
TITAN_KERNEL(atomics_i32, 1024, (Global<int> counters, Global<float> sum, Global<int> order),
             atomics(counters, sum, order))
TITAN_KERNEL(reductions_f32, 1024, (Global<const float> x, Global<float> y), reductions(x, y))
TITAN_KERNEL(indices_i32, 1024, (Global<int> y), indices(y))
TITAN_KERNEL(last_block_fenced, 64,
             (Global<const float> x, Global<float> partial, Global<int> finished, Global<float> y),
             last_block<true>(x, partial, finished, y))
TITAN_KERNEL(last_block_unfenced, 64,
             (Global<const float> x, Global<float> partial, Global<int> finished, Global<float> y),
             last_block<false>(x, partial, finished, y))
TITAN_KERNEL(packed_f32, 32,
             (Array<Global<const float>, 3> in, Array<i64, 3> sizes, Array<float, 3> scale, Global<float> y),
             packed(in, sizes, scale, y))
