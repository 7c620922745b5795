// What belongs to the columns of all rows: parameters, and sums of gradients.
//
// Where rows are whole vectors (ALIGNED), a thread meets the same columns in every row and keeps their
// values in registers; else they are in shared memory, where any thread finds them.
#pragma once

#include <titan/device.cuh>
#include <titan/team.cuh>

namespace titan {

constexpr int COLUMN_ELEMENTS = 16;  // of a row in a thread

// A weight or bias: in the dtype of x or in fp32, so one of the pointers is null; both where there is none.
template <class T>
struct Parameter {
  Global<const T> narrow;
  Global<const float> wide;

  __device__ __forceinline__ float load(int e, float absent) const {
    return narrow ? to_float(narrow.load(e)) : wide ? wide.load(e) : absent;
  }
};

template <class T, bool ALIGNED>
struct Layout {
  static constexpr int W = WIDTH<T>, V = COLUMN_ELEMENTS / W, SLOTS = ALIGNED ? V : V + 1;
  using In = Row<const T>;
  using Out = Row<T>;
  using SharedRow = TransposedRow<float, W>;

  __device__ __forceinline__ static Slot slot(const In& row, int i) {
    return row.template slot<V>(i, threadIdx.x, blockDim.x);
  }

  // Of the body; an edge has none.  Zero where a slot does not exist, so that aligned rows compute without
  // branches and store what exists.
  using Vectors = Vec<T, W>[SLOTS];
  __device__ __forceinline__ static void fetch(const In& row, Vectors& to, Site site = Site::here()) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const Slot s = slot(row, i);
      to[i] = s.exists ? row.fetch(s, site) : Vec<T, W>{};
    }
  }
};

__device__ __forceinline__ int thread_in_block() { return threadIdx.y * blockDim.x + threadIdx.x; }
__device__ __forceinline__ int threads_of_block() { return blockDim.x * blockDim.y; }

// Values of the thread's columns.  Row starts are multiples of 16 bytes, so slot i of thread r begins in
// column (i * team + r) * W.
template <class T>
class RegisterColumns {
  using L = Layout<T, true>;

 public:
  __device__ __forceinline__ explicit RegisterColumns(float value) {
#pragma unroll
    for (int i = 0; i < L::V; ++i)
#pragma unroll
      for (int j = 0; j < L::W; ++j) x_[i][j] = value;
  }
  __device__ __forceinline__ float get(int i, int j, int) const { return x_[i][j]; }
  __device__ __forceinline__ void add(int i, int j, int, float x) { x_[i][j] += x; }

  template <class F>  // f(column, value) for each of the row's columns
  __device__ __forceinline__ void each(int n, F f) {
#pragma unroll
    for (int i = 0; i < L::V; ++i) {
      const int begin = (i * blockDim.x + threadIdx.x) * L::W;
      if (begin >= n) continue;
#pragma unroll
      for (int j = 0; j < L::W; ++j) f(begin + j, x_[i][j]);
    }
  }

 private:
  float x_[L::V][L::W];
};

// The same for rows of any shift: a row in shared memory.
template <class T>
class SharedColumns {
 public:
  using SharedRow = typename Layout<T, false>::SharedRow;
  __device__ __forceinline__ explicit SharedColumns(SharedRow row) : row_(row) {}
  __device__ __forceinline__ float get(int, int, int e) const { return row_.load(e); }
  __device__ __forceinline__ void add(int, int, int e, float x) { row_.store(e, row_.load(e) + x); }

 private:
  SharedRow row_;
};

template <class T, class SharedRow>
__device__ __forceinline__ void stage(const SharedRow& to, const Parameter<T>& from, int n, float absent) {
  for (int e = thread_in_block(); e < n; e += threads_of_block()) to.store(e, from.load(e, absent));
  __syncthreads();
}

// A parameter, read from global memory once per block.  Row `k` of shared memory keeps it; where registers
// do, row 0 lends its space to each parameter in turn.
template <class T, bool ALIGNED>
__device__ __forceinline__ auto parameter(const Parameter<T>& from, Shared<float> shared, int stride, int k,
                                          int n, float absent) {
  using L = Layout<T, ALIGNED>;
  const typename L::SharedRow row(shared + (ALIGNED ? 0 : k * L::W * stride), stride);
  stage(row, from, n, absent);
  if constexpr (ALIGNED) {
    RegisterColumns<T> columns(absent);
    columns.each(n, [&](int e, float& x) { x = row.load(e); });
    __syncthreads();
    return columns;
  } else {
    return SharedColumns<T>(row);
  }
}

// Sums of the team's rows by column, all zero: number k of COUNT.  Shared memory has a row for each of them
// and each team, after that of the weight.
template <class T, bool ALIGNED, int COUNT>
__device__ __forceinline__ auto zero_sums(Shared<float> shared, int stride, int k) {
  using L = Layout<T, ALIGNED>;
  if constexpr (ALIGNED) {
    return RegisterColumns<T>(0.0f);
  } else {
    const int length = L::W * stride;
    const Shared<float> row = shared + (1 + COUNT * threadIdx.y + k) * length;
    for (int i = threadIdx.x; i < length; i += blockDim.x) row.store(i, 0.0f);
    return SharedColumns<T>(typename L::SharedRow(row, stride));
  }
}

// Writes the block's sums by column, where `to` is not null.  Sums in registers are added up in row 0 of
// shared memory, one team after the other; those in shared memory lie side by side.
template <class T, bool ALIGNED, int COUNT, class Columns>
__device__ __forceinline__ void write_sums(Columns& sums, Shared<float> shared, int stride, int k,
                                           Global<float> to, int n) {
  using L = Layout<T, ALIGNED>;
  using SharedRow = typename L::SharedRow;
  if (!to) return;
  const Global<float> out = to + blockIdx.x * static_cast<i64>(n);
  __syncthreads();
  if constexpr (ALIGNED) {
    const SharedRow row(shared, stride);
    for (int team = 0; team < blockDim.y; ++team) {
      if (threadIdx.y == team)
        sums.each(n, [&](int e, float& x) { row.store(e, team == 0 ? x : row.load(e) + x); });
      __syncthreads();
    }
    for (int e = thread_in_block(); e < n; e += threads_of_block()) out.store(e, row.load(e));
  } else {
    for (int e = thread_in_block(); e < n; e += threads_of_block()) {
      float total = 0.0f;
      for (int team = 0; team < blockDim.y; ++team)
        total += SharedRow(shared + (1 + COUNT * team + k) * L::W * stride, stride).load(e);
      out.store(e, total);
    }
  }
}

}  // namespace titan
