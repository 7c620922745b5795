// Random bits as a function of a seed and a position: nothing is stored, any order gives the same bits.
//
// Philox 4x32-10 of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011).  The seed is the
// key; block `b` of four words has the counter (b, 0) of twice 64 bits; position `i` is word i % 4 of
// block i / 4.
#pragma once

#include <titan/device.cuh>

namespace titan {

class Philox {
 public:
  __device__ __forceinline__ explicit Philox(i64 seed)
      : key_{static_cast<u32>(seed), static_cast<u32>(static_cast<u64>(seed) >> 32)} {}

  // The four words of a block.
  __device__ __forceinline__ void block(u64 number, u32 (&out)[4]) const {
    u32 c0 = static_cast<u32>(number), c1 = static_cast<u32>(number >> 32), c2 = 0, c3 = 0;
    u32 k0 = key_[0], k1 = key_[1];
    // In two halves: with all ten unrolled, the compiler keeps 20 keys in registers.
#pragma unroll 5
    for (int round = 0; round < 10; ++round) {
      const u32 high0 = __umulhi(0xd2511f53u, c0), low0 = 0xd2511f53u * c0;
      const u32 high1 = __umulhi(0xcd9e8d57u, c2), low1 = 0xcd9e8d57u * c2;
      c0 = high1 ^ c1 ^ k0, c1 = low1, c2 = high0 ^ c3 ^ k1, c3 = low0;
      k0 += 0x9e3779b9u, k1 += 0xbb67ae85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
  }

  // Bit j tells whether the word at `position` + j is no less than `threshold`, for N <= 16 positions.
  template <int N>
  __device__ __forceinline__ u32 at_least(i64 threshold, i64 position) const {
    const int shift = static_cast<int>(position & 3);
    u32 bits = 0;
    // One copy of the rounds: unrolled, they crowd the instruction cache.
#pragma unroll 1
    for (int begin = 0; begin < N + shift; begin += 4) {
      u32 word[4];
      block(static_cast<u64>((position + begin) >> 2), word);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        bits |= static_cast<u32>(static_cast<i64>(word[j]) >= threshold) << (begin + j);
    }
    return bits >> shift;
  }

 private:
  u32 key_[2];
};

}  // namespace titan
