// One matrix instruction with registers straight from global memory, lane by lane.
#include <titan/device.cuh>

using namespace titan;

namespace {

__device__ void m8n8k4(Global<const u32> a, Global<const u32> b, Global<const float> c, Global<float> d,
                       int b_row_major) {
  const int lane = threadIdx.x;
  const u32 ra[2] = {a.load(lane * 2), a.load(lane * 2 + 1)},
            rb[2] = {b.load(lane * 2), b.load(lane * 2 + 1)};
  float rc[8];
  for (int i = 0; i < 8; ++i) rc[i] = c.load(lane * 8 + i);
  if (b_row_major) mma_m8n8k4<true>(rc, ra, rb);
  else mma_m8n8k4<false>(rc, ra, rb);
  for (int i = 0; i < 8; ++i) d.store(lane * 8 + i, rc[i]);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750
__device__ void m16n8k8(Global<const u32> a, Global<const u32> b, Global<const float> c, Global<float> d) {
  const int lane = threadIdx.x;
  const u32 ra[2] = {a.load(lane * 2), a.load(lane * 2 + 1)};
  float rc[4];
  for (int i = 0; i < 4; ++i) rc[i] = c.load(lane * 4 + i);
  mma_m16n8k8(rc, ra, b.load(lane));
  for (int i = 0; i < 4; ++i) d.store(lane * 4 + i, rc[i]);
}

__device__ void m8n8k16(Global<const u32> a, Global<const u32> b, Global<const int> c, Global<int> d) {
  const int lane = threadIdx.x;
  int rc[2] = {c.load(lane * 2), c.load(lane * 2 + 1)};
  mma_m8n8k16_s8(rc, a.load(lane), b.load(lane));
  for (int i = 0; i < 2; ++i) d.store(lane * 2 + i, rc[i]);
}

// Rows of matrix m at the offsets that `row` names, lane by lane.
template <int COUNT, bool TRANS>
__device__ void load_matrices(Global<const unsigned short> x, Global<const int> row, Global<u32> y) {
  TITAN_SHARED(unsigned short, tile, 512);
  const int lane = threadIdx.x;
  for (int i = lane; i < 512; i += 32) tile.store(i, x.load(i));
  __syncwarp();
  u32 r[COUNT];
  ldmatrix<COUNT, TRANS>(r, tile + row.load(lane));
  for (int m = 0; m < COUNT; ++m) y.store(lane * COUNT + m, r[m]);
}
#endif

}  // namespace

TITAN_KERNEL(mma_884, 32,
             (Global<const u32> a, Global<const u32> b, Global<const float> c, Global<float> d,
              int b_row_major),
             m8n8k4(a, b, c, d, b_row_major))
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750
TITAN_KERNEL(mma_1688, 32, (Global<const u32> a, Global<const u32> b, Global<const float> c, Global<float> d),
             m16n8k8(a, b, c, d))
TITAN_KERNEL(mma_8816, 32, (Global<const u32> a, Global<const u32> b, Global<const int> c, Global<int> d),
             m8n8k16(a, b, c, d))
#define LDMATRIX(n)                                                                                      \
  TITAN_KERNEL(ldmatrix_##n, 32, (Global<const unsigned short> x, Global<const int> row, Global<u32> y), \
               load_matrices<n, false>(x, row, y))                                                       \
  TITAN_KERNEL(ldmatrix_trans_##n, 32,                                                                   \
               (Global<const unsigned short> x, Global<const int> row, Global<u32> y),                   \
               load_matrices<n, true>(x, row, y))
LDMATRIX(1)
LDMATRIX(2)
LDMATRIX(4)
#endif
