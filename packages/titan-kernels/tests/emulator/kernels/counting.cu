// Kernels whose counters can be worked out by hand.  `COUNT name` marks the line that counts.
#include <titan/device.cuh>

using namespace titan;

namespace {

// One load and one store of BYTES per thread, thread i at element i * stride + offset.
template <class T, int N>
__device__ void copy(Global<const T> x, Global<T> y, int stride, int offset) {
  const i64 i = static_cast<i64>(blockIdx.x * blockDim.x + threadIdx.x) * stride + offset;
  const Vec<T, N> v = x.template load_vec<N>(i);  // COUNT copy_load
  y.template store_vec<N>(i, v);                  // COUNT copy_store
}

// Thread i reads and writes vector i * stride of N elements.
template <class T, int N>
__device__ void shared_copy(int stride, int repeat) {
  TITAN_DYNAMIC_SHARED(T, data);
  for (int k = 0; k < repeat; ++k) {
    data.template store_vec<N>(threadIdx.x * stride * N, {});  // COUNT shared_store
    __syncwarp();
    data.template load_vec<N>(threadIdx.x * stride * N);  // COUNT shared_load
    __syncwarp();
  }
}

// All lanes read one word; half of them read it as halves.
__device__ void shared_broadcast() {
  TITAN_SHARED(float, data, 32);
  data.store(threadIdx.x, 1.0f);
  __syncwarp();
  data.load(7);                       // COUNT broadcast
  data.as<half>().load(threadIdx.x);  // COUNT halves
}

__device__ void divergent(Global<const float> x) {
  if (threadIdx.x % 2 == 0) x.load(threadIdx.x);                                         // COUNT even_lanes
  for (int i = 0; i < static_cast<int>(threadIdx.x); ++i) x.load(i * 32 + threadIdx.x);  // COUNT trips
  x.load(threadIdx.x);  // COUNT together_again
}

__device__ void instructions(Global<int> counter) {
  TITAN_SHARED(int, sum, 1);
  if (threadIdx.x == 0) sum.store(0, 0);
  __syncthreads();                                               // COUNT barrier
  for (int i = 0; i < 3; ++i) __shfl_xor_sync(FULL_MASK, 1, 1);  // COUNT shuffle
  __any_sync(FULL_MASK, 1);                                      // COUNT vote
  if (threadIdx.x < 8) sum.atomic_add(0, 1);                     // COUNT shared_atomic
  counter.atomic_add(threadIdx.x % 4, 1);                        // COUNT global_atomic
  expf(1.0f) + rsqrtf(2.0f);                                     // COUNT special
}

// Rows of 64 halves in shared memory, with or without an offset that spreads them over the banks.
template <int ROW>
__device__ void matrix_products() {
  TITAN_SHARED(half, tile, 16 * ROW);
  for (int i = threadIdx.x; i < 16 * ROW; i += 32) tile.store(i, to_half(0.0f));
  __syncwarp();
  u32 a[4];
  ldmatrix<4>(a, tile + threadIdx.x % 16 * ROW + threadIdx.x / 16 * 8);  // COUNT ldmatrix
  float c[4] = {}, d[8] = {};
  int e[2] = {};
  const u32 first[2] = {a[0], a[1]};
  for (int k = 0; k < 5; ++k) mma_m16n8k8(c, first, a[2]);  // COUNT m16n8k8
  mma_m8n8k4(d, first, first);                              // COUNT m8n8k4
  mma_m8n8k16_s8(e, a[0], a[1]);                            // COUNT m8n8k16
}

}  // namespace

#define COPY(name, T, N)                                                                    \
  TITAN_KERNEL(copy_##name, 1024, (Global<const T> x, Global<T> y, int stride, int offset), \
               copy<T, N>(x, y, stride, offset))                                            \
  TITAN_KERNEL(shared_##name, 1024, (int stride, int repeat), shared_copy<T, N>(stride, repeat))
COPY(2, half, 1)
COPY(4, float, 1)
COPY(8, float, 2)
COPY(16, half, 8)
TITAN_KERNEL(broadcast, 32, (), shared_broadcast())
TITAN_KERNEL(divergent_loads, 32, (Global<const float> x), divergent(x))
TITAN_KERNEL(instruction_mix, 64, (Global<int> counter), instructions(counter))
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750
TITAN_KERNEL(products_64, 32, (), matrix_products<64>())
TITAN_KERNEL(products_72, 32, (), matrix_products<72>())
#endif
