// One block a row: an online softmax over the row, then its gradient in place. The row is read
// from device memory once (it stays in shared memory, or in L2 where it does not fit) and written
// once: 2 x rows x columns elements.
#include <cfloat>

#include "model/kernel_parts.cuh"
#include "model/linear_cross_entropy_kernel.h"

namespace trainsuite {
namespace {

constexpr int kThreads = 512;
constexpr int kBatch = 4;  // 16-byte loads in flight per thread
constexpr long long kIgnoredTarget = -100;

/// Largest value seen and the sum of exponentials relative to it. The largest value is finite
/// while nothing was seen, so that no infinities are subtracted.
struct Softmax {
  float largest, sum;
};

__device__ Softmax nothing_seen() { return {-FLT_MAX, 0}; }

__device__ Softmax merged(const Softmax& a, const Softmax& b) {
  const float largest = fmaxf(a.largest, b.largest);
  return {largest, a.sum * expf(a.largest - largest) + b.sum * expf(b.largest - largest)};
}

__device__ Softmax warp_merged(Softmax mine) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const Softmax other{__shfl_xor_sync(0xffffffffu, mine.largest, offset),
                        __shfl_xor_sync(0xffffffffu, mine.sum, offset)};
    mine = merged(mine, other);
  }
  return mine;
}

/// The whole block's softmax, in every thread. A fixed order: the same bits in each run.
__device__ Softmax block_merged(Softmax mine) {
  __shared__ Softmax of_warp[kThreads / 32];
  mine = warp_merged(mine);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
  __syncthreads();
  const int lane = threadIdx.x % 32;
  return warp_merged(lane < kThreads / 32 ? of_warp[lane] : nothing_seen());
}

template <class T>
__device__ void accumulate(Softmax& state, const uint4& bits, long long first, long long columns) {
  float v[Pack<T>::size];
  Pack<T>::load(bits, v);
  float largest = state.largest;
#pragma unroll
  for (int j = 0; j < Pack<T>::size; ++j) {
    if (first + j >= columns) v[j] = -INFINITY;
    largest = fmaxf(largest, v[j]);
  }
  if (largest > state.largest) {
    state.sum *= Pack<T>::exponential(state.largest - largest);
    state.largest = largest;
  }
#pragma unroll
  for (int j = 0; j < Pack<T>::size; ++j) state.sum += Pack<T>::exponential(v[j] - largest);
}

template <class T>
__device__ uint4 gradient(const uint4& bits, long long first, const Softmax& row, float factor,
                          long long target, float scale) {
  float v[Pack<T>::size];
  Pack<T>::load(bits, v);
#pragma unroll
  for (int j = 0; j < Pack<T>::size; ++j) {
    v[j] = Pack<T>::exponential(v[j] - row.largest) * factor;
    if (first + j == target) v[j] -= scale;
  }
  return Pack<T>::store(v);
}

template <class T>
__device__ float element(const void* row, long long index) {
  return static_cast<float>(static_cast<const T*>(row)[index]);
}

template <class T, bool kShared>
__device__ Softmax read_row(const uint4* line, uint4* kept, long long chunks, long long columns) {
  Softmax state = nothing_seen();
  for (long long base = threadIdx.x; base < chunks; base += kBatch * kThreads) {
    uint4 bits[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const long long i = base + k * kThreads;
      if (i < chunks) bits[k] = line[i];
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const long long i = base + k * kThreads;
      if (i >= chunks) break;
      if (kShared) kept[i] = bits[k];
      accumulate<T>(state, bits[k], i * Pack<T>::size, columns);
    }
  }
  return state;
}

template <class T, bool kShared>
__global__ void __launch_bounds__(kThreads, 2) cross_entropy_rows(CrossEntropyRows work) {
  extern __shared__ uint4 kept[];
  const long long row_index = blockIdx.x;
  uint4* line = reinterpret_cast<uint4*>(static_cast<T*>(work.logits) + row_index * work.stride);
  const long long chunks = (work.columns + Pack<T>::size - 1) / Pack<T>::size;
  const long long target = work.targets[row_index];
  if (target == kIgnoredTarget) {
    if (threadIdx.x == 0) work.row_loss[row_index] = 0;
    if (!work.write_gradient) return;
    for (long long i = threadIdx.x; i < chunks; i += kThreads) line[i] = make_uint4(0, 0, 0, 0);
    return;
  }
  const bool valid = target >= 0 && target < work.columns;
  const float target_logit = valid ? element<T>(line, target) : NAN;
  const Softmax row = block_merged(read_row<T, kShared>(line, kept, chunks, work.columns));
  if (threadIdx.x == 0) {
    work.row_loss[row_index] = (row.largest - target_logit + logf(row.sum)) * work.scale;
  }
  if (!work.write_gradient) return;
  const float factor = valid ? work.scale / row.sum : NAN;
  for (long long i = threadIdx.x; i < chunks; i += kThreads) {
    // Every thread finds in shared memory, and in `line`, what it has read itself.
    line[i] = gradient<T>(kShared ? kept[i] : line[i], i * Pack<T>::size, row, factor, target,
                          work.scale);
  }
}

template <class T>
cudaError_t launch(const CrossEntropyRows& work, cudaStream_t stream) {
  const std::int64_t chunks = (work.columns + Pack<T>::size - 1) / Pack<T>::size;
  const std::int64_t row_bytes = chunks * static_cast<std::int64_t>(sizeof(uint4));
  int device = 0, most_shared_bytes = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  status =
      cudaDeviceGetAttribute(&most_shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (status != cudaSuccess) return status;
  const auto blocks = static_cast<unsigned>(work.rows);
  constexpr std::int64_t kStaticBytes = 1024;  // an upper bound of block_merged's array
  if (row_bytes + kStaticBytes > most_shared_bytes) {
    cross_entropy_rows<T, false><<<blocks, kThreads, 0, stream>>>(work);
    return cudaGetLastError();
  }
  const int shared_bytes = static_cast<int>(row_bytes);
  status = cudaFuncSetAttribute(cross_entropy_rows<T, true>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (status != cudaSuccess) return status;
  cross_entropy_rows<T, true><<<blocks, kThreads, row_bytes, stream>>>(work);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_cross_entropy_rows(const CrossEntropyRows& work, cudaStream_t stream) {
  if (work.rows == 0) return cudaSuccess;
  return work.bf16 ? launch<__nv_bfloat16>(work, stream) : launch<float>(work, stream);
}

}  // namespace trainsuite
