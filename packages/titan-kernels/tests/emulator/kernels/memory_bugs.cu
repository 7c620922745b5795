// Planted bugs in memory accesses; every kernel exists with its bug (_bug) and without (_ok).
// A line marked `BUG name` is where the emulator has to find it.
#include <titan/device.cuh>

using namespace titan;

namespace {

template <bool BUG>
__device__ void load_beyond_end(Global<const float> x, Global<float> y, int n) {
  const int i = threadIdx.x;
  if (BUG ? i <= n : i < n) {
    const float value = x.load(i);  // BUG load_beyond_end
    if (i < n) y.store(i, value);
  }
}

template <bool BUG>
__device__ void store_before_begin(Global<const float> x, Global<float> y, int n) {
  const int i = threadIdx.x;
  if (i < n) y.store(BUG ? i - 1 : i, x.load(i));  // BUG store_before_begin
}

template <bool BUG>
__device__ void misaligned_vector(Global<const float> x, Global<float> y, int n) {
  if (threadIdx.x != 0) return;
  const Vec<float, 4> v = x.load_vec<4>(BUG ? 2 : 4);  // BUG misaligned_vector
  y.store_vec<4>(0, v);
}

template <bool BUG>
__device__ void null_pointer(Global<const float> x, Global<float> y, int n) {
  const auto none = Global<const float>::from_address(0);
  if (threadIdx.x == 5) y.store(0, (BUG ? none : x).load(0));  // BUG null_pointer
}

template <bool BUG>
__device__ void stray_address(Global<const float> x, Global<float> y, int n) {
  const u64 address = x.address() + (BUG ? 1ull << 40 : 0);
  if (threadIdx.x == 0) y.store(0, Global<const float>::from_address(address).load(1));  // BUG stray_address
}

template <bool BUG>
__device__ void shared_beyond_end(Global<const float> x, Global<float> y, int n) {
  TITAN_SHARED(float, first, 64);
  TITAN_SHARED(float, second, 64);
  second.store(threadIdx.x, 1.0f);
  first.store(threadIdx.x + (BUG ? 1 : 0), 2.0f);  // BUG shared_beyond_end
  y.store(threadIdx.x, second.load(threadIdx.x));
}

template <bool BUG>
__device__ void shared_misaligned(Global<const float> x, Global<float> y, int n) {
  TITAN_SHARED(float, data, 68);
  if (threadIdx.x == 0) data.store_vec<4>(BUG ? 1 : 4, {{1, 2, 3, 4}});  // BUG shared_misaligned
}

template <bool BUG>
__device__ void uninitialised_shared(Global<const float> x, Global<float> y, int n) {
  TITAN_SHARED(float, data, 64);
  if (threadIdx.x < (BUG ? 63 : 64)) data.store(threadIdx.x, x.load(threadIdx.x));
  __syncthreads();
  y.store(threadIdx.x, data.load(63 - threadIdx.x));  // BUG uninitialised_shared
}

template <bool BUG>
__device__ void dynamic_beyond_end(Global<const float> x, Global<float> y, int n) {
  TITAN_DYNAMIC_SHARED(float, data);
  const Shared<half> tail = (data + 32).as<half>();
  tail.store(threadIdx.x + (BUG && threadIdx.x == 63), to_half(1.0f));  // BUG dynamic_beyond_end
}

template <bool BUG>
__device__ void forgotten_element(Global<const float> x, Global<float> y, int n) {
  const int i = threadIdx.x;
  if (i < (BUG ? n - 1 : n)) y.store(i, x.load(i));
}

template <bool BUG>
__device__ void too_much_shared(Global<const float> x, Global<float> y, int n) {
  TITAN_SHARED(float, large, 8192);
  TITAN_SHARED(float, larger, BUG ? 8192 : 64);  // BUG too_much_shared
  large.store(threadIdx.x, 1.0f);
  larger.store(threadIdx.x, 1.0f);
}

template <bool BUG>
__device__ void division_by_zero(Global<const float> x, Global<float> y, int n) {
  const int divisor = BUG ? n - 64 : n;
  __syncthreads();  // BUG division_by_zero
  y.store(threadIdx.x, static_cast<float>(100 / divisor));
}

// The first block synchronises, the second one divides before that.
template <bool BUG>
__device__ void early_division(Global<const float> x, Global<float> y, int n) {
  if (blockIdx.x == 0) __syncthreads();
  const int divisor = BUG && blockIdx.x == 1 ? n - 64 : n;
  y.store(blockIdx.x * 64 + threadIdx.x, static_cast<float>(100 / divisor));
}

__device__ float deep(Global<const float> x, int depth) {
  float local[1024];
  for (int i = 0; i < 1024; ++i) local[i] = x.load(i % 64) + depth;
  return depth == 0 ? local[5] : deep(x, depth - 1) + local[depth];
}

template <bool BUG>
__device__ void stack_overflow(Global<const float> x, Global<float> y, int n) {
  __syncthreads();  // BUG stack_overflow
  y.store(threadIdx.x, deep(x, BUG ? 100 : 3));
}

template <bool BUG>
__device__ void trap(Global<const float> x, Global<float> y, int n) {
  if (BUG && threadIdx.x == 9) __trap();  // BUG trap
}

}  // namespace

#define BOTH(name)                                                                                   \
  TITAN_KERNEL(name##_bug, 64, (Global<const float> x, Global<float> y, int n), name<true>(x, y, n)) \
  TITAN_KERNEL(name##_ok, 64, (Global<const float> x, Global<float> y, int n), name<false>(x, y, n))
BOTH(load_beyond_end)
BOTH(store_before_begin)
BOTH(misaligned_vector)
BOTH(null_pointer)
BOTH(stray_address)
BOTH(shared_beyond_end)
BOTH(shared_misaligned)
BOTH(uninitialised_shared)
BOTH(dynamic_beyond_end)
BOTH(forgotten_element)
BOTH(too_much_shared)
BOTH(division_by_zero)
BOTH(early_division)
BOTH(stack_overflow)
BOTH(trap)
