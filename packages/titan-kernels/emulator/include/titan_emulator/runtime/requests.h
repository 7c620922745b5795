// From the accesses of threads to the requests of warps: sectors of global memory, wavefronts of shared.
#pragma once

#include <titan_emulator/runtime/regions.h>

namespace titan::emulator {

constexpr int SECTOR_BYTES = 32, BANKS = 32;

u16 Sites::find(Site at) {
  const auto found = std::find(sites_.begin(), sites_.end(), at);
  if (found != sites_.end()) return static_cast<u16>(found - sites_.begin());
  sites_.push_back(at);
  counts_.emplace_back();
  return static_cast<u16>(sites_.size() - 1);
}

inline void log_access(Kind kind, u64 address, int bytes, Site at) {
  if (launch.options.count)
    launch.current->log.push_back({address, sites.number(at), kind, static_cast<unsigned char>(bytes)});
}

// The accesses of one request.
struct Request {
  u16 site;
  Kind kind;
  int bytes;  // of each lane's access
  int lanes = 0;
  u64 address[WARP_SIZE];
  unsigned char lane[WARP_SIZE];

  Request(u16 site, int kind, int bytes) : site(site), kind(static_cast<Kind>(kind)), bytes(bytes) {}
  void add(int l, u64 a) { lane[lanes] = static_cast<unsigned char>(l), address[lanes++] = a; }
};

inline int distinct(u64* begin, u64* end) {
  if (!std::is_sorted(begin, end)) std::sort(begin, end);
  return static_cast<int>(std::unique(begin, end) - begin);
}

// Aligned accesses of up to 16 bytes never straddle sectors.
inline int sector_count(const Request& r) {
  u64 sectors[WARP_SIZE];
  for (int i = 0; i < r.lanes; ++i) sectors[i] = r.address[i] / SECTOR_BYTES;
  return distinct(sectors, sectors + r.lanes);
}

// Sectors that the distinct bytes of the request would fill.
inline int ideal_sector_count(const Request& r) {
  u64 addresses[WARP_SIZE];
  std::copy(r.address, r.address + r.lanes, addresses);
  return (distinct(addresses, addresses + r.lanes) * r.bytes + SECTOR_BYTES - 1) / SECTOR_BYTES;
}

// The most distinct words that one bank has to serve.
inline int wavefronts(const u64* words, int n) {
  u64 seen[BANKS][WARP_SIZE];
  int depth[BANKS] = {}, most = 0;
  for (int i = 0; i < n; ++i) {
    const int bank = words[i] % BANKS;
    u64* const end = seen[bank] + depth[bank];
    if (std::find(seen[bank], end, words[i]) != end) continue;
    *end = words[i];
    most = std::max(most, ++depth[bank]);
  }
  return most;
}

// Wide accesses go in phases of 128 bytes: 32 lanes of up to 4 bytes, 16 of 8 or 8 of 16.  Each phase
// takes one wavefront at best, and one per distinct word of its busiest bank.
inline std::pair<int, int> wavefront_counts(const Request& r) {
  const int lanes_per_phase = r.bytes <= 4 ? 32 : 128 / r.bytes,
            words_per_lane = r.bytes <= 4 ? 1 : r.bytes / 4;
  int total = 0, ideal = 0;
  for (int phase = 0; phase < WARP_SIZE / lanes_per_phase; ++phase) {
    u64 words[WARP_SIZE];
    int n = 0;
    for (int i = 0; i < r.lanes; ++i)
      if (r.lane[i] / lanes_per_phase == phase)
        for (int w = 0; w < words_per_lane; ++w) words[n++] = r.address[i] / 4 + w;
    if (n == 0) continue;
    total += wavefronts(words, n);
    ++ideal;
  }
  return {total, ideal};
}

inline void count_global(const Request& r, Counts& c) {
  if (r.kind == GLOBAL_ATOMIC) {
    ++c.value[global_atomic_requests];
    c.value[global_atomics] += r.lanes;
    return;
  }
  const bool load = r.kind == GLOBAL_LOAD;
  ++c.value[load ? global_load_requests : global_store_requests];
  c.value[load ? global_load_sectors : global_store_sectors] += sector_count(r);
  c.value[load ? global_load_ideal_sectors : global_store_ideal_sectors] += ideal_sector_count(r);
  c.value[load ? global_load_bytes : global_store_bytes] += static_cast<u64>(r.lanes) * r.bytes;
  for (int i = 0; i < r.lanes; ++i) regions.touch(r.address[i], load);
}

inline void count_shared(const Request& r, Counts& c) {
  if (r.kind == SHARED_ATOMIC) {
    ++c.value[shared_atomic_requests];
    c.value[shared_atomics] += r.lanes;
    return;
  }
  const bool load = r.kind == SHARED_LOAD;
  const auto [actual, ideal] = wavefront_counts(r);
  ++c.value[load ? shared_load_requests : shared_store_requests];
  c.value[load ? shared_load_wavefronts : shared_store_wavefronts] += actual;
  c.value[load ? shared_load_ideal_wavefronts : shared_store_ideal_wavefronts] += ideal;
}

inline void count_request(const Request& r) {
  Counts& c = sites.counts(r.site);
  if (r.kind <= GLOBAL_ATOMIC) count_global(r, c);
  else count_shared(r, c);
}

inline bool same_request(const Record& a, const Record& b) {
  return a.site == b.site && a.kind == b.kind && a.bytes == b.bytes;
}

// Whether all lanes made the same sequence of accesses, as they do without divergence.
inline bool uniform(const Warp& warp) {
  const auto& first = warp.threads[0].log;
  for (int lane = 1; lane < warp.lanes; ++lane) {
    const auto& log = warp.threads[lane].log;
    if (log.size() != first.size() || !std::equal(log.begin(), log.end(), first.begin(), same_request))
      return false;
  }
  return true;
}

inline void count_uniform(const Warp& warp) {
  const auto& first = warp.threads[0].log;
  for (size_t i = 0; i < first.size(); ++i) {
    Request r(first[i].site, first[i].kind, first[i].bytes);
    for (int lane = 0; lane < warp.lanes; ++lane) r.add(lane, warp.threads[lane].log[i].address);
    count_request(r);
  }
}

// The general case: n-th accesses of the same line and kind form a request.
inline void count_divergent(const Warp& warp) {
  struct Key {
    u64 key;
    u64 address;
    int lane;
  };
  std::vector<Key> all;
  for (int lane = 0; lane < warp.lanes; ++lane) {
    std::vector<u32> occurrences(sites.size() * 8, 0);
    for (const Record& x : warp.threads[lane].log) {
      const u64 n = occurrences[x.site * 8u + x.kind]++;
      all.push_back({static_cast<u64>(x.site) << 48 | static_cast<u64>(x.kind) << 40 |
                         static_cast<u64>(x.bytes) << 32 | n,
                     x.address, lane});
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Key& a, const Key& b) { return a.key < b.key; });
  for (size_t i = 0; i < all.size();) {
    Request r(static_cast<u16>(all[i].key >> 48), static_cast<int>(all[i].key >> 40 & 0xff),
              static_cast<int>(all[i].key >> 32 & 0xff));
    for (const u64 key = all[i].key; i < all.size() && all[i].key == key; ++i)
      r.add(all[i].lane, all[i].address);
    count_request(r);
  }
}

inline void count_round(Warp& warp) {
  if (uniform(warp)) count_uniform(warp);
  else count_divergent(warp);
  for (int lane = 0; lane < warp.lanes; ++lane) warp.threads[lane].log.clear();
}

}  // namespace titan::emulator
