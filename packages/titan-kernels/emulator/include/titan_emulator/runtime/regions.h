// Global memory: the tensors of a launch and the regions of addresses that they cover.
#pragma once

#include <deque>
#include <titan_emulator/global_memory.h>
#include <titan_emulator/runtime/shadow.h>

namespace titan::emulator {

// Tensors that share memory, as inputs updated in place do, share a region.
struct Region {
  u64 begin, end;
  Shadow shadow;
  std::vector<bool> loaded, stored;  // by sector
};

class Regions {
 public:
  const Allocation* add(Allocation allocation) { return &allocations_.emplace_back(std::move(allocation)); }

  // Once all allocations are known.
  void build() {
    std::vector<std::pair<u64, u64>> spans;
    for (const Allocation& a : allocations_)
      if (a.bytes > 0) spans.push_back({a.begin / 32 * 32, (a.begin + a.bytes + 31) / 32 * 32});
    std::sort(spans.begin(), spans.end());
    for (size_t i = 0; i < spans.size();) {
      auto [begin, end] = spans[i];
      while (++i < spans.size() && spans[i].first <= end) end = std::max(end, spans[i].second);
      const size_t sectors = launch.options.count ? (end - begin) / 32 : 0;
      regions_.push_back({begin, end, Shadow(begin, launch.options.check ? end - begin : 0),
                          std::vector<bool>(sectors), std::vector<bool>(sectors)});
    }
  }
  void clear() {
    regions_.clear();
    allocations_.clear();
    last_ = 0;
  }

  // The smallest tensor around an address.
  const Allocation* find(u64 address) const {
    static const Allocation stray{0, 0, "", false};
    const Allocation* best = &stray;
    for (const Allocation& a : allocations_)
      if (address >= a.begin && address - a.begin < a.bytes && (best == &stray || a.bytes < best->bytes))
        best = &a;
    return best;
  }

  // Null without one.  Accesses come in runs, so the last one's region is tried first.
  Region* region(u64 address) {
    if (last_ < regions_.size() && contains(regions_[last_], address)) return &regions_[last_];
    const auto after = std::upper_bound(regions_.begin(), regions_.end(), address,
                                        [](u64 a, const Region& r) { return a < r.begin; });
    if (after == regions_.begin() || !contains(*(after - 1), address)) return nullptr;
    last_ = static_cast<size_t>(after - 1 - regions_.begin());
    return &regions_[last_];
  }

  void touch(u64 address, bool load) {
    if (Region* r = region(address)) (load ? r->loaded : r->stored)[(address - r->begin) / 32] = true;
  }

  u64 unique_sectors(bool load) const {
    u64 n = 0;
    for (const Region& r : regions_) {
      const auto& touched = load ? r.loaded : r.stored;
      n += std::count(touched.begin(), touched.end(), true);
    }
    return n;
  }

 private:
  static bool contains(const Region& r, u64 address) { return address >= r.begin && address < r.end; }

  std::deque<Allocation> allocations_;  // addresses stay
  std::vector<Region> regions_;
  size_t last_ = 0;
};

inline Regions regions;

const Allocation* find_allocation(u64 address) { return regions.find(address); }

}  // namespace titan::emulator
