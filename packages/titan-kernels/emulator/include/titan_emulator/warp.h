// Barriers, shuffles and votes.
#pragma once

#include <titan_emulator/counters.h>

namespace titan::emulator {

// Waits for the whole warp; `run` then sees the inputs of all lanes and fills their outputs, once.
inline void collective(const char* operation, Site at, void (*run)(Warp&, Site), const void* input,
                       void* output) {
  Thread& self = *launch.current;
  self.status = Status::AT_COLLECTIVE;
  self.site = at;
  self.operation = operation;
  self.collective = run;
  self.input = input;
  self.output = output;
  wait(self);
}

inline void barrier(const char* operation, Site at, void (*run)(Warp&, Site), const void* input,
                    void* output) {
  Thread& self = *launch.current;
  self.status = Status::AT_BARRIER;
  self.site = at;
  self.operation = operation;
  self.collective = run;
  self.input = input;
  self.output = output;
  wait(self);
}

template <class T>
inline const T& input(const Warp& warp, int lane) {
  return *static_cast<const T*>(warp.threads[lane].input);
}
template <class T>
inline T& output(Warp& warp, int lane) {
  return *static_cast<T*>(warp.threads[lane].output);
}

void check_mask(u32 mask, const char* operation, Site at);
void check_width(int width, const char* operation, Site at);

inline void run_syncwarp(Warp& warp, Site at) {
  count(at, warp_syncs);
  warp.stamp = ++launch.clock;
}

enum class Shuffle { INDEX, UP, DOWN, XOR };

template <class T>
struct ShuffleInput {
  T value;
  int operand, width;
};

// The lane whose value `lane` gets; lanes stay inside segments of `width`.  Source: PTX ISA, "shfl.sync".
template <Shuffle MODE>
inline int source_lane(int lane, int operand, int width) {
  const int segment = lane & ~(width - 1), last = segment | (width - 1);
  switch (MODE) {
    case Shuffle::INDEX:
      return segment | (operand & (width - 1));
    case Shuffle::UP:
      return lane - operand >= segment ? lane - operand : lane;
    case Shuffle::DOWN:
      return lane + operand <= last ? lane + operand : lane;
    case Shuffle::XOR:
      return (lane ^ operand) <= last ? lane ^ operand : lane;
  }
}

template <class T, Shuffle MODE>
inline void run_shuffle(Warp& warp, Site at) {
  count(at, shuffles);
  for (int lane = 0; lane < WARP_SIZE; ++lane) {
    const auto& in = input<ShuffleInput<T>>(warp, lane);
    output<T>(warp, lane) =
        input<ShuffleInput<T>>(warp, source_lane<MODE>(lane, in.operand & 31, in.width)).value;
  }
}

template <Shuffle MODE, class T>
inline T shuffle(const char* operation, u32 mask, T value, int operand, int width, Site at) {
  static_assert(sizeof(T) <= 8, "CUDA shuffles values of up to 8 bytes");
  check_mask(mask, operation, at);
  check_width(width, operation, at);
  const ShuffleInput<T> in{value, operand, width};
  T out;
  collective(operation, at, run_shuffle<T, MODE>, &in, &out);
  return out;
}

inline u32 gather_votes(const Warp& warp) {
  u32 bits = 0;
  for (int lane = 0; lane < WARP_SIZE; ++lane) bits |= static_cast<u32>(input<bool>(warp, lane)) << lane;
  return bits;
}

inline void run_vote(Warp& warp, Site at) {
  count(at, votes);
  const u32 bits = gather_votes(warp);
  for (int lane = 0; lane < WARP_SIZE; ++lane) output<u32>(warp, lane) = bits;
}

inline u32 vote(const char* operation, u32 mask, bool predicate, Site at) {
  check_mask(mask, operation, at);
  u32 bits;
  collective(operation, at, run_vote, &predicate, &bits);
  return bits;
}

// For all threads of the block: how many have a true predicate.
inline void run_block_vote(Warp&, Site) {
  int n = 0;
  for (const Thread& t : launch.threads) n += *static_cast<const bool*>(t.input);
  for (Thread& t : launch.threads) *static_cast<int*>(t.output) = n;
}

inline int block_vote(const char* operation, bool predicate, Site at) {
  int n;
  barrier(operation, at, run_block_vote, &predicate, &n);
  return n;
}

}  // namespace titan::emulator

#define TITAN_SITE ::titan::Site at = ::titan::Site::here()

inline void __syncthreads(TITAN_SITE) {
  titan::emulator::barrier("__syncthreads()", at, nullptr, nullptr, nullptr);
}
inline int __syncthreads_count(int predicate, TITAN_SITE) {
  return titan::emulator::block_vote("__syncthreads_count()", predicate != 0, at);
}
inline int __syncthreads_or(int predicate, TITAN_SITE) {
  return titan::emulator::block_vote("__syncthreads_or()", predicate != 0, at) > 0;
}
inline int __syncthreads_and(int predicate, TITAN_SITE) {
  return titan::emulator::block_vote("__syncthreads_and()", predicate == 0, at) == 0;
}

inline void __syncwarp(unsigned mask = 0xffffffffu, TITAN_SITE) {
  using namespace titan::emulator;
  check_mask(mask, SYNC_WARP, at);
  collective(SYNC_WARP, at, run_syncwarp, nullptr, nullptr);
}

// Blocks run one after the other, so fences order nothing; the race detector believes them.
inline void __threadfence() { titan::emulator::launch.blocks.back().fenced = true; }
inline void __threadfence_block() {}

template <class T>
inline T __shfl_sync(unsigned mask, T x, int lane, int width = 32, TITAN_SITE) {
  return titan::emulator::shuffle<titan::emulator::Shuffle::INDEX>("__shfl_sync()", mask, x, lane, width, at);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T x, unsigned delta, int width = 32, TITAN_SITE) {
  return titan::emulator::shuffle<titan::emulator::Shuffle::UP>("__shfl_up_sync()", mask, x, delta, width,
                                                                at);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T x, unsigned delta, int width = 32, TITAN_SITE) {
  return titan::emulator::shuffle<titan::emulator::Shuffle::DOWN>("__shfl_down_sync()", mask, x, delta, width,
                                                                  at);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T x, int lanes, int width = 32, TITAN_SITE) {
  return titan::emulator::shuffle<titan::emulator::Shuffle::XOR>("__shfl_xor_sync()", mask, x, lanes, width,
                                                                 at);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, TITAN_SITE) {
  return titan::emulator::vote("__ballot_sync()", mask, predicate != 0, at);
}
inline int __any_sync(unsigned mask, int predicate, TITAN_SITE) {
  return titan::emulator::vote("__any_sync()", mask, predicate != 0, at) != 0;
}
inline int __all_sync(unsigned mask, int predicate, TITAN_SITE) {
  return titan::emulator::vote("__all_sync()", mask, predicate != 0, at) == 0xffffffffu;
}
