// What matrix instructions compute.
//
// Fragment layouts: PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions".  Products are added in
// fp32 in ascending k; the hardware's order and truncation differ in the last bits.
#pragma once

#include <titan_emulator/half.h>
#include <titan_emulator/runtime/shared_checks.h>
#include <titan_emulator/tensor_core.h>

namespace titan::emulator {

// The 16-bit half `i` of a register.
inline float half_of(u32 r, int i) { return __half2float(__ushort_as_half(static_cast<u16>(r >> (16 * i)))); }

// Lanes that read a word of a matrix's row: their accesses decide about races.
inline const Thread& reader_of(const Warp& warp, int row, int word, bool transposed) {
  return warp.threads[transposed ? word * 8 + row / 2 : row * 4 + word];
}

inline void check_matrix_row(const Warp& warp, int lane, bool transposed, Site at) {
  const MatrixRow& row = input<MatrixRow>(warp, lane);
  check_extent({row.array, row.offset, 16, 2, at}, "ldmatrix", warp.threads[lane]);
  for (int word = 0; word < 4; ++word) {
    const Thread& reader = reader_of(warp, lane % 8, word, transposed);
    const Access now{warp.stamp, reader.number, sites.number(at)};
    check_shared_read({row.array, row.offset + 4 * word, 4, 2, at}, "ldmatrix", now, reader);
  }
}

// One phase per matrix: eight rows of 16 bytes.
inline void count_ldmatrix(const Warp& warp, int matrices, Site at) {
  Counts& c = sites.counts(sites.number(at));
  Request r(sites.number(at), SHARED_LOAD, 16);
  for (int lane = 0; lane < 8 * matrices; ++lane) r.add(lane, input<MatrixRow>(warp, lane).offset);
  const auto [actual, ideal] = wavefront_counts(r);
  ++c.value[shared_load_requests];
  c.value[shared_load_wavefronts] += actual;
  c.value[shared_load_ideal_wavefronts] += ideal;
}

void run_ldmatrix(Warp& warp, Site at) {
  const int count = input<MatrixRow>(warp, 0).matrices;
  const bool transposed = input<MatrixRow>(warp, 0).transposed;
  if (launch.options.count) count_ldmatrix(warp, count, at);
  for (int matrix = 0; matrix < count; ++matrix) {
    u16 element[8][8];
    for (int row = 0; row < 8; ++row) {
      const int lane = 8 * matrix + row;
      if (launch.options.check) check_matrix_row(warp, lane, transposed, at);
      memcpy(element[row], arena.at(input<MatrixRow>(warp, lane).offset), 16);
    }
    for (int lane = 0; lane < WARP_SIZE; ++lane) {
      const int i = lane / 4, j = lane % 4 * 2;
      const u32 low = transposed ? element[j][i] : element[i][j];
      const u32 high = transposed ? element[j + 1][i] : element[i][j + 1];
      (&output<u32>(warp, lane))[matrix] = low | high << 16;
    }
  }
}

void run_m16n8k8(Warp& warp, Site at) {
  count(at, mma_m16n8k8);
  count(at, mma_flops, 2 * 16 * 8 * 8);
  float a[16][8], b[8][8], c[16][8];
  for (int lane = 0; lane < WARP_SIZE; ++lane) {
    const auto& in = input<InputsM16N8K8>(warp, lane);
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) {
      a[group + i / 2 * 8][pair + i % 2] = half_of(in.a[i / 2], i % 2);
      c[group + i / 2 * 8][pair + i % 2] = in.c[i];
    }
    for (int i = 0; i < 2; ++i) b[pair + i][group] = half_of(in.b, i);
  }
  for (int m = 0; m < 16; ++m)
    for (int k = 0; k < 8; ++k)
      for (int n = 0; n < 8; ++n) c[m][n] += a[m][k] * b[k][n];
  for (int lane = 0; lane < WARP_SIZE; ++lane)
    for (int i = 0; i < 4; ++i)
      output<float[4]>(warp, lane)[i] = c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
}

// Row and column of accumulator i.
inline int row_884(int lane, int i) { return (lane & 1) + (i & 2) + (lane >= 16 ? 4 : 0); }
inline int column_884(int lane, int i) { return (i & 4) + (lane & 2) + (i & 1); }

// Quad pair q: lanes 4q ... 4q+3 and 16 above them.
inline void run_quad_pair(Warp& warp, int quad_pair) {
  float a[8][4], b[4][8], c[8][8];
  const auto lane_of = [quad_pair](int i) { return quad_pair * 4 + i % 4 + i / 4 * 16; };
  for (int t = 0; t < 8; ++t) {
    const int lane = lane_of(t);
    const auto& in = input<InputsM8N8K4>(warp, lane);
    for (int i = 0; i < 4; ++i) {
      a[t][i] = half_of(in.a[i / 2], i % 2);
      (in.b_row_major ? b[t % 4][i + t / 4 * 4] : b[i][t]) = half_of(in.b[i / 2], i % 2);
    }
    for (int i = 0; i < 8; ++i) c[row_884(lane, i)][column_884(lane, i)] = in.c[i];
  }
  for (int m = 0; m < 8; ++m)
    for (int k = 0; k < 4; ++k)
      for (int n = 0; n < 8; ++n) c[m][n] += a[m][k] * b[k][n];
  for (int t = 0; t < 8; ++t)
    for (int i = 0; i < 8; ++i) {
      const int lane = lane_of(t);
      output<float[8]>(warp, lane)[i] = c[row_884(lane, i)][column_884(lane, i)];
    }
}

void run_m8n8k4(Warp& warp, Site at) {
  count(at, mma_m8n8k4);
  count(at, mma_flops, 4 * 2 * 8 * 8 * 4);
  for (int quad_pair = 0; quad_pair < 4; ++quad_pair) run_quad_pair(warp, quad_pair);
}

void run_m8n8k16_s8(Warp& warp, Site at) {
  count(at, mma_m8n8k16_s8);
  count(at, mma_flops, 2 * 8 * 8 * 16);
  int a[8][16], b[16][8];
  for (int lane = 0; lane < WARP_SIZE; ++lane)
    for (int i = 0; i < 4; ++i) {
      const auto& in = input<InputsM8N8K16>(warp, lane);
      a[lane / 4][lane % 4 * 4 + i] = static_cast<signed char>(in.a >> (8 * i));
      b[lane % 4 * 4 + i][lane / 4] = static_cast<signed char>(in.b >> (8 * i));
    }
  for (int lane = 0; lane < WARP_SIZE; ++lane)
    for (int i = 0; i < 2; ++i) {
      u32 sum = input<InputsM8N8K16>(warp, lane).c[i];  // wraps
      for (int k = 0; k < 16; ++k) sum += a[lane / 4][k] * b[k][lane % 4 * 2 + i];
      output<int[2]>(warp, lane)[i] = static_cast<int>(sum);
    }
}

}  // namespace titan::emulator
