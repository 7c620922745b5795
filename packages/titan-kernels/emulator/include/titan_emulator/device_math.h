// CUDA's fp32 math and integer intrinsics by their names.
//
// Functions that a GPU computes in its special function units are counted.  Results are the host's:
// closer to exact than the GPU's approximations, so the last bits differ.
#pragma once

#include <titan_emulator/counters.h>
#include <titan_emulator/half2.h>

#define TITAN_SPECIAL(name, expression)                              \
  inline float name(float x, titan::Site at = titan::Site::here()) { \
    titan::emulator::count(at, titan::emulator::special_functions);  \
    return expression;                                               \
  }
TITAN_SPECIAL(expf, __builtin_expf(x))
TITAN_SPECIAL(__expf, __builtin_expf(x))
TITAN_SPECIAL(exp2f, __builtin_exp2f(x))
TITAN_SPECIAL(exp10f, __builtin_powf(10.0f, x))
TITAN_SPECIAL(__exp10f, __builtin_powf(10.0f, x))
TITAN_SPECIAL(expm1f, __builtin_expm1f(x))
TITAN_SPECIAL(logf, __builtin_logf(x))
TITAN_SPECIAL(__logf, __builtin_logf(x))
TITAN_SPECIAL(log2f, __builtin_log2f(x))
TITAN_SPECIAL(__log2f, __builtin_log2f(x))
TITAN_SPECIAL(log10f, __builtin_log10f(x))
TITAN_SPECIAL(__log10f, __builtin_log10f(x))
TITAN_SPECIAL(log1pf, __builtin_log1pf(x))
TITAN_SPECIAL(sinf, __builtin_sinf(x))
TITAN_SPECIAL(__sinf, __builtin_sinf(x))
TITAN_SPECIAL(cosf, __builtin_cosf(x))
TITAN_SPECIAL(__cosf, __builtin_cosf(x))
TITAN_SPECIAL(tanhf, __builtin_tanhf(x))
TITAN_SPECIAL(erff, __builtin_erff(x))
TITAN_SPECIAL(erfcf, __builtin_erfcf(x))
TITAN_SPECIAL(sqrtf, __builtin_sqrtf(x))
TITAN_SPECIAL(__fsqrt_rn, __builtin_sqrtf(x))
TITAN_SPECIAL(rsqrtf, 1.0f / __builtin_sqrtf(x))
TITAN_SPECIAL(__frsqrt_rn, 1.0f / __builtin_sqrtf(x))
TITAN_SPECIAL(__frcp_rn, 1.0f / x)
TITAN_SPECIAL(cbrtf, __builtin_cbrtf(x))
#undef TITAN_SPECIAL

inline float powf(float x, float y, titan::Site at = titan::Site::here()) {
  titan::emulator::count(at, titan::emulator::special_functions, 2);
  return __builtin_powf(x, y);
}
inline float __powf(float x, float y, titan::Site at = titan::Site::here()) { return powf(x, y, at); }
inline float __fdividef(float x, float y, titan::Site at = titan::Site::here()) {
  titan::emulator::count(at, titan::emulator::special_functions);
  return x / y;
}
inline void sincosf(float x, float* s, float* c, titan::Site at = titan::Site::here()) {
  *s = sinf(x, at);
  *c = cosf(x, at);
}
inline void __sincosf(float x, float* s, float* c, titan::Site at = titan::Site::here()) {
  sincosf(x, s, c, at);
}

inline float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline float __fmaf_rn(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float fmaxf(float x, float y) { return __builtin_fmaxf(x, y); }
inline float fminf(float x, float y) { return __builtin_fminf(x, y); }
inline float fabsf(float x) { return __builtin_fabsf(x); }
inline float floorf(float x) { return __builtin_floorf(x); }
inline float ceilf(float x) { return __builtin_ceilf(x); }
inline float truncf(float x) { return __builtin_truncf(x); }
inline float roundf(float x) { return __builtin_roundf(x); }
inline float rintf(float x) { return __builtin_rintf(x); }
inline float nearbyintf(float x) { return __builtin_rintf(x); }
inline float fmodf(float x, float y) { return __builtin_fmodf(x, y); }
inline float copysignf(float x, float y) { return __builtin_copysignf(x, y); }
inline float ldexpf(float x, int exponent) { return __builtin_ldexpf(x, exponent); }
// A NaN becomes 0.
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline bool isnan(float x) { return x != x; }
inline bool isinf(float x) { return __builtin_isinf(x); }
inline bool isfinite(float x) { return __builtin_isfinite(x); }

inline unsigned __float_as_uint(float x) { return titan::bit_copy<unsigned>(x); }
inline int __float_as_int(float x) { return titan::bit_copy<int>(x); }
inline float __uint_as_float(unsigned x) { return titan::bit_copy<float>(x); }
inline float __int_as_float(int x) { return titan::bit_copy<float>(x); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }

// Conversions saturate, and a NaN becomes 0.
inline int titan_to_int(float x) {
  if (x != x) return 0;
  if (x >= 2147483648.0f) return 0x7fffffff;
  return x < -2147483648.0f ? -0x7fffffff - 1 : static_cast<int>(x);
}
inline int __float2int_rn(float x) { return titan_to_int(__builtin_rintf(x)); }
inline int __float2int_rz(float x) { return titan_to_int(x); }
inline int __float2int_rd(float x) { return titan_to_int(__builtin_floorf(x)); }
inline int __float2int_ru(float x) { return titan_to_int(__builtin_ceilf(x)); }
inline unsigned __float2uint_rn(float x) {
  const float y = __builtin_rintf(x);
  return y >= 4294967296.0f ? 0xffffffffu : y > 0.0f ? static_cast<unsigned>(y) : 0u;
}

inline int __mulhi(int x, int y) { return static_cast<int>(static_cast<long long>(x) * y >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>(static_cast<titan::u64>(x) * y >> 32);
}
inline titan::u64 __umul64hi(titan::u64 x, titan::u64 y) {
  return static_cast<titan::u64>(static_cast<unsigned __int128>(x) * y >> 64);
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(titan::u64 x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<titan::u64>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned y = 0;
  for (int i = 0; i < 32; ++i) y |= (x >> i & 1u) << (31 - i);
  return y;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>(((static_cast<titan::u64>(high) << 32 | low) << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<titan::u64>(high) << 32 | low) >> (shift & 31));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const titan::u64 bytes = static_cast<titan::u64>(y) << 32 | x;
  unsigned out = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned s = selector >> (4 * i), byte = bytes >> (8 * (s & 7)) & 0xff;
    out |= ((s & 8) != 0 ? (byte & 0x80 ? 0xffu : 0u) : byte) << (8 * i);
  }
  return out;
}
inline int __dp4a(int x, int y, int sum) {
  for (int i = 0; i < 4; ++i)
    sum += static_cast<signed char>(x >> (8 * i)) * static_cast<signed char>(y >> (8 * i));
  return sum;
}

#define TITAN_MIN_MAX(T)                           \
  inline T min(T x, T y) { return y < x ? y : x; } \
  inline T max(T x, T y) { return x < y ? y : x; }
TITAN_MIN_MAX(int)
TITAN_MIN_MAX(unsigned)
TITAN_MIN_MAX(long long)
TITAN_MIN_MAX(unsigned long long)
#undef TITAN_MIN_MAX
inline float min(float x, float y) { return __builtin_fminf(x, y); }
inline float max(float x, float y) { return __builtin_fmaxf(x, y); }

[[noreturn]] inline void __trap(titan::Site at = titan::Site::here()) {
  titan::emulator::fail("trap", at, "the kernel called __trap()");
}
