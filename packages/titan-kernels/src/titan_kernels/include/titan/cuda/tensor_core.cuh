// Matrix instructions of Turing (m16n8k8, s8 m8n8k16, ldmatrix) and Volta (m8n8k4).
// Fragment layouts: PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions".
#pragma once

#include <titan/cuda/memory.cuh>

namespace titan {

#if __CUDA_ARCH__ >= 750

// Loads COUNT (1, 2 or 4) 8x8 matrices of 16-bit elements; lane 8*m+i holds the address of row i of
// matrix m (16-byte aligned).  TRANS transposes each matrix.
template <int COUNT, bool TRANS = false, class T>
__device__ __forceinline__ void ldmatrix(u32 (&r)[COUNT], Shared<T> row) {
  const u32 a = row.address();
  static_assert(COUNT == 1 || COUNT == 2 || COUNT == 4);
#define TITAN_LDMATRIX(shape, registers, ...)                                                          \
  if constexpr (TRANS)                                                                                  \
    asm volatile("ldmatrix.sync.aligned.m8n8." shape ".trans.shared.b16 " registers ";" __VA_ARGS__);   \
  else                                                                                                  \
    asm volatile("ldmatrix.sync.aligned.m8n8." shape ".shared.b16 " registers ";" __VA_ARGS__)
  if constexpr (COUNT == 1) {
    TITAN_LDMATRIX("x1", "{%0},[%1]", : "=r"(r[0]) : "r"(a) : "memory");
  } else if constexpr (COUNT == 2) {
    TITAN_LDMATRIX("x2", "{%0,%1},[%2]", : "=r"(r[0]), "=r"(r[1]) : "r"(a) : "memory");
  } else {
    TITAN_LDMATRIX("x4", "{%0,%1,%2,%3},[%4]", : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a) : "memory");
  }
#undef TITAN_LDMATRIX
}

// c (16x8, fp32) += a (16x8, fp16, row) * b (8x8, fp16, col).
__device__ __forceinline__ void mma_m16n8k8(float (&c)[4], const u32 (&a)[2], u32 b) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(b));
}

// c (8x8, s32) += a (8x16, s8, row) * b (16x8, s8, col).
__device__ __forceinline__ void mma_m8n8k16_s8(int (&c)[2], u32 a, u32 b) {
  asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1},{%2},{%3},{%0,%1};"
               : "+r"(c[0]), "+r"(c[1])
               : "r"(a), "r"(b));
}

#endif

// Four quad-pair products at once: c (8x8, fp32) += a (8x4, fp16, row) * b (4x8, fp16, col or row).
template <bool B_ROW_MAJOR = false>
__device__ __forceinline__ void mma_m8n8k4(float (&c)[8], const u32 (&a)[2], const u32 (&b)[2]) {
#define TITAN_MMA884(layout)                                                                        \
  asm volatile("mma.sync.aligned.m8n8k4.row." layout                                                \
               ".f32.f16.f16.f32 {%0,%1,%2,%3,%4,%5,%6,%7},{%8,%9},{%10,%11},{%0,%1,%2,%3,%4,%5,%6,%7};" \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]) \
               : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]))
  if constexpr (B_ROW_MAJOR) TITAN_MMA884("row");
  else TITAN_MMA884("col");
#undef TITAN_MMA884
}

}  // namespace titan
