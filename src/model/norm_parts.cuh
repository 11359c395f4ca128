#pragma once
// Parts of the kernels of norms, in which a warp takes a row and holds it in registers: each value
// is read and written once.
#include <cstdint>

#include "model/kernel_parts.cuh"

namespace trainsuite {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;

/// First column of a lane's chunk of so many values.
template <int kValues = 4>
__device__ inline int column_of(int chunk) {
  return (chunk * 32 + static_cast<int>(threadIdx.x % 32)) * kValues;
}

/// Adds one kind of partial sums over the block's warps, in order, into `out` [width].
template <int kChunks, int kValues>
__device__ void add_warps(const float (&mine)[kChunks][kValues], float* shared, float* out,
                          int width) {
  for (int warp = 0; warp < kWarps; ++warp) {
    if (threadIdx.x / 32 == warp) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const int column = column_of<kValues>(c);
        if (column >= width) continue;
        float sum[kValues] = {};
        if (warp > 0) load_values<kValues>(shared + column, sum);
        for (int j = 0; j < kValues; ++j) sum[j] += mine[c][j];
        store_values<kValues>(warp + 1 < kWarps ? shared + column : out + column, sum);
      }
    }
    __syncthreads();
  }
}

/// Blocks for so many rows on the current device, no more than it holds at once; 0 where the device
/// is not known.
inline int blocks_of_rows(std::int64_t rows, int blocks_per_multiprocessor) {
  int device = 0, multiprocessors = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 0;
  if (cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device) !=
      cudaSuccess) {
    return 0;
  }
  const std::int64_t wanted = (rows + kWarps - 1) / kWarps;
  const std::int64_t most = std::int64_t{blocks_per_multiprocessor} * multiprocessors;
  return static_cast<int>(wanted < most ? wanted : most);
}

/// Eight neighbouring values of T as they lie in memory; aligned to eight values.
template <class T>
struct Eight {
  static constexpr int packs = sizeof(T) / 2;
  uint4 bits[packs];
  __device__ void load(const void* from, std::int64_t first) {
    const auto* pack = reinterpret_cast<const uint4*>(static_cast<const T*>(from) + first);
#pragma unroll
    for (int i = 0; i < packs; ++i) bits[i] = pack[i];
  }
  __device__ void values(float (&v)[8]) const {
#pragma unroll
    for (int i = 0; i < packs; ++i) Pack<T>::load(bits[i], v + i * Pack<T>::size);
  }
};

}  // namespace trainsuite
