// Teams of whole warps that share a row, with their size known at run time only.
//
// blockDim is (threads of a team, teams of the block): threadIdx.x is the rank in the team and
// threadIdx.y the team's number.  Loops over rows run equally often in every team of a block, because
// reductions of larger teams meet at the block's barriers.
#pragma once

#include <titan/device.cuh>

namespace titan {

constexpr int TEAM_MAX_THREADS = 512;  // of a block
constexpr int TEAM_MAX_VALUES = 2;     // of a reduction
constexpr int TEAM_SCRATCH = 2 * TEAM_MAX_VALUES * (TEAM_MAX_THREADS / 32);

class TeamReduce {
 public:
  // `scratch` holds TEAM_SCRATCH floats.
  __device__ __forceinline__ explicit TeamReduce(Shared<float> scratch) : scratch_(scratch) {}

  // Reduces each of the N values over the team; every thread gets the results.
  template <class Operation, int N>
  __device__ __forceinline__ void operator()(float (&x)[N]) {
    static_assert(N <= TEAM_MAX_VALUES, "scratch memory is too small");
#pragma unroll
    for (int k = 0; k < N; ++k) x[k] = warp_reduce<Operation>(x[k]);
    const int warps = blockDim.x / 32;
    if (warps == 1) return;
    // Two halves in turn, so that one barrier is enough: when a half is written again, all threads
    // have passed the other half's barrier and so have read this one.
    const Shared<float> buffer = scratch_ + half_ * (TEAM_SCRATCH / 2);
    half_ ^= 1;
    const int first = threadIdx.y * warps;
    if (threadIdx.x % 32 == 0)
#pragma unroll
      for (int k = 0; k < N; ++k) buffer.store((first + threadIdx.x / 32) * N + k, x[k]);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < N; ++k) {
      x[k] = buffer.load(first * N + k);
      for (int warp = 1; warp < warps; ++warp)
        x[k] = Operation::combine(x[k], buffer.load((first + warp) * N + k));
    }
  }

  template <class Operation>
  __device__ __forceinline__ float operator()(float x) {
    float values[1] = {x};
    operator()<Operation>(values);
    return values[0];
  }

 private:
  Shared<float> scratch_;
  int half_ = 0;
};

// N statistics of each of the team's rows, (rows, N) in global memory.  Warps that load the same few bytes
// each cost a sector, so one thread loads those of the team's next row and passes them on by shared memory.
//
//   TeamStatistics<2> statistics(from, rows, scratch);  // before a barrier
//   for (each row) {
//     const auto mine = statistics.next();
//     ... a TeamReduce ...
//   }
template <int N>
class TeamStatistics {
 public:
  static constexpr int SCRATCH = 2 * N * (TEAM_MAX_THREADS / 32);

  __device__ __forceinline__ TeamStatistics(Global<const float> from, i64 rows, Shared<float> scratch)
      : from_(from), rows_(rows), row_(blockIdx.x * static_cast<i64>(blockDim.y) + threadIdx.y), scratch_(scratch) {
    fetch();
  }

  __device__ __forceinline__ Vec<float, N> next() {
    Vec<float, N> mine = {};
    if (blockDim.x == 32) {
      if (row_ < rows_) mine = from_.template load_vec<N>(row_ * N);
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) mine[k] = place().load(k);
    }
    row_ += gridDim.x * static_cast<i64>(blockDim.y);
    half_ ^= 1;  // the other half was read before the last reduction's barrier
    fetch();
    return mine;
  }

 private:
  __device__ __forceinline__ Shared<float> place() const {
    return scratch_ + half_ * (SCRATCH / 2) + threadIdx.y * N;
  }
  __device__ __forceinline__ void fetch() const {
    if (blockDim.x == 32 || threadIdx.x != 0) return;
    const Vec<float, N> loaded = row_ < rows_ ? from_.template load_vec<N>(row_ * N) : Vec<float, N>{};
#pragma unroll
    for (int k = 0; k < N; ++k) place().store(k, loaded[k]);
  }

  Global<const float> from_;
  i64 rows_, row_;
  Shared<float> scratch_;
  int half_ = 0;
};

}  // namespace titan
