// The rules of shared memory.
#pragma once

#include <optional>
#include <titan_emulator/runtime/global_checks.h>
#include <titan_emulator/shared_memory.h>

namespace titan::emulator {

constexpr u32 STATIC_SHARED_LIMIT = 48 << 10;

inline std::optional<Shadow> shared_shadow;

void Arena::start_launch(u64 dynamic_bytes) {
  const u32 limit = launch.options.shared_limit;
  if (dynamic_bytes > limit)
    throw BadLaunch{"dynamic shared memory (" + std::to_string(dynamic_bytes) +
                    " bytes) exceeds the limit of " + std::to_string(limit) +
                    " bytes per block (shared_limit)"};
  dynamic_ = {"dynamic shared memory", 0, static_cast<u32>(dynamic_bytes)};
  used_ = (dynamic_.bytes + 15) / 16 * 16;
  static_bytes_ = 0;
  memory_.assign((limit + 15) / sizeof(Line) + 1, Line());
  shared_shadow.emplace(0, launch.options.check ? memory_.size() * sizeof(Line) : 0);
}

SharedArray Arena::place(const char* name, u64 bytes, Site at) {
  const u32 rounded = static_cast<u32>((bytes + 15) / 16 * 16), limit = launch.options.shared_limit;
  static_bytes_ += rounded;
  if (static_bytes_ > STATIC_SHARED_LIMIT)
    fail("shared-memory-limit", at,
         "static shared memory comes to " + std::to_string(static_bytes_) + " bytes with `" + name +
             "`; the limit is 49152 (use dynamic shared memory)");
  if (used_ + rounded > limit)
    fail("shared-memory-limit", at,
         "shared memory comes to " + std::to_string(used_ + rounded) + " bytes with `" + name +
             "`; the limit is " + std::to_string(limit) + " bytes per block (shared_limit)");
  const SharedArray array{name, used_, static_cast<u32>(bytes)};
  memset(this->at(used_), 0xff, rounded);
  used_ += rounded;
  return array;
}

// All bits set: a NaN for every floating-point type.
void Arena::start_block() {
  memset(at(0), 0xff, used_);
  if (launch.options.check) shared_shadow->reset(used_);
}

inline std::string elements(const SharedAccess& a) {
  return elements(a.offset - a.array->begin, a.bytes, a.item) + " of `" + a.array->name + "`";
}

[[noreturn]] inline void bad_shared(const SharedAccess& a, const char* verb, const Thread& t) {
  const i64 first = a.offset - a.array->begin;
  const bool inside = first >= 0 && first + a.bytes <= a.array->bytes;
  if (!inside)
    fail("out-of-bounds", a.at,
         std::string(verb) + " of " + elements(a) + " in shared memory, which has " +
             plural(a.array->bytes / a.item, "element"),
         &t);
  fail("misaligned", a.at,
       std::string(verb) + " of " + std::to_string(a.bytes) + " bytes at " + elements(a) +
           " in shared memory: the address is no multiple of " + std::to_string(a.bytes),
       &t);
}

[[noreturn]] inline void uninitialised(const SharedAccess& a, const char* verb, const Thread& t) {
  fail("uninitialised", a.at,
       std::string(verb) + " of " + elements(a) +
           " in shared memory, which no thread of the block has written",
       &t);
}

[[noreturn]] inline void shared_race(const SharedAccess& a, const char* verb, const Clash& clash,
                                     const Thread& t) {
  fail("shared-race", a.at,
       std::string(verb) + " of " + elements(a) + " in shared memory, which " +
           thread_name(thread_of(clash.other)) + (clash.with == Clash::WRITE ? " writes in " : " reads in ") +
           place(sites.site(clash.other.site)) + " with no barrier in between",
       &t);
}

inline void check_extent(const SharedAccess& a, const char* verb, const Thread& t) {
  const i64 first = a.offset - a.array->begin;
  if (first < 0 || first + a.bytes > a.array->bytes || a.offset % a.bytes != 0) bad_shared(a, verb, t);
}

inline void check_shared_read(const SharedAccess& a, const char* verb, const Access& now, const Thread& t) {
  if (!shared_shadow->initialised(a.offset, a.bytes)) uninitialised(a, verb, t);
  if (const Clash clash = shared_shadow->read(a.offset, a.bytes, now, t)) shared_race(a, verb, clash, t);
}

void check_shared(Kind kind, const SharedAccess& a) {
  tick(a.at);
  if (launch.options.check) {
    const Thread& t = *launch.current;
    const Access now = this_access(a.at, kind == SHARED_ATOMIC ? ATOMIC : 0);
    check_extent(a, verb_of(kind), t);
    if (kind == SHARED_LOAD) {
      check_shared_read(a, verb_of(kind), now, t);
    } else {
      if (kind == SHARED_ATOMIC && !shared_shadow->initialised(a.offset, a.bytes))
        uninitialised(a, verb_of(kind), t);
      if (const Clash clash = shared_shadow->write(a.offset, a.bytes, now, t))
        shared_race(a, verb_of(kind), clash, t);
    }
  }
  log_access(kind, a.offset, a.bytes, a.at);
}

}  // namespace titan::emulator
