// Matrix instructions: ldmatrix, mma m16n8k8 and m8n8k4 (fp16), m8n8k16 (s8).
#pragma once

#include <titan_emulator/shared_memory.h>
#include <titan_emulator/warp.h>

namespace titan::emulator {

// What lanes bring to an instruction; accumulators come and go through `c`.
struct MatrixRow {
  const SharedArray* array;
  i64 offset;
  int matrices;
  bool transposed;
};

struct InputsM16N8K8 {
  const float* c;
  u32 a[2], b;
};

struct InputsM8N8K4 {
  const float* c;
  u32 a[2], b[2];
  bool b_row_major;
};

struct InputsM8N8K16 {
  const int* c;
  u32 a, b;
};

void run_ldmatrix(Warp& warp, Site at);
void run_m16n8k8(Warp& warp, Site at);
void run_m8n8k4(Warp& warp, Site at);
void run_m8n8k16_s8(Warp& warp, Site at);

}  // namespace titan::emulator

namespace titan {

template <int COUNT, bool TRANS = false, class T>
inline void ldmatrix(u32 (&r)[COUNT], Shared<T> row, Site at = Site::here()) {
  static_assert(COUNT == 1 || COUNT == 2 || COUNT == 4);
  const emulator::MatrixRow in{row.array(), row.address(), COUNT, TRANS};
  emulator::tick(at);
  emulator::collective("ldmatrix", at, emulator::run_ldmatrix, &in, &r);
}

inline void mma_m16n8k8(float (&c)[4], const u32 (&a)[2], u32 b, Site at = Site::here()) {
  const emulator::InputsM16N8K8 in{c, {a[0], a[1]}, b};
  emulator::collective("mma m16n8k8", at, emulator::run_m16n8k8, &in, &c);
}

inline void mma_m8n8k16_s8(int (&c)[2], u32 a, u32 b, Site at = Site::here()) {
  const emulator::InputsM8N8K16 in{c, a, b};
  emulator::collective("mma m8n8k16 s8", at, emulator::run_m8n8k16_s8, &in, &c);
}

template <bool B_ROW_MAJOR = false>
inline void mma_m8n8k4(float (&c)[8], const u32 (&a)[2], const u32 (&b)[2], Site at = Site::here()) {
  const emulator::InputsM8N8K4 in{c, {a[0], a[1]}, {b[0], b[1]}, B_ROW_MAJOR};
  emulator::collective("mma m8n8k4", at, emulator::run_m8n8k4, &in, &c);
}

}  // namespace titan
