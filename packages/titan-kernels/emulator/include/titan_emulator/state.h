// The state of a launch: threads, warps, the block that runs, what stopped it.
#pragma once

#include <titan_emulator/platform.h>

#if !defined(__x86_64__) && !defined(__aarch64__) && !defined(TITAN_EMULATOR_UCONTEXT)
#define TITAN_EMULATOR_UCONTEXT
#endif
#ifdef TITAN_EMULATOR_UCONTEXT
#include <ucontext.h>
#endif

namespace titan::emulator {

#ifdef TITAN_EMULATOR_UCONTEXT
using Context = ucontext_t;
#else
using Context = void*;  // its stack pointer
#endif

constexpr int WARP_SIZE = 32;
constexpr u32 FULL_MASK_BITS = 0xffffffffu;

// SplitMix64 (Steele, Lea, Flood, 2014).
class Random {
 public:
  explicit Random(u64 seed = 0) : state_(seed) {}
  u32 next() {
    u64 z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<u32>((z ^ (z >> 31)) >> 32);
  }
  u32 below(size_t n) { return static_cast<u32>((static_cast<u64>(next()) * n) >> 32); }

 private:
  u64 state_;
};

enum class Status : unsigned char { READY, AT_COLLECTIVE, AT_BARRIER, EXITED };

// One memory access of a thread, for the counters.
struct Record {
  u64 address;
  u16 site;
  unsigned char kind, bytes;
};

struct Warp;

struct Thread {
  Context context;
  char* stack = nullptr;
  Warp* warp = nullptr;
  uint3 index;
  u16 number;  // in the block
  unsigned char lane;
  Status status;

  // Where and for what it waits.
  Site site;
  const char* operation;
  void (*collective)(Warp&, Site);
  const void* input;
  void* output;

  std::vector<Record> log;
};

struct Warp {
  Thread* threads;
  int lanes;
  u32 stamp;  // launch.clock at its last synchronisation
  // The order of lanes in this round: lane i of it is (i * step + first) mod 32, step odd.
  u32 position, step, first;
};

struct Options {
  bool check = true;
  bool count = false;
  u64 seed = 0;
  u32 shared_limit = 64 << 10;
  double time_limit = 0;
};

// A broken rule: who, where, and in words.
struct Failure {
  bool happened = false;
  std::string rule, message;
  uint3 block{}, thread{};
  Site site;
};

struct BlockRecord {
  u32 begin;    // launch.clock when it started
  u64 number;   // in the grid
  bool fenced;  // has called __threadfence()
};

struct Launch {
  Options options;
  Random random;
  const void* arguments = nullptr;
  void (*invoke)(const void*) = nullptr;

  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<Warp*> ready;  // warps with threads that can run
  Thread* current = nullptr;
  Warp* warp = nullptr;
  Context main_context;
  Context caller_context, paused_context;  // of who called the launch, and of the launch while it pauses

  // Logical time: advances at every barrier and __syncwarp().
  u32 clock = 0;
  u32 barrier_stamp = 0;  // the block's last barrier, or its begin
  bool acquired = false;  // the block has done an atomic operation
  std::vector<BlockRecord> blocks;

  u64 number = 0;  // of this launch in the process
  u32 ticks = 0;
  double deadline = 0;
  bool cancelled = false;
  double next_pause = 0;
  Failure failure;
};

inline Launch launch;

inline constexpr const char SYNC_WARP[] = "__syncwarp()";

// What the runtime does for kernels; runtime/*.h has the definitions.

// Ends the launch; fibers are abandoned where they stand.  `who` is the running thread when null.
[[noreturn]] void fail(const char* rule, Site at, std::string message, const Thread* who = nullptr);

// Called by a thread that has noted what it waits for; returns when it may go on.
void wait(Thread& self);

void check_deadline(Site at);

// Called at every memory access and synchronisation.
inline void tick(Site at) {
  if ((++launch.ticks & 0xffff) == 0) check_deadline(at);
}

}  // namespace titan::emulator
