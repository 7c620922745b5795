// The rules of global memory.
#pragma once

#include <titan_emulator/runtime/requests.h>

namespace titan::emulator {

// "elements 8 to 15" for an access of `bytes` at `offset`
inline std::string elements(i64 offset, int bytes, int item) {
  const i64 first = offset / item, last = first + bytes / item - 1;
  if (last == first) return "element " + std::to_string(first);
  return "elements " + std::to_string(first) + " to " + std::to_string(last);
}

inline std::string elements(const GlobalAccess& a) {
  return elements(static_cast<i64>(a.address - a.from->begin), a.bytes, a.item) + " of `" + a.from->name +
         "`";
}

inline const char* verb_of(Kind kind) {
  static const char* const verbs[] = {"load", "store", "atomic operation"};
  return verbs[kind % 3];
}

[[noreturn]] inline void bad_address(const GlobalAccess& a, const char* verb) {
  if (a.from == nullptr || (a.from->reachable && a.from->begin == 0))
    fail("null-pointer", a.at,
         std::string(verb) + " through a null pointer" +
             (a.from == nullptr ? "" : ", `" + a.from->name + "`"));
  if (!a.from->reachable)
    fail("out-of-bounds", a.at, std::string(verb) + " at an address in none of the launch's tensors");
  fail("out-of-bounds", a.at,
       std::string(verb) + " of " + elements(a) + ", which has " + plural(a.from->bytes / a.item, "element"));
}

[[noreturn]] inline void misaligned(const GlobalAccess& a, const char* verb) {
  fail("misaligned", a.at,
       std::string(verb) + " of " + std::to_string(a.bytes) + " bytes at " + elements(a) +
           ": the address is no multiple of " + std::to_string(a.bytes));
}

[[noreturn]] inline void global_race(const GlobalAccess& a, const char* verb, const Clash& clash) {
  std::string other = thread_name(thread_of(clash.other));
  std::string rule = "with no barrier in between";
  if (!in_this_block(clash.other)) {
    const u64 n = block_of(clash.other).number;
    other += " of block " +
             triple({static_cast<unsigned>(n % gridDim.x), static_cast<unsigned>(n / gridDim.x % gridDim.y),
                     static_cast<unsigned>(n / gridDim.x / gridDim.y)});
    rule = "in the same launch, where blocks have no order";
  }
  fail("global-race", a.at,
       std::string(verb) + " of " + elements(a) + ", which " + other +
           (clash.with == Clash::WRITE ? " writes in " : " reads in ") + place(sites.site(clash.other.site)) +
           " " + rule);
}

void check_global(Kind kind, const GlobalAccess& a) {
  tick(a.at);
  if (launch.options.check) {
    const u64 offset = a.from == nullptr ? 0 : a.address - a.from->begin;
    if (a.from == nullptr || offset > a.from->bytes || a.from->bytes - offset < static_cast<u64>(a.bytes))
      bad_address(a, verb_of(kind));
    if (a.address % a.bytes != 0) misaligned(a, verb_of(kind));
    if (kind == GLOBAL_ATOMIC) launch.acquired = true;
    Shadow& shadow = regions.region(a.address)->shadow;
    const Access now = this_access(a.at, kind == GLOBAL_ATOMIC ? ATOMIC : 0);
    const Clash clash = kind == GLOBAL_LOAD ? shadow.read(a.address, a.bytes, now, *launch.current)
                                            : shadow.write(a.address, a.bytes, now, *launch.current);
    if (clash) global_race(a, verb_of(kind), clash);
  }
  log_access(kind, a.address, a.bytes, a.at);
}

}  // namespace titan::emulator
