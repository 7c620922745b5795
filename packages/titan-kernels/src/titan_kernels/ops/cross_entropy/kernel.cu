// Cross-entropy of rows of logits, of a whole vocabulary or of one rank's shard of it.
//
// A block per row, of any length: the softmax is computed online, so the forward reads a row once.  The
// backward computes it again from the logits and their log-sum-exp.
#include <titan/device.cuh>

using namespace titan;

namespace {

constexpr int MAX_THREADS = 512;
constexpr float LOG2E = 1.44269504f;

__device__ __forceinline__ float minus_infinity() { return bits_float(0xff800000u); }
__device__ __forceinline__ float nan() { return bits_float(0x7fffffffu); }

// Logits are cap * tanh(x / cap); no cap where it is 0.
class SoftCap {
 public:
  __device__ __forceinline__ explicit SoftCap(float cap) : cap_(cap), inverse_(1.0f / cap) {}

  template <int N>
  __device__ __forceinline__ void apply(float (&x)[N]) const {
    if (cap_ == 0.0f) return;
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] = cap_ * tanhf(x[j] * inverse_);
  }

  // Turns the derivative by capped logits `z` into the one by the logits.
  template <int N>
  __device__ __forceinline__ void differentiate(const float (&z)[N], float (&dz)[N]) const {
    if (cap_ == 0.0f) return;
#pragma unroll
    for (int j = 0; j < N; ++j) dz[j] *= 1.0f - z[j] * inverse_ * (z[j] * inverse_);
  }

 private:
  float cap_, inverse_;
};

// The sum of exp(x - maximum) over the numbers seen so far.  A NaN among them makes the sum a NaN.
struct OnlineSum {
  float maximum = minus_infinity(), sum = 0.0f;

  // Where all numbers so far are -inf, the maximum has no difference to them.
  __device__ __forceinline__ static float term(float x, float maximum) {
    return exp2f((x - (maximum == minus_infinity() ? 0.0f : maximum)) * LOG2E);
  }

  template <int W>
  __device__ __forceinline__ void add(const float (&x)[W]) {
    float largest = x[0];
#pragma unroll
    for (int j = 1; j < W; ++j) largest = fmaxf(largest, x[j]);
    if (largest > maximum) {
      sum *= term(maximum, largest);
      maximum = largest;
    }
#pragma unroll
    for (int j = 0; j < W; ++j) sum += term(x[j], maximum);
  }

  __device__ __forceinline__ void merge_over_block(Shared<float> scratch) {
    const float largest = block_reduce<Max>(maximum, scratch);
    sum = block_reduce<Sum>(sum * term(maximum, largest), scratch);
    maximum = largest;
  }
};

// With `loss`: loss and lse of rows of the whole vocabulary.  Without: the parts from which lse and loss
// of a vocabulary in shards can be computed, `n` logits from class `first_class` on.
template <class T>
__device__ __forceinline__ void forward(Global<const T> logits, Global<const i64> target, Global<float> loss,
                                        Global<float> lse, Global<float> maximum, Global<float> sum_exp,
                                        Global<float> target_logit, Global<float> total, int n, i64 first_class,
                                        i64 ignore_index, float smoothing, float z_loss, float cap) {
  using In = Row<const T>;
  constexpr int W = In::W;
  TITAN_SHARED(float, scratch, 32);
  const i64 row = blockIdx.x, wanted = target.load(row), place = wanted - first_class;
  const In in(logits + row * n, n);
  const SoftCap softcap(cap);
  OnlineSum softmax;
  float logit_sum = 0.0f, picked[1] = {};
  if (wanted != ignore_index) {
    if (threadIdx.x == 0 && place >= 0 && place < n) {
      picked[0] = to_float(logits.load(row * n + place));
      softcap.apply(picked);
    }
    in.each(threadIdx.x, blockDim.x, [&](const Slot& s) {
      float x[W];
      in.load(s, x);
      softcap.apply(x);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        if (in.has(s, j)) logit_sum += x[j];
        else x[j] = minus_infinity();
      }
      softmax.add(x);
    });
    softmax.merge_over_block(scratch);
    logit_sum = block_reduce<Sum>(logit_sum, scratch);
  }
  if (threadIdx.x != 0) return;
  if (!loss) {
    maximum.store(row, wanted == ignore_index ? 0.0f : softmax.maximum);
    sum_exp.store(row, softmax.sum);
    target_logit.store(row, picked[0]);
    total.store(row, logit_sum);
    return;
  }
  float row_loss = 0.0f, row_lse = 0.0f;
  if (wanted != ignore_index) {
    const float log_sum = logf(softmax.sum);
    row_lse = softmax.maximum + log_sum;
    row_loss = log_sum + (1.0f - smoothing) * (softmax.maximum - picked[0]) + z_loss * row_lse * row_lse;
    if (smoothing > 0.0f) row_loss += smoothing * (softmax.maximum - logit_sum / n);
    if (place < 0 || place >= n) row_loss = nan();
  }
  loss.store(row, row_loss);
  lse.store(row, row_lse);
}

// The gradient of the logits; it may have their memory.
template <class T>
__device__ __forceinline__ void backward(Global<const float> grad, Global<T> logits, Global<const i64> target,
                                         Global<const float> lse, Global<T> out, int n, i64 first_class,
                                         i64 classes, i64 ignore_index, float smoothing, float z_loss, float cap) {
  using Both = Row<T>;
  constexpr int W = Both::W;
  const i64 row = blockIdx.x, wanted = target.load(row), place = wanted - first_class;
  const Both in(logits + row * n, n), gradient(out + row * n, n);
  const SoftCap softcap(cap);
  const bool ignored = wanted == ignore_index, exists = wanted >= 0 && wanted < classes;
  const float row_lse = lse.load(row), row_grad = exists ? grad.load(row) : nan();
  const float of_softmax = row_grad * (1.0f + 2.0f * z_loss * row_lse);
  const float of_target = row_grad * (1.0f - smoothing), of_all = row_grad * smoothing / classes;
  in.each(threadIdx.x, blockDim.x, [&](const Slot& s) {
    float z[W], dz[W] = {};
    if (!ignored) {
      in.load(s, z);
      softcap.apply(z);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        dz[j] = of_softmax * exp2f((z[j] - row_lse) * LOG2E) - of_all;
        if (s.begin + j == place) dz[j] -= of_target;
      }
      softcap.differentiate(z, dz);
    }
    gradient.store(s, dz);
  });
}

}  // namespace

#define KERNELS(t, T)                                                                                          \
  TITAN_KERNEL(cross_entropy_forward_##t, MAX_THREADS,                                                         \
               (Global<const T> logits, Global<const i64> target, Global<float> loss, Global<float> lse,       \
                Global<float> maximum, Global<float> sum_exp, Global<float> target_logit, Global<float> total, \
                int n, i64 first_class, i64 ignore_index, float smoothing, float z_loss, float cap),           \
               forward<T>(logits, target, loss, lse, maximum, sum_exp, target_logit, total, n, first_class,    \
                          ignore_index, smoothing, z_loss, cap))                                               \
  TITAN_KERNEL(cross_entropy_backward_##t, MAX_THREADS,                                                        \
               (Global<const float> grad, Global<T> logits, Global<const i64> target, Global<const float> lse, \
                Global<T> out, int n, i64 first_class, i64 classes, i64 ignore_index, float smoothing,         \
                float z_loss, float cap),                                                                      \
               backward<T>(grad, logits, target, lse, out, n, first_class, classes, ignore_index, smoothing,   \
                           z_loss, cap))
TITAN_FOR_EACH_FLOAT(KERNELS)
