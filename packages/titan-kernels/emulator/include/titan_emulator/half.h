// fp16 and bf16: conversions round to nearest even; arithmetic is done wider and rounded once.
#pragma once

#include <titan_emulator/platform.h>

#ifndef __FLT16_MAX__
#error "The emulator needs _Float16: g++ 12, clang 15 or later, on x86-64 or aarch64"
#endif

struct alignas(2) __half {
  unsigned short bits;

  __half() = default;
  __half(float x);
  operator float() const;
};

struct alignas(4) __half2 {
  __half x, y;
  __half2() = default;
  __half2(__half x, __half y) : x(x), y(y) {}
};

using half = __half;
using half2 = __half2;

inline float __half2float(__half h) { return static_cast<float>(titan::bit_copy<_Float16>(h)); }

inline __half __ushort_as_half(unsigned short bits) { return titan::bit_copy<__half>(bits); }
inline __half __short_as_half(short bits) { return titan::bit_copy<__half>(bits); }
inline unsigned short __half_as_ushort(__half h) { return h.bits; }
inline short __half_as_short(__half h) { return static_cast<short>(h.bits); }

// CUDA has one NaN for all of them.
inline __half __float2half_rn(float x) {
  return x != x ? __ushort_as_half(0x7fff) : titan::bit_copy<__half>(static_cast<_Float16>(x));
}
inline __half __float2half(float x) { return __float2half_rn(x); }
inline __half::__half(float x) : bits(__float2half_rn(x).bits) {}
inline __half::operator float() const { return __half2float(*this); }

// One rounding: a float holds sums, products and quotients of halves closely enough that rounding it
// again gives the correctly rounded half (p >= 2q + 2).
inline __half __hadd(__half a, __half b) { return __float2half_rn(__half2float(a) + __half2float(b)); }
inline __half __hsub(__half a, __half b) { return __float2half_rn(__half2float(a) - __half2float(b)); }
inline __half __hmul(__half a, __half b) { return __float2half_rn(__half2float(a) * __half2float(b)); }
inline __half __hdiv(__half a, __half b) { return __float2half_rn(__half2float(a) / __half2float(b)); }
inline __half __hneg(__half a) { return __ushort_as_half(a.bits ^ 0x8000u); }
inline __half __habs(__half a) { return __ushort_as_half(a.bits & 0x7fffu); }

// The product is exact in a double; the sum is rounded to odd there, so that the second rounding sees
// on which side of a tie it lies.
inline __half __hfma(__half a, __half b, __half c) {
  const double product = static_cast<double>(__half2float(a)) * __half2float(b), addend = __half2float(c);
  double sum = product + addend;
  const double virtual_addend = sum - product;
  const double error = (product - (sum - virtual_addend)) + (addend - virtual_addend);
  const titan::u64 bits = titan::bit_copy<titan::u64>(sum);
  if (error != 0.0 && error == error && (bits & 1) == 0)
    sum = titan::bit_copy<double>((error > 0.0) == (sum > 0.0) ? bits + 1 : bits - 1);
  return sum != sum ? __ushort_as_half(0x7fff) : titan::bit_copy<__half>(static_cast<_Float16>(sum));
}

// As IEEE 754-2008 maxNum: a NaN gives way to a number.
inline __half __hmax(__half a, __half b) {
  return __float2half_rn(__builtin_fmaxf(__half2float(a), __half2float(b)));
}
inline __half __hmin(__half a, __half b) {
  return __float2half_rn(__builtin_fminf(__half2float(a), __half2float(b)));
}

inline bool __hisnan(__half a) { return (a.bits & 0x7fffu) > 0x7c00u; }
inline bool __heq(__half a, __half b) { return __half2float(a) == __half2float(b); }
inline bool __hne(__half a, __half b) {
  return __half2float(a) != __half2float(b) && !__hisnan(a) && !__hisnan(b);
}
inline bool __hlt(__half a, __half b) { return __half2float(a) < __half2float(b); }
inline bool __hle(__half a, __half b) { return __half2float(a) <= __half2float(b); }
inline bool __hgt(__half a, __half b) { return __half2float(a) > __half2float(b); }
inline bool __hge(__half a, __half b) { return __half2float(a) >= __half2float(b); }

inline __half operator+(__half a, __half b) { return __hadd(a, b); }
inline __half operator-(__half a, __half b) { return __hsub(a, b); }
inline __half operator*(__half a, __half b) { return __hmul(a, b); }
inline __half operator/(__half a, __half b) { return __hdiv(a, b); }
inline __half operator-(__half a) { return __hneg(a); }
inline __half& operator+=(__half& a, __half b) { return a = a + b; }
inline __half& operator-=(__half& a, __half b) { return a = a - b; }
inline __half& operator*=(__half& a, __half b) { return a = a * b; }
inline bool operator==(__half a, __half b) { return __heq(a, b); }
inline bool operator!=(__half a, __half b) { return __half2float(a) != __half2float(b); }
inline bool operator<(__half a, __half b) { return __hlt(a, b); }
inline bool operator<=(__half a, __half b) { return __hle(a, b); }
inline bool operator>(__half a, __half b) { return __hgt(a, b); }
inline bool operator>=(__half a, __half b) { return __hge(a, b); }

namespace titan {

using half = __half;

// bfloat16 as a storage format: arithmetic is fp32.
struct alignas(2) bf16 {
  unsigned short bits;
};

inline float to_float(half x) { return __half2float(x); }
inline half to_half(float x) { return __float2half_rn(x); }

}  // namespace titan
