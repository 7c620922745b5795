// Conversions and arithmetic of 16-bit floats, math functions and integer intrinsics, element by element.
#include <titan/device.cuh>

using namespace titan;

namespace {

__device__ i64 element() { return blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x; }

template <class T>
__device__ void widen(Global<const T> x, Global<float> y) {
  y.store(element(), to_float(x.load(element())));
}

template <class T>
__device__ void narrow(Global<const float> x, Global<T> y) {
  y.store(element(), from_float<T>(x.load(element())));
}

// Rows of n: sum, difference, product, quotient, fused, maximum, minimum.
__device__ void half_arithmetic(Global<const half> a, Global<const half> b, Global<const half> c,
                                Global<half> y, i64 n) {
  const i64 i = element();
  const half x = a.load(i), z = b.load(i), w = c.load(i);
  y.store(i, __hadd(x, z));
  y.store(n + i, __hsub(x, z));
  y.store(2 * n + i, __hmul(x, z));
  y.store(3 * n + i, __hdiv(x, z));
  y.store(4 * n + i, __hfma(x, z, w));
  y.store(5 * n + i, __hmax(x, z));
  y.store(6 * n + i, __hmin(x, z));
}

// The same in pairs.
__device__ void packed_arithmetic(Global<const __half2> a, Global<const __half2> b, Global<const __half2> c,
                                  Global<__half2> y, i64 n) {
  const i64 i = element();
  const __half2 x = a.load(i), z = b.load(i), w = c.load(i);
  y.store(i, __hadd2(x, z));
  y.store(n + i, __hsub2(x, z));
  y.store(2 * n + i, __hmul2(x, z));
  y.store(3 * n + i, __h2div(x, z));
  y.store(4 * n + i, __hfma2(x, z, w));
  y.store(5 * n + i, __floats2half2_rn(__low2float(x), __high2float(z)));
  const float2 pair = __half22float2(x);
  y.store(6 * n + i, __halves2half2(__float2half_rn(pair.y), __float2half_rn(pair.x)));
}

// Rows of n, one per function.
__device__ void math(Global<const float> x, Global<float> y, i64 n) {
  const i64 i = element();
  const float v = x.load(i), positive = fabsf(v) + 0.5f;
  const float results[] = {
      expf(v),  exp2f(v),  logf(positive), log2f(positive),         log1pf(positive), tanhf(v),
      erff(v),  sinf(v),   cosf(v),        sqrtf(positive),         rsqrtf(positive), floorf(v),
      ceilf(v), truncf(v), rintf(v),       __fdividef(v, positive), fmaf(v, v, 1.0f), __saturatef(v)};
  for (int k = 0; k < 18; ++k) y.store(k * n + i, results[k]);
}

__device__ void extrema(Global<const float> a, Global<const float> b, Global<float> y, i64 n) {
  const i64 i = element();
  y.store(i, fmaxf(a.load(i), b.load(i)));
  y.store(n + i, fminf(a.load(i), b.load(i)));
  y.store(2 * n + i, max(a.load(i), b.load(i)));
}

__device__ void integers(Global<const int> a, Global<const int> b, Global<int> y, i64 n) {
  const i64 i = element();
  const int x = a.load(i), z = b.load(i);
  const unsigned ux = static_cast<unsigned>(x), uz = static_cast<unsigned>(z);
  const int results[] = {static_cast<int>(__umulhi(ux, uz)),
                         __mulhi(x, z),
                         __popc(ux),
                         __clz(x),
                         __ffs(x),
                         static_cast<int>(__brev(ux)),
                         static_cast<int>(__funnelshift_l(ux, uz, 7)),
                         static_cast<int>(__byte_perm(ux, uz, 0x5140)),
                         min(x, z),
                         max(x, z),
                         __float2int_rn(__int_as_float(x)),
                         __dp4a(x, z, 3)};
  for (int k = 0; k < 12; ++k) y.store(k * n + i, results[k]);
}

}  // namespace

TITAN_KERNEL(widen_f16, 256, (Global<const half> x, Global<float> y), widen(x, y))
TITAN_KERNEL(widen_bf16, 256, (Global<const bf16> x, Global<float> y), widen(x, y))
TITAN_KERNEL(narrow_f16, 256, (Global<const float> x, Global<half> y), narrow(x, y))
TITAN_KERNEL(narrow_bf16, 256, (Global<const float> x, Global<bf16> y), narrow(x, y))
TITAN_KERNEL(half_arithmetic_f16, 256,
             (Global<const half> a, Global<const half> b, Global<const half> c, Global<half> y, i64 n),
             half_arithmetic(a, b, c, y, n))
TITAN_KERNEL(packed_arithmetic_f16, 256,
             (Global<const __half2> a, Global<const __half2> b, Global<const __half2> c, Global<__half2> y,
              i64 n),
             packed_arithmetic(a, b, c, y, n))
TITAN_KERNEL(math_f32, 256, (Global<const float> x, Global<float> y, i64 n), math(x, y, n))
TITAN_KERNEL(extrema_f32, 256, (Global<const float> a, Global<const float> b, Global<float> y, i64 n),
             extrema(a, b, y, n))
TITAN_KERNEL(integers_i32, 256, (Global<const int> a, Global<const int> b, Global<int> y, i64 n),
             integers(a, b, y, n))
