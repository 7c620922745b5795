// The rules of synchronisation: who has to arrive where, and what is said when someone does not.
#pragma once

#include <titan_emulator/runtime/failures.h>

namespace titan::emulator {

// "3, 8-15, 20" of ascending numbers.
inline std::string ranges(const std::vector<int>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (!text.empty()) text += ", ";
    text += std::to_string(numbers[i]);
    if (end - i > 1) text += "-" + std::to_string(numbers[end - 1]);
    i = end;
  }
  return text;
}

// With the verb for several threads.
inline std::string whereabouts(const Thread& t) {
  if (t.status == Status::EXITED) return "have ended";
  if (t.status == Status::READY) return "can go on";
  return std::string("wait at ") + t.operation + " in " + place(t.site);
}

inline std::string for_one(const std::string& where) {
  if (where == "have ended") return "has ended";
  return where.rfind("wait", 0) == 0 ? "waits" + where.substr(4) : where;
}

// Where threads are, grouped: "threads 0-15 wait at ...; threads 16-31 have ended".
inline std::string whereabouts(const Thread* threads, size_t n) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (size_t i = 0; i < n; ++i) {
    const std::string where = whereabouts(threads[i]);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == where; });
    if (group == groups.end()) group = groups.insert(groups.end(), {where, {}});
    group->second.push_back(threads[i].number);
  }
  std::string text;
  for (const auto& [where, numbers] : groups) {
    if (!text.empty()) text += "; ";
    text += numbers.size() == 1 ? "thread " + ranges(numbers) + " " + for_one(where)
                                : "threads " + ranges(numbers) + " " + where;
  }
  return text;
}

// The whole warp has to arrive at one operation in one line.  __syncwarp() does without ended threads.
inline void check_collective(const Warp& warp, const Thread& first, bool same) {
  bool barrier = false, missing = warp.lanes < WARP_SIZE;
  for (int lane = 0; lane < warp.lanes; ++lane) {
    barrier = barrier || warp.threads[lane].status == Status::AT_BARRIER;
    missing = missing || warp.threads[lane].status == Status::EXITED;
  }
  const auto where = [&] { return whereabouts(warp.threads, warp.lanes); };
  if (barrier)
    fail("deadlock", first.site, "threads of one warp wait for each other at different places: " + where(),
         &first);
  if (!same)
    fail("divergent-collective", first.site,
         "lanes of one warp have come to different operations: " + where(), &first);
  if (missing && first.operation != SYNC_WARP)
    fail("divergent-collective", first.site,
         std::string(first.operation) + " needs all 32 lanes of the warp" +
             (warp.lanes < WARP_SIZE ? ", which has " + std::to_string(warp.lanes) : "") + ": " + where(),
         &first);
}

// All threads of the block have to arrive at one __syncthreads().
inline void check_barrier(const Thread& waiting) {
  for (const Thread& t : launch.threads)
    if (t.status != Status::AT_BARRIER || !(t.site == waiting.site) || t.collective != waiting.collective)
      fail("divergent-barrier", waiting.site,
           std::string(waiting.operation) + " is not reached by all threads of the block: " +
               whereabouts(launch.threads.data(), launch.threads.size()),
           &waiting);
}

void check_mask(u32 mask, const char* operation, Site at) {
  if (mask == FULL_MASK_BITS) return;
  char text[16];
  snprintf(text, sizeof(text), "0x%08x", mask);
  fail("partial-mask", at,
       std::string(operation) + " with mask " + text +
           ": kernels of this package synchronise whole warps (0xffffffff)");
}

void check_width(int width, const char* operation, Site at) {
  if (width <= 0 || width > WARP_SIZE || (width & (width - 1)) != 0)
    fail("shuffle-width", at,
         std::string(operation) + " with width " + std::to_string(width) +
             ", which is no power of two up to 32");
}

}  // namespace titan::emulator
