// Global<T>: a pointer into global memory that knows which argument it came from.
#pragma once

#include <titan_emulator/counters.h>

namespace titan::emulator {

// What one pointer argument may reach.
struct Allocation {
  u64 begin = 0, bytes = 0;
  std::string name;  // the kernel's parameter
  bool reachable = true;
};

// What one access does, for checks and counters.
struct GlobalAccess {
  const Allocation* from;
  u64 address;
  int bytes, item;
  Site at;
};

// The checks and counts of one access, in the runtime: kernels inline hundreds of accesses.
void check_global(Kind kind, const GlobalAccess& access);

// The smallest tensor around an address.
const Allocation* find_allocation(u64 address);

}  // namespace titan::emulator

namespace titan {

template <class T>
class Global {
 public:
  using value_type = std::remove_const_t<T>;

  Global() = default;
  Global(u64 address, const emulator::Allocation* from) : address_(address), from_(from) {}
  static Global from_address(u64 address) {
    return address == 0 ? Global() : Global(address, emulator::find_allocation(address));
  }

  Global operator+(i64 elements) const { return Global(address_ + elements * sizeof(T), from_); }
  explicit operator bool() const { return address_ != 0; }
  u64 address() const { return address_; }

  value_type load(i64 i = 0, Site at = Site::here()) const { return load_vec<1>(i, at)[0]; }
  void store(i64 i, value_type x, Site at = Site::here()) const { store_vec<1>(i, {x}, at); }

  template <int N>
  Vec<value_type, N> load_vec(i64 i, Site at = Site::here()) const {
    static_assert(sizeof(Vec<value_type, N>) <= 16, "one access moves at most 16 bytes");
    emulator::check_global(emulator::GLOBAL_LOAD, access<N>(i, at));
    Vec<value_type, N> x;
    memcpy(&x, pointer(i), sizeof(x));
    return x;
  }

  template <int N>
  void store_vec(i64 i, const Vec<value_type, N>& x, Site at = Site::here()) const {
    static_assert(!std::is_const_v<T>, "Global<const T> is read-only");
    static_assert(sizeof(Vec<value_type, N>) <= 16, "one access moves at most 16 bytes");
    emulator::check_global(emulator::GLOBAL_STORE, access<N>(i, at));
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
    return {from_, address_ + i * sizeof(T), static_cast<int>(sizeof(T)) * N, static_cast<int>(sizeof(T)),
            at};
  }
  void* pointer(i64 i) const { return reinterpret_cast<void*>(address_ + i * sizeof(T)); }

  template <class F>
  value_type atomic(i64 i, Site at, F update) const {
    static_assert(!std::is_const_v<T>, "Global<const T> is read-only");
    emulator::check_global(emulator::GLOBAL_ATOMIC, access<1>(i, at));
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
