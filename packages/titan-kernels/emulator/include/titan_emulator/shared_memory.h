// Shared<T>: one arena per block, poisoned with NaN when the block starts.
#pragma once

#include <optional>
#include <titan_emulator/global_memory.h>

namespace titan::emulator {

constexpr u32 STATIC_SHARED_LIMIT = 48 << 10;

// One TITAN_SHARED or the dynamic memory; offsets count bytes from the arena's begin.
struct SharedArray {
  const char* name = "";
  u32 begin = 0, bytes = 0;
};

class Arena {
 public:
  void start_launch(u64 dynamic_bytes) {
    if (dynamic_bytes > launch.options.shared_limit)
      throw BadLaunch{"dynamic shared memory (" + std::to_string(dynamic_bytes) + " bytes) exceeds the limit of " +
                      std::to_string(launch.options.shared_limit) + " bytes per block (shared_limit)"};
    dynamic_ = {"dynamic shared memory", 0, static_cast<u32>(dynamic_bytes)};
    used_ = (dynamic_.bytes + 15) / 16 * 16;
    static_bytes_ = 0;
    memory_.assign((launch.options.shared_limit + STATIC_SHARED_LIMIT + 127) / 64, Line());
    shadow_.emplace(0, launch.options.check ? memory_.size() * sizeof(Line) : 0);
  }
  void start_block() { poison(0, used_); }

  // A place for a static array; the same for all threads and blocks of the launch.
  SharedArray place(const char* name, u64 bytes, Site at) {
    const u32 rounded = static_cast<u32>((bytes + 15) / 16 * 16);
    static_bytes_ += rounded;
    if (static_bytes_ > STATIC_SHARED_LIMIT)
      fail("shared-memory-limit", at, "static shared memory comes to " + std::to_string(static_bytes_) + " bytes with `" +
               name + "`; the limit is 49152 (use dynamic shared memory)");
    if (used_ + rounded > launch.options.shared_limit)
      fail("shared-memory-limit", at, "shared memory comes to " + std::to_string(used_ + rounded) + " bytes with `" + name +
               "`; the limit is " + std::to_string(launch.options.shared_limit) + " bytes per block (shared_limit)");
    const SharedArray array{name, used_, static_cast<u32>(bytes)};
    poison(used_, rounded);
    used_ += rounded;
    return array;
  }

  const SharedArray* dynamic() const { return &dynamic_; }
  u32 used() const { return used_; }
  char* at(i64 offset) { return reinterpret_cast<char*>(memory_.data()) + offset; }
  Shadow& shadow() { return *shadow_; }

 private:
  struct alignas(64) Line {
    char bytes[64];
  };

  void poison(u32 begin, u32 bytes) {
    memset(at(begin), 0xff, bytes);
    if (launch.options.check) shadow_->clear(begin, bytes);
  }

  SharedArray dynamic_;
  u32 used_ = 0, static_bytes_ = 0;
  std::vector<Line> memory_;
  std::optional<Shadow> shadow_;
};

inline Arena arena;

// Behind one TITAN_SHARED; static, so that all threads mean the same array.
struct StaticShared {
  const char* name;
  u64 bytes;
  u64 launch_number = 0;
  SharedArray array{};

  const SharedArray* place(Site at) {
    if (launch_number != launch.number) {
      array = arena.place(name, bytes, at);
      launch_number = launch.number;
    }
    return &array;
  }
};

struct SharedAccess {
  const SharedArray* array;
  i64 offset;
  int bytes, item;
  Site at;

  std::string elements() const {
    const i64 first = (offset - array->begin) / item, last = first + bytes / item - 1;
    return (last > first ? "elements " + std::to_string(first) + " to " + std::to_string(last)
                         : "element " + std::to_string(first)) + " of `" + array->name + "`";
  }
};

[[noreturn, gnu::noinline]] inline void bad_shared(const SharedAccess& a, const char* verb, const Thread& t) {
  const i64 first = a.offset - a.array->begin;
  const bool inside = first >= 0 && first + a.bytes <= a.array->bytes;
  if (!inside)
    fail("out-of-bounds", a.at, std::string(verb) + " of " + a.elements() + " in shared memory, which has " +
                                    plural(a.array->bytes / a.item, "element"), &t);
  fail("misaligned", a.at, std::string(verb) + " of " + std::to_string(a.bytes) + " bytes at " + a.elements() +
                               " in shared memory: the address is no multiple of " + std::to_string(a.bytes), &t);
}

[[noreturn, gnu::noinline]] inline void uninitialised(const SharedAccess& a, const char* verb, const Thread& t) {
  fail("uninitialised", a.at, std::string(verb) + " of " + a.elements() +
                                  " in shared memory, which no thread of the block has written", &t);
}

[[noreturn, gnu::noinline]] inline void shared_race(const SharedAccess& a, const char* verb, const Clash& clash,
                                                    const Thread& t) {
  fail("shared-race", a.at, std::string(verb) + " of " + a.elements() + " in shared memory, which " +
                                thread_name(thread_of(clash.other)) +
                                (clash.with == Clash::WRITE ? " writes in " : " reads in ") +
                                place(sites.site(clash.other.site)) + " with no barrier in between", &t);
}

inline void check_extent(const SharedAccess& a, const char* verb, const Thread& t) {
  const i64 first = a.offset - a.array->begin;
  if (first < 0 || first + a.bytes > a.array->bytes || a.offset % a.bytes != 0) bad_shared(a, verb, t);
}

inline void check_shared_read(const SharedAccess& a, const char* verb, const Access& now, const Thread& t) {
  if (!arena.shadow().initialised(a.offset, a.bytes)) uninitialised(a, verb, t);
  if (const Clash clash = arena.shadow().read(a.offset, a.bytes, now, t)) shared_race(a, verb, clash, t);
}

// Out of line: kernels inline hundreds of accesses.
template <Kind KIND>
[[gnu::noinline]] void check_shared(const SharedAccess& a) {
  constexpr const char* verb = KIND == SHARED_LOAD ? "load" : KIND == SHARED_STORE ? "store" : "atomic operation";
  tick(a.at);
  if (launch.options.check) {
    const Thread& t = *launch.current;
    check_extent(a, verb, t);
    const Access now = this_access(a.at, KIND == SHARED_ATOMIC ? ATOMIC : 0);
    if (KIND == SHARED_LOAD) {
      check_shared_read(a, verb, now, t);
    } else {
      if (KIND == SHARED_ATOMIC && !arena.shadow().initialised(a.offset, a.bytes)) uninitialised(a, verb, t);
      if (const Clash clash = arena.shadow().write(a.offset, a.bytes, now, t)) shared_race(a, verb, clash, t);
    }
  }
  log_access(KIND, a.offset, a.bytes, a.at);
}

}  // namespace titan::emulator

namespace titan {

template <class T>
class Shared {
 public:
  explicit Shared(const emulator::SharedArray* array) : array_(array), offset_(array->begin) {}
  Shared(const emulator::SharedArray* array, i64 offset) : array_(array), offset_(offset) {}

  Shared operator+(int elements) const { return Shared(array_, offset_ + elements * static_cast<i64>(sizeof(T))); }
  template <class U>
  Shared<U> as() const { return Shared<U>(array_, offset_); }

  T load(int i = 0, Site at = Site::here()) const { return load_vec<1>(i, at)[0]; }
  void store(int i, T x, Site at = Site::here()) const { store_vec<1>(i, {x}, at); }

  template <int N>
  Vec<T, N> load_vec(int i, Site at = Site::here()) const {
    static_assert(sizeof(Vec<T, N>) <= 16, "one access moves at most 16 bytes");
    emulator::check_shared<emulator::SHARED_LOAD>(access<N>(i, at));
    Vec<T, N> x;
    memcpy(&x, emulator::arena.at(byte(i)), sizeof(x));
    return x;
  }
  template <int N>
  void store_vec(int i, const Vec<T, N>& x, Site at = Site::here()) const {
    static_assert(sizeof(Vec<T, N>) <= 16, "one access moves at most 16 bytes");
    emulator::check_shared<emulator::SHARED_STORE>(access<N>(i, at));
    memcpy(emulator::arena.at(byte(i)), &x, sizeof(x));
  }

  T atomic_add(int i, T x, Site at = Site::here()) const {
    emulator::check_shared<emulator::SHARED_ATOMIC>(access<1>(i, at));
    T old;
    memcpy(&old, emulator::arena.at(byte(i)), sizeof(old));
    const T sum = static_cast<T>(old + x);
    memcpy(emulator::arena.at(byte(i)), &sum, sizeof(sum));
    return old;
  }

  u32 address() const { return static_cast<u32>(offset_); }
  const emulator::SharedArray* array() const { return array_; }

 private:
  i64 byte(int i) const { return offset_ + i * static_cast<i64>(sizeof(T)); }
  template <int N>
  emulator::SharedAccess access(int i, Site at) const {
    return {array_, byte(i), static_cast<int>(sizeof(T)) * N, static_cast<int>(sizeof(T)), at};
  }

  const emulator::SharedArray* array_;
  i64 offset_;
};

}  // namespace titan

#define TITAN_SHARED(T, name, count)                                              \
  static ::titan::emulator::StaticShared name##_storage{#name, sizeof(T) * (count)}; \
  const ::titan::Shared<T> name(name##_storage.place(::titan::Site::here()))

#define TITAN_DYNAMIC_SHARED(T, name) const ::titan::Shared<T> name(::titan::emulator::arena.dynamic())
