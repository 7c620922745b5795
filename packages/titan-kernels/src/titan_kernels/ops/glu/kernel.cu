// Gated activations, activation(gate) * up, and the squared ReLU; the backward computes the activation again.
//
// Tensors are rows with a common length and strides of their own, so that gate and up can be halves of
// one tensor.  The grid's y dimension shares the rows, its x dimension the elements of a row; contiguous
// tensors come as one long row.
#include <titan/flat.cuh>

using namespace titan;

namespace {

// exp(-x) may become infinite; the quotient is then zero, as it should be.
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }

struct Activated {
  float value, slope;
};

struct Silu {
  __device__ __forceinline__ static Activated at(float x) {
    const float s = sigmoid(x);
    return {x * s, s * (1.0f + x * (1.0f - s))};
  }
};

// (1 + tanh(u)) / 2 is sigmoid(2 u), which keeps its digits where tanh(u) is near -1.
struct GeluTanh {
  __device__ __forceinline__ static Activated at(float x) {
    constexpr float SCALE = 1.5957691216057308f, CUBIC = 0.044715f;  // 2 * sqrt(2 / pi)
    const float s = sigmoid(SCALE * x * (1.0f + CUBIC * x * x));
    return {x * s, s + x * s * (1.0f - s) * SCALE * (1.0f + 3.0f * CUBIC * x * x)};
  }
};

// erfc, and not 1 + erf, for the same reason.
struct Gelu {
  __device__ __forceinline__ static Activated at(float x) {
    constexpr float SQRT_HALF = 0.70710678118654752f, DENSITY_AT_0 = 0.39894228040143268f;
    const float below = 0.5f * erfcf(-SQRT_HALF * x);
    return {x * below, below + x * DENSITY_AT_0 * expf(-0.5f * x * x)};
  }
};

// A NaN is not <= 0, and stays a NaN.
struct Relu2 {
  __device__ __forceinline__ static Activated at(float x) {
    const float positive = x <= 0.0f ? 0.0f : x;
    return {positive * positive, 2.0f * positive};
  }
};

template <class Activation, class T>
__device__ __forceinline__ void forward(Global<const T> gate, Global<const T> up, Global<T> y, i64 rows, i64 n,
                                        i64 gate_stride, i64 up_stride) {
  for (i64 row = blockIdx.y; row < rows; row += gridDim.y) {
    const Global<const T> g = gate + row * gate_stride, u = up + row * up_stride;
    const Global<T> out = y + row * n;
    Flat<WIDTH<T>>(n, g, u, out).for_each([&](auto width, i64 i) {
      float a[width.value], b[width.value];
      load_floats(g, i, a);
      load_floats(u, i, b);
#pragma unroll
      for (int j = 0; j < width.value; ++j) a[j] = Activation::at(a[j]).value * b[j];
      store_floats(out, i, a);
    });
  }
}

// Either gradient may be absent.
template <class Activation, class T>
__device__ __forceinline__ void backward(Global<const T> dy, Global<const T> gate, Global<const T> up,
                                         Global<T> dgate, Global<T> dup, i64 rows, i64 n, i64 dy_stride,
                                         i64 gate_stride, i64 up_stride, i64 out_stride) {
  for (i64 row = blockIdx.y; row < rows; row += gridDim.y) {
    const Global<const T> d = dy + row * dy_stride, g = gate + row * gate_stride, u = up + row * up_stride;
    const Global<T> dg = dgate ? dgate + row * out_stride : dgate, du = dup ? dup + row * out_stride : dup;
    Flat<WIDTH<T>>(n, d, g, u, dg, du).for_each([&](auto width, i64 i) {
      float a[width.value], b[width.value], c[width.value];
      load_floats(d, i, a);
      load_floats(g, i, b);
      load_floats(u, i, c);
#pragma unroll
      for (int j = 0; j < width.value; ++j) {
        const Activated activated = Activation::at(b[j]);
        b[j] = a[j] * c[j] * activated.slope;
        c[j] = a[j] * activated.value;
      }
      if (dgate) store_floats(dg, i, b);
      if (dup) store_floats(du, i, c);
    });
  }
}

template <class T>
__device__ __forceinline__ void relu2_forward(Global<const T> x, Global<T> y, i64 n) {
  Flat<WIDTH<T>>(n, x, y).for_each([&](auto width, i64 i) {
    float a[width.value];
    load_floats(x, i, a);
#pragma unroll
    for (int j = 0; j < width.value; ++j) a[j] = Relu2::at(a[j]).value;
    store_floats(y, i, a);
  });
}

template <class T>
__device__ __forceinline__ void relu2_backward(Global<const T> dy, Global<const T> x, Global<T> dx, i64 n) {
  Flat<WIDTH<T>>(n, dy, x, dx).for_each([&](auto width, i64 i) {
    float a[width.value], b[width.value];
    load_floats(dy, i, a);
    load_floats(x, i, b);
#pragma unroll
    for (int j = 0; j < width.value; ++j) a[j] *= Relu2::at(b[j]).slope;
    store_floats(dx, i, a);
  });
}

}  // namespace

#define GATED(t, T, kind, Kind)                                                                        \
  TITAN_KERNEL(glu_forward_##kind##_##t, 256,                                                          \
               (Global<const T> gate, Global<const T> up, Global<T> y, i64 rows, i64 n,                \
                i64 gate_stride, i64 up_stride),                                                       \
               forward<Kind>(gate, up, y, rows, n, gate_stride, up_stride))                            \
  TITAN_KERNEL(glu_backward_##kind##_##t, 256,                                                         \
               (Global<const T> dy, Global<const T> gate, Global<const T> up, Global<T> dgate,         \
                Global<T> dup, i64 rows, i64 n, i64 dy_stride, i64 gate_stride, i64 up_stride,         \
                i64 out_stride),                                                                       \
               backward<Kind>(dy, gate, up, dgate, dup, rows, n, dy_stride, gate_stride, up_stride,    \
                              out_stride))
#define KERNELS(t, T)                                                                                  \
  GATED(t, T, silu, Silu)                                                                              \
  GATED(t, T, gelu, Gelu)                                                                              \
  GATED(t, T, gelu_tanh, GeluTanh)                                                                     \
  TITAN_KERNEL(glu_relu2_forward_##t, 256, (Global<const T> x, Global<T> y, i64 n), relu2_forward(x, y, n)) \
  TITAN_KERNEL(glu_relu2_backward_##t, 256, (Global<const T> dy, Global<const T> x, Global<T> dx, i64 n), \
               relu2_backward(dy, x, dx, n))

TITAN_FOR_EACH_FLOAT(KERNELS)
