// new_op: y = factor * x.
#include <titan/flat.cuh>

using namespace titan;

namespace {

template <class T>
__device__ __forceinline__ void forward(Global<const T> x, Global<T> y, i64 n, float factor) {
  Flat<WIDTH<T>>(n, x, y).for_each([&](auto width, i64 i) {
    float v[width.value];
    load_floats(x, i, v);
#pragma unroll
    for (int j = 0; j < width.value; ++j) v[j] *= factor;
    store_floats(y, i, v);
  });
}

}  // namespace

#define KERNELS(t, T)                                                                         \
  TITAN_KERNEL(new_op_##t, 256, (Global<const T> x, Global<T> y, i64 n, float factor),        \
               forward(x, y, n, factor))
TITAN_FOR_EACH_FLOAT(KERNELS)
