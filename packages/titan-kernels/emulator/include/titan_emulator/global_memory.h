// Global<T>: a pointer into global memory that knows which argument it came from.
#pragma once

#include <titan_emulator/regions.h>
#include <titan_emulator/waiting.h>

namespace titan::emulator {

// What one access does, for checks and counters.
struct GlobalAccess {
  const Allocation* from;
  u64 address;
  int bytes, item;
  Site at;

  // "elements 8 to 15 of `x`"
  std::string elements() const {
    const i64 first = static_cast<i64>(address - from->begin) / item;
    const i64 last = first + bytes / item - 1;
    return (last > first ? "elements " + std::to_string(first) + " to " + std::to_string(last)
                         : "element " + std::to_string(first)) + " of `" + from->name + "`";
  }
};

[[noreturn, gnu::noinline]] inline void bad_address(const GlobalAccess& a, const char* verb) {
  if (a.from == nullptr || (a.from->reachable && a.from->begin == 0))
    fail("null-pointer", a.at, std::string(verb) + " through a null pointer" +
                                   (a.from == nullptr ? "" : ", `" + a.from->name + "`"));
  if (!a.from->reachable)
    fail("out-of-bounds", a.at, std::string(verb) + " at an address in none of the launch's tensors");
  fail("out-of-bounds", a.at, std::string(verb) + " of " + a.elements() + ", which has " +
                                  plural(a.from->bytes / a.item, "element"));
}

[[noreturn, gnu::noinline]] inline void misaligned(const GlobalAccess& a, const char* verb) {
  fail("misaligned", a.at, std::string(verb) + " of " + std::to_string(a.bytes) + " bytes at " + a.elements() +
                               ": the address is no multiple of " + std::to_string(a.bytes));
}

[[noreturn, gnu::noinline]] inline void global_race(const GlobalAccess& a, const char* verb, const Clash& clash) {
  std::string other = thread_name(thread_of(clash.other));
  std::string rule = "with no barrier in between";
  if (!in_this_block(clash.other)) {
    const u64 n = block_of(clash.other).number;
    other += " of block " + triple({static_cast<unsigned>(n % gridDim.x), static_cast<unsigned>(n / gridDim.x % gridDim.y),
                                    static_cast<unsigned>(n / gridDim.x / gridDim.y)});
    rule = "in the same launch, where blocks have no order";
  }
  fail("global-race", a.at, std::string(verb) + " of " + a.elements() + ", which " + other +
                                (clash.with == Clash::WRITE ? " writes in " : " reads in ") +
                                place(sites.site(clash.other.site)) + " " + rule);
}

inline Access this_access(Site at, u16 flags = 0) {
  const Thread& t = *launch.current;
  return {t.warp->stamp, static_cast<u16>(t.number | flags), sites.number(at)};
}

// Out of line: kernels inline hundreds of accesses.
template <Kind KIND>
[[gnu::noinline]] void check_global(const GlobalAccess& a) {
  constexpr const char* verb = KIND == GLOBAL_LOAD ? "load" : KIND == GLOBAL_STORE ? "store" : "atomic operation";
  tick(a.at);
  if (launch.options.check) {
    const u64 offset = a.from == nullptr ? 0 : a.address - a.from->begin;
    if (a.from == nullptr || offset > a.from->bytes || a.from->bytes - offset < static_cast<u64>(a.bytes))
      bad_address(a, verb);
    if (a.address % a.bytes != 0) misaligned(a, verb);
    if (KIND == GLOBAL_ATOMIC) launch.acquired = true;
    Shadow& shadow = regions.region(a.address)->shadow;
    const Access now = this_access(a.at, KIND == GLOBAL_ATOMIC ? ATOMIC : 0);
    const Clash clash = KIND == GLOBAL_LOAD ? shadow.read(a.address, a.bytes, now, *launch.current)
                                            : shadow.write(a.address, a.bytes, now, *launch.current);
    if (clash) global_race(a, verb, clash);
  }
  log_access(KIND, a.address, a.bytes, a.at);
}

}  // namespace titan::emulator

namespace titan {

template <class T>
class Global {
 public:
  using value_type = std::remove_const_t<T>;

  Global() = default;
  Global(u64 address, const emulator::Allocation* from) : address_(address), from_(from) {}
  static Global from_address(u64 address) {
    return address == 0 ? Global() : Global(address, emulator::regions.find(address));
  }

  Global operator+(i64 elements) const { return Global(address_ + elements * sizeof(T), from_); }
  explicit operator bool() const { return address_ != 0; }
  u64 address() const { return address_; }

  value_type load(i64 i = 0, Site at = Site::here()) const { return load_vec<1>(i, at)[0]; }
  void store(i64 i, value_type x, Site at = Site::here()) const { store_vec<1>(i, {x}, at); }

  template <int N>
  Vec<value_type, N> load_vec(i64 i, Site at = Site::here()) const {
    static_assert(sizeof(Vec<value_type, N>) <= 16, "one access moves at most 16 bytes");
    emulator::check_global<emulator::GLOBAL_LOAD>(access<N>(i, at));
    Vec<value_type, N> x;
    memcpy(&x, pointer(i), sizeof(x));
    return x;
  }

  template <int N>
  void store_vec(i64 i, const Vec<value_type, N>& x, Site at = Site::here()) const {
    static_assert(!std::is_const_v<T>, "Global<const T> is read-only");
    static_assert(sizeof(Vec<value_type, N>) <= 16, "one access moves at most 16 bytes");
    emulator::check_global<emulator::GLOBAL_STORE>(access<N>(i, at));
    memcpy(pointer(i), &x, sizeof(x));
  }

  value_type atomic_add(i64 i, value_type x, Site at = Site::here()) const {
    return atomic(i, at, [x](value_type old) { return static_cast<value_type>(old + x); });
  }
  value_type atomic_max(i64 i, value_type x, Site at = Site::here()) const {
    static_assert(std::is_integral_v<value_type>, "CUDA has atomicMax for integers only");
    return atomic(i, at, [x](value_type old) { return old > x ? old : x; });
  }

 private:
  template <int N>
  emulator::GlobalAccess access(i64 i, Site at) const {
    return {from_, address_ + i * sizeof(T), static_cast<int>(sizeof(T)) * N, static_cast<int>(sizeof(T)), at};
  }
  void* pointer(i64 i) const { return reinterpret_cast<void*>(address_ + i * sizeof(T)); }

  template <class F>
  value_type atomic(i64 i, Site at, F update) const {
    static_assert(!std::is_const_v<T>, "Global<const T> is read-only");
    emulator::check_global<emulator::GLOBAL_ATOMIC>(access<1>(i, at));
    value_type old;
    memcpy(&old, pointer(i), sizeof(old));
    const value_type updated = update(old);
    memcpy(pointer(i), &updated, sizeof(updated));
    return old;
  }

  u64 address_ = 0;
  const emulator::Allocation* from_ = nullptr;
};

}  // namespace titan
