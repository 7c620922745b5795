// Rows through titan/row.cuh, one block per row.
#include <titan/device.cuh>

using namespace titan;

namespace {

constexpr int VECTORS = 2;

// y = x + 1, and the sum of each row; elements beside the row must not count.
template <class T>
__device__ void add_one(Global<const T> x, Global<T> y, Global<float> sums, int n) {
  TITAN_SHARED(float, scratch, 32);
  const Row<const T> in(x + blockIdx.x * static_cast<i64>(n), n);
  const Row<T> out(y + blockIdx.x * static_cast<i64>(n), n);
  float sum = 0;
  for (int i = 0; i <= VECTORS; ++i) {
    const Slot s = in.template slot<VECTORS>(i, threadIdx.x, blockDim.x);
    if (!s.exists) continue;
    float v[Row<T>::W];
    in.load(s, v);  // ROW load
    for (int j = 0; j < Row<T>::W; ++j) {
      if (in.has(s, j)) sum += v[j];
      v[j] += 1.0f;
    }
    out.store(s, v);  // ROW store
  }
  sum = block_reduce<Sum>(sum, scratch);
  if (threadIdx.x == 0) sums.store(blockIdx.x, sum);
}

}  // namespace

#define ADD_ONE(name, T)                                                                          \
  TITAN_KERNEL(add_one_##name, 1024, (Global<const T> x, Global<T> y, Global<float> sums, int n), \
               add_one<T>(x, y, sums, n))
TITAN_FOR_EACH_FLOAT(ADD_ONE)
