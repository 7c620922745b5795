// What a launch found, in JSON.
#pragma once

#include <titan_emulator/runtime/binder.h>
#include <titan_emulator/runtime/requests.h>

namespace titan::emulator {

inline std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= ' ') out += c;
    else out += ' ';
  }
  return out + "\"";
}

template <class F>
inline std::string list(size_t n, F item) {
  std::string out = "[";
  for (size_t i = 0; i < n; ++i) out += (i == 0 ? "" : ",") + item(i);
  return out + "]";
}

inline std::string json(uint3 v) {
  return "[" + std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z) + "]";
}

inline std::string bad_launch_report(const BadLaunch& bad) {
  return "{\"bad_launch\":" + quoted(bad.message) + "}";
}

inline std::string failure_report() {
  const Failure& f = launch.failure;
  return "{\"failure\":{\"rule\":" + quoted(f.rule) + ",\"message\":" + quoted(f.message) +
         ",\"block\":" + json(f.block) + ",\"thread\":" + json(f.thread) +
         ",\"file\":" + quoted(f.site.file) + ",\"line\":" + std::to_string(f.site.line) +
         ",\"place\":" + quoted(place(f.site)) + "}}";
}

inline std::string counter_names() {
  static const char* const names[] = {
#define TITAN_EMULATOR_NAME(name) #name,
      TITAN_EMULATOR_COUNTERS(TITAN_EMULATOR_NAME)
#undef TITAN_EMULATOR_NAME
  };
  return list(COUNTERS, [&](size_t i) { return quoted(names[i]); });
}

inline std::string site_counts(u16 n) {
  const Site s = sites.site(n);
  return "[" + quoted(s.file) + "," + std::to_string(s.line) + "," + quoted(place(s)) + "," +
         list(COUNTERS, [&](size_t i) { return std::to_string(sites.counts(n).value[i]); }) + "]";
}

inline std::string counters_report() {
  std::string out = "{\"shared_bytes\":" + std::to_string(arena.used()) +
                    ",\"blocks\":" + std::to_string(launch.blocks.size());
  if (launch.options.count)
    out += ",\"names\":" + counter_names() +
           ",\"lines\":" + list(sites.size(), [](size_t i) { return site_counts(static_cast<u16>(i)); }) +
           ",\"unique_load_sectors\":" + std::to_string(regions.unique_sectors(true)) +
           ",\"unique_store_sectors\":" + std::to_string(regions.unique_sectors(false));
  return out + "}";
}

inline std::string kernels_report() {
  std::string out = "{";
  for (const Kernel& k : kernels)
    out += std::string(out.size() == 1 ? "" : ",") + quoted(k.name) +
           ":{\"max_threads\":" + std::to_string(k.max_threads) + ",\"parameters\":" + quoted(k.parameters) +
           "}";
  return out + "}";
}

}  // namespace titan::emulator
