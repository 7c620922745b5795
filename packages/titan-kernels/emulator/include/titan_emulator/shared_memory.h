// Shared<T>: one arena per block, poisoned with NaN when the block starts.
#pragma once

#include <titan_emulator/counters.h>

namespace titan::emulator {

// One TITAN_SHARED or the dynamic memory; offsets count bytes from the arena's begin.
struct SharedArray {
  const char* name = "";
  u32 begin = 0, bytes = 0;
};

// The shared memory of the block that runs: the dynamic part, then the static arrays.
class Arena {
 public:
  void start_launch(u64 dynamic_bytes);
  void start_block();

  // A place for a static array; the same for all threads and blocks of the launch.
  SharedArray place(const char* name, u64 bytes, Site at);

  const SharedArray* dynamic() const { return &dynamic_; }
  u32 used() const { return used_; }
  char* at(i64 offset) { return reinterpret_cast<char*>(memory_.data()) + offset; }

 private:
  struct alignas(64) Line {
    char bytes[64];
  };

  SharedArray dynamic_;
  u32 used_ = 0, static_bytes_ = 0;
  std::vector<Line> memory_;
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
};

// The checks and counts of one access, in the runtime.
void check_shared(Kind kind, const SharedAccess& access);

}  // namespace titan::emulator

namespace titan {

template <class T>
class Shared {
 public:
  explicit Shared(const emulator::SharedArray* array) : array_(array), offset_(array->begin) {}
  Shared(const emulator::SharedArray* array, i64 offset) : array_(array), offset_(offset) {}

  Shared operator+(int elements) const {
    return Shared(array_, offset_ + elements * static_cast<i64>(sizeof(T)));
  }
  template <class U>
  Shared<U> as() const {
    return Shared<U>(array_, offset_);
  }

  T load(int i = 0, Site at = Site::here()) const { return load_vec<1>(i, at)[0]; }
  void store(int i, T x, Site at = Site::here()) const { store_vec<1>(i, {x}, at); }

  template <int N>
  Vec<T, N> load_vec(int i, Site at = Site::here()) const {
    static_assert(sizeof(Vec<T, N>) <= 16, "one access moves at most 16 bytes");
    emulator::check_shared(emulator::SHARED_LOAD, access<N>(i, at));
    Vec<T, N> x;
    memcpy(&x, emulator::arena.at(byte(i)), sizeof(x));
    return x;
  }
  template <int N>
  void store_vec(int i, const Vec<T, N>& x, Site at = Site::here()) const {
    static_assert(sizeof(Vec<T, N>) <= 16, "one access moves at most 16 bytes");
    emulator::check_shared(emulator::SHARED_STORE, access<N>(i, at));
    memcpy(emulator::arena.at(byte(i)), &x, sizeof(x));
  }

  T atomic_add(int i, T x, Site at = Site::here()) const {
    emulator::check_shared(emulator::SHARED_ATOMIC, access<1>(i, at));
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

#define TITAN_SHARED(T, name, count)                                                 \
  static ::titan::emulator::StaticShared name##_storage{#name, sizeof(T) * (count)}; \
  const ::titan::Shared<T> name(name##_storage.place(::titan::Site::here()))

#define TITAN_DYNAMIC_SHARED(T, name) const ::titan::Shared<T> name(::titan::emulator::arena.dynamic())
