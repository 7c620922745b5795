// Counters per source line.
//
// Threads log their memory accesses while they run; when a warp has come to its next synchronisation,
// the logs are put together into requests: the accesses of all lanes from the same line, the n-th with
// the n-th.
#pragma once

#include <titan_emulator/state.h>

namespace titan::emulator {

// clang-format off
#define TITAN_EMULATOR_COUNTERS(X)                                                                     \
  X(global_load_requests) X(global_load_sectors) X(global_load_ideal_sectors) X(global_load_bytes)     \
  X(global_store_requests) X(global_store_sectors) X(global_store_ideal_sectors) X(global_store_bytes) \
  X(global_atomic_requests) X(global_atomics)                                                          \
  X(shared_load_requests) X(shared_load_wavefronts) X(shared_load_ideal_wavefronts)                    \
  X(shared_store_requests) X(shared_store_wavefronts) X(shared_store_ideal_wavefronts)                 \
  X(shared_atomic_requests) X(shared_atomics)                                                          \
  X(mma_m16n8k8) X(mma_m8n8k4) X(mma_m8n8k16_s8) X(mma_flops)                                          \
  X(barriers) X(warp_syncs) X(shuffles) X(votes) X(special_functions)
// clang-format on

enum Counter : int {
#define TITAN_EMULATOR_NAME(name) name,
  TITAN_EMULATOR_COUNTERS(TITAN_EMULATOR_NAME)
#undef TITAN_EMULATOR_NAME
      COUNTERS
};

struct Counts {
  u64 value[COUNTERS] = {};
};

// Numbers for source lines, in order of first use.
class Sites {
 public:
  u16 number(Site at) {
    Entry& e = cache_[(static_cast<u32>(at.line) * 31 + reinterpret_cast<u64>(at.file)) % CACHE];
    if (!(e.site == at)) e = {at, find(at)};
    return e.number;
  }
  Site site(u16 number) const { return sites_[number]; }
  Counts& counts(u16 number) { return counts_[number]; }
  size_t size() const { return sites_.size(); }
  void clear_counts() { std::fill(counts_.begin(), counts_.end(), Counts()); }

 private:
  u16 find(Site at);

  struct Entry {
    Site site{"", -1};
    u16 number = 0;
  };
  static constexpr size_t CACHE = 1024;
  Entry cache_[CACHE];
  std::vector<Site> sites_;
  std::vector<Counts> counts_;
};

inline Sites sites;

inline void count(Site at, Counter what, u64 n = 1) {
  if (launch.options.count) sites.counts(sites.number(at)).value[what] += n;
}

enum Kind : unsigned char {
  GLOBAL_LOAD,
  GLOBAL_STORE,
  GLOBAL_ATOMIC,
  SHARED_LOAD,
  SHARED_STORE,
  SHARED_ATOMIC
};

}  // namespace titan::emulator
