// Planted bugs in the order of accesses and in synchronisation; see memory_bugs.cu for the marks.
// `OTHER name` marks the line of the other party of a race.
#include <titan/device.cuh>

using namespace titan;

namespace {

template <bool BUG>
__device__ void missing_barrier(Global<float> y) {
  TITAN_SHARED(float, data, 64);
  data.store(threadIdx.x, 0.0f);
  __syncthreads();
  data.store(threadIdx.x, threadIdx.x);  // OTHER missing_barrier
  if (!BUG) __syncthreads();
  y.store(threadIdx.x, data.load((threadIdx.x + 32) % 64));  // BUG missing_barrier
}

// The loop's second barrier is missing: a fast warp overwrites what a slow one still reads.
template <bool BUG>
__device__ void overwritten_too_soon(Global<float> y) {
  TITAN_SHARED(float, data, 64);
  float sum = 0;
  for (int i = 0; i < 3; ++i) {
    data.store(threadIdx.x, i);  // BUG overwritten_too_soon
    __syncthreads();
    sum += data.load(63 - threadIdx.x);  // OTHER overwritten_too_soon
    if (!BUG) __syncthreads();
  }
  y.store(threadIdx.x, sum);
}

template <bool BUG>
__device__ void two_writers(Global<float> y) {
  TITAN_SHARED(float, data, 64);
  data.store(BUG ? threadIdx.x / 2 : threadIdx.x, 1.0f);  // BUG two_writers // OTHER two_writers
}

// A shuffle exchanges registers; it does not order shared memory.
template <bool BUG>
__device__ void missing_syncwarp(Global<float> y) {
  TITAN_SHARED(half, data, 64);
  data.store(threadIdx.x, to_half(threadIdx.x));  // OTHER missing_syncwarp
  __shfl_sync(FULL_MASK, 1.0f, 0);
  if (!BUG) __syncwarp();
  y.store(threadIdx.x, to_float(data.load(threadIdx.x ^ 1)));  // BUG missing_syncwarp
}

template <bool BUG>
__device__ void plain_among_atomics(Global<float> y) {
  TITAN_SHARED(int, counter, 1);
  if (threadIdx.x == 0) counter.store(0, 0);
  __syncthreads();
  counter.atomic_add(0, 1);  // OTHER plain_among_atomics
  if (!BUG) __syncthreads();
  if (threadIdx.x == 40) y.store(0, counter.load(0));  // BUG plain_among_atomics
}

template <bool BUG>
__device__ void barrier_in_branch(Global<float> y) {
  if (BUG ? threadIdx.x < 32 : threadIdx.x < 64) __syncthreads();  // BUG barrier_in_branch
}

template <bool BUG>
__device__ void two_barriers(Global<float> y) {
  if (BUG && threadIdx.x >= 32) __syncthreads();  // OTHER two_barriers
  else __syncthreads();                           // BUG two_barriers
}

template <bool BUG>
__device__ void early_return(Global<float> y) {
  if (BUG && threadIdx.x == 50) return;
  __syncthreads();  // BUG early_return
}

template <bool BUG>
__device__ void deadlock(Global<float> y) {
  if (BUG && threadIdx.x % 2 == 0) __syncthreads();  // OTHER deadlock
  __shfl_xor_sync(FULL_MASK, 1, 1);                  // BUG deadlock
  if (!BUG) __syncthreads();
}

template <bool BUG>
__device__ void lane_left(Global<float> y) {
  if (BUG && threadIdx.x % 32 == 7) return;
  y.store(threadIdx.x, __shfl_sync(FULL_MASK, 1.0f, 7));  // BUG lane_left
}

template <bool BUG>
__device__ void two_shuffles(Global<float> y) {
  float value = 0;
  if (BUG && threadIdx.x % 32 < 16) value = __shfl_xor_sync(FULL_MASK, 1.0f, 1);  // OTHER two_shuffles
  else value = __shfl_xor_sync(FULL_MASK, 2.0f, 1);                               // BUG two_shuffles
  y.store(threadIdx.x, value);
}

template <bool BUG>
__device__ void partial_mask(Global<float> y) {
  y.store(threadIdx.x, __shfl_sync(BUG ? 0xffffu : FULL_MASK, 1.0f, 0));  // BUG partial_mask
}

template <bool BUG>
__device__ void odd_width(Global<float> y) {
  y.store(threadIdx.x, __shfl_sync(FULL_MASK, 1.0f, 0, BUG ? 12 : 8));  // BUG odd_width
}

template <bool BUG>
__device__ void blocks_collide(Global<float> y) {
  if (threadIdx.x == 0)
    y.store(BUG ? blockIdx.x / 2 : blockIdx.x, 1.0f);  // BUG blocks_collide // OTHER blocks_collide
}

// Reads what another block of the launch writes.
template <bool BUG>
__device__ void block_reads_block(Global<float> y) {
  if (threadIdx.x == 0) {
    y.store(blockIdx.x, 1.0f);
    y.load(BUG ? blockIdx.x ^ 1 : blockIdx.x);
  }
}

template <bool BUG>
__device__ void global_without_barrier(Global<float> y) {
  const Global<float> mine = y + blockIdx.x * 64;
  mine.store(threadIdx.x, 1.0f);  // OTHER global_without_barrier
  if (!BUG) __syncthreads();
  mine.load(63 - threadIdx.x);  // BUG global_without_barrier
}

template <bool BUG>
__device__ void endless(Global<float> y) {
  if (threadIdx.x == 0) y.store(0, 0.0f);
  __syncthreads();
  if (threadIdx.x == 1)
    for (float x = 0; BUG && x == 0;) x = y.load(0);  // BUG endless
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750
template <bool BUG>
__device__ void ldmatrix_without_sync(Global<float> y) {
  TITAN_SHARED(half, tile, 128);
  const Shared<half> mine = tile + threadIdx.x / 32 * 64;
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < 2; ++i) mine.store(63 - lane * 2 - i, to_half(1.0f));  // OTHER ldmatrix_without_sync
  if (!BUG) __syncwarp();
  u32 r[1];
  ldmatrix<1>(r, mine + lane % 8 * 8);  // BUG ldmatrix_without_sync
}

template <bool BUG>
__device__ void ldmatrix_misaligned(Global<float> y) {
  TITAN_SHARED(half, tile, 80);
  for (int i = threadIdx.x; i < 80; i += 64) tile.store(i, to_half(1.0f));
  __syncthreads();
  u32 r[1];
  ldmatrix<1>(r, tile + threadIdx.x % 8 * (BUG ? 9 : 8));  // BUG ldmatrix_misaligned
}
#endif

}  // namespace

#define BOTH(name)                                               \
  TITAN_KERNEL(name##_bug, 64, (Global<float> y), name<true>(y)) \
  TITAN_KERNEL(name##_ok, 64, (Global<float> y), name<false>(y))
BOTH(missing_barrier)
BOTH(overwritten_too_soon)
BOTH(two_writers)
BOTH(missing_syncwarp)
BOTH(plain_among_atomics)
BOTH(barrier_in_branch)
BOTH(two_barriers)
BOTH(early_return)
BOTH(deadlock)
BOTH(lane_left)
BOTH(two_shuffles)
BOTH(partial_mask)
BOTH(odd_width)
BOTH(blocks_collide)
BOTH(block_reads_block)
BOTH(global_without_barrier)
BOTH(endless)
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750
BOTH(ldmatrix_without_sync)
BOTH(ldmatrix_misaligned)
#endif
