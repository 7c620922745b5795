// Global and shared memory on the GPU: thin wrappers around pointers, no run-time cost.
#pragma once

#include <titan/cuda/platform.cuh>

namespace titan {

// N elements that move as one access; N * sizeof(T) is 2, 4, 8 or 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N) Vec {
  T v[N];
  __device__ __forceinline__ T& operator[](int i) { return v[i]; }
  __device__ __forceinline__ const T& operator[](int i) const { return v[i]; }
};

namespace detail {

template <class T>
struct remove_const { using type = T; };
template <class T>
struct remove_const<const T> { using type = T; };

template <int BYTES>
struct Word;
template <> struct Word<1> { using type = unsigned char; };
template <> struct Word<2> { using type = unsigned short; };
template <> struct Word<4> { using type = unsigned int; };
template <> struct Word<8> { using type = uint2; };
template <> struct Word<16> { using type = uint4; };

// Const data goes through the read-only path; a kernel that writes what it reads says Global<T>.
template <class V, bool READ_ONLY>
__device__ __forceinline__ V load(const void* p) {
  using W = typename Word<sizeof(V)>::type;
  union { W word; V value; } u;
  if constexpr (READ_ONLY) u.word = __ldg(static_cast<const W*>(p));
  else u.word = *static_cast<const W*>(p);
  return u.value;
}

template <class V>
__device__ __forceinline__ void store(void* p, const V& value) {
  using W = typename Word<sizeof(V)>::type;
  union { W word; V value; } u;
  u.value = value;
  *static_cast<W*>(p) = u.word;
}

// Vectors by instruction: what the compiler sees as an assignment of members it may store one by one.
template <class W>
__device__ __forceinline__ void store_global_word(W* p, W w) { *p = w; }
__device__ __forceinline__ void store_global_word(uint2* p, uint2 w) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(w.x), "r"(w.y) : "memory");
}
__device__ __forceinline__ void store_global_word(uint4* p, uint4 w) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w)
               : "memory");
}

template <class V>
__device__ __forceinline__ void store_global(void* p, const V& value) {
  using W = typename Word<sizeof(V)>::type;
  union { W word; V value; } u;
  u.value = value;
  store_global_word(static_cast<W*>(p), u.word);
}

}  // namespace detail

// A pointer into global memory; indices count elements of T.  Vector accesses need an address that is
// a multiple of their size.  The kernel parameter is a plain device address.  Functions that wrap accesses
// pass on the Site of their own caller, so that the emulator reports the line that matters.
template <class T>
class Global {
 public:
  using value_type = typename detail::remove_const<T>::type;

  Global() = default;
  __device__ __forceinline__ explicit Global(T* p) : p_(p) {}
  __device__ __forceinline__ static Global from_address(u64 address) {
    return Global(reinterpret_cast<T*>(address));
  }

  __device__ __forceinline__ Global operator+(i64 elements) const { return Global(p_ + elements); }
  __device__ __forceinline__ explicit operator bool() const { return p_ != nullptr; }
  __device__ __forceinline__ u64 address() const { return reinterpret_cast<u64>(p_); }

  __device__ __forceinline__ value_type load(i64 i = 0, Site = Site::here()) const { return load_vec<1>(i)[0]; }
  __device__ __forceinline__ void store(i64 i, value_type x, Site = Site::here()) const { store_vec<1>(i, {x}); }

  template <int N>
  __device__ __forceinline__ Vec<value_type, N> load_vec(i64 i, Site = Site::here()) const {
    return detail::load<Vec<value_type, N>, is_const>(p_ + i);
  }
  template <int N>
  __device__ __forceinline__ void store_vec(i64 i, const Vec<value_type, N>& x, Site = Site::here()) const {
    detail::store_global(p_ + i, x);
  }

  // Returns the old value.  Order is not deterministic: only for counters and flags.
  __device__ __forceinline__ value_type atomic_add(i64 i, value_type x, Site = Site::here()) const {
    return atomicAdd(p_ + i, x);
  }
  __device__ __forceinline__ value_type atomic_max(i64 i, value_type x, Site = Site::here()) const {
    return atomicMax(p_ + i, x);
  }

 private:
  template <class U> static constexpr bool const_of = false;
  template <class U> static constexpr bool const_of<const U> = true;
  static constexpr bool is_const = const_of<T>;
  T* p_;
};

// N kernel arguments of one kind, passed by value: Array<Global<T>, N> or Array<i64, N>.  Parameters are
// limited to 4 KB.
template <class T, int N>
struct Array {
  T v[N];
  __device__ __forceinline__ const T& operator[](int i) const { return v[i]; }
};

// A pointer into shared memory, with the same accesses.
template <class T>
class Shared {
 public:
  __device__ __forceinline__ explicit Shared(T* p) : p_(p) {}
  __device__ __forceinline__ Shared operator+(int elements) const { return Shared(p_ + elements); }
  template <class U>
  __device__ __forceinline__ Shared<U> as() const { return Shared<U>(reinterpret_cast<U*>(p_)); }

  __device__ __forceinline__ T load(int i = 0, Site = Site::here()) const { return p_[i]; }
  __device__ __forceinline__ void store(int i, T x, Site = Site::here()) const { p_[i] = x; }
  template <int N>
  __device__ __forceinline__ Vec<T, N> load_vec(int i, Site = Site::here()) const {
    return detail::load<Vec<T, N>, false>(p_ + i);
  }
  template <int N>
  __device__ __forceinline__ void store_vec(int i, const Vec<T, N>& x, Site = Site::here()) const {
    detail::store(p_ + i, x);
  }

  __device__ __forceinline__ T atomic_add(int i, T x, Site = Site::here()) const { return atomicAdd(p_ + i, x); }
  __device__ __forceinline__ u32 address() const { return static_cast<u32>(__cvta_generic_to_shared(p_)); }

 private:
  T* p_;
};

}  // namespace titan

// `TITAN_SHARED(float, sums, 32);` declares Shared<float> sums of 32 elements, 16-byte aligned.
#define TITAN_SHARED(T, name, count)                      \
  __shared__ __align__(16) unsigned char name##_storage[sizeof(T) * (count)]; \
  const titan::Shared<T> name(reinterpret_cast<T*>(name##_storage))

// The launch's dynamic shared memory, 16-byte aligned; once per kernel, split it with `+` and as<U>().
#define TITAN_DYNAMIC_SHARED(T, name)                                  \
  extern __shared__ __align__(16) unsigned char titan_dynamic_shared[]; \
  const titan::Shared<T> name(reinterpret_cast<T*>(titan_dynamic_shared))
