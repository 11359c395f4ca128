// A thread keeps to one 16-byte column and walks down the rows: it loads the bias once and, in
// backward, sums its gradient on the way.
#include "model/bias_gelu_kernel.h"
#include "model/kernel_parts.cuh"

namespace trainsuite {
namespace {

constexpr int kColumns = 32;  // 16-byte columns of a block
constexpr int kRows = 8;      // rows of a block at a time
constexpr int kBlocksPerMultiprocessor = 8;

/// tanh to fp32 rounding; the fast exponential saturates to the right limits.
__device__ float tangent(float x) { return 1 - __fdividef(2, 1 + __expf(2 * x)); }

template <class T>
__device__ float hyperbolic_tangent(float x) {
  return sizeof(T) == sizeof(float) ? tanhf(x) : tangent(fminf(x, 20.0f));
}

constexpr float kScale = 0.7978845608028654f;  // sqrt(2 / pi)
constexpr float kCubic = 0.044715f;

template <class T>
__device__ float gelu(float x) {
  return 0.5f * x * (1 + hyperbolic_tangent<T>(kScale * (x + kCubic * x * x * x)));
}

template <class T>
__device__ float gelu_slope(float x) {
  const float t = hyperbolic_tangent<T>(kScale * (x + kCubic * x * x * x));
  const float inner_slope = kScale * (1 + 3 * kCubic * x * x);
  return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * inner_slope;
}

struct Place {
  std::int64_t packs_per_row, column, first_row, row_stride;
};

template <class T>
__device__ Place place_of(const BiasGelu& work) {
  return {work.width / Pack<T>::size,
          static_cast<std::int64_t>(blockIdx.x) * kColumns + threadIdx.x,
          static_cast<std::int64_t>(blockIdx.y) * kRows + threadIdx.y,
          static_cast<std::int64_t>(gridDim.y) * kRows};
}

template <class T>
__global__ void __launch_bounds__(kColumns* kRows) bias_gelu_forward(BiasGelu work) {
  const Place at = place_of<T>(work);
  if (at.column >= at.packs_per_row) return;
  float bias[Pack<T>::size];
  Pack<T>::load(static_cast<const uint4*>(work.bias)[at.column], bias);
  for (std::int64_t row = at.first_row; row < work.rows; row += at.row_stride) {
    const std::int64_t i = row * at.packs_per_row + at.column;
    float v[Pack<T>::size];
    Pack<T>::load(static_cast<const uint4*>(work.x)[i], v);
#pragma unroll
    for (int j = 0; j < Pack<T>::size; ++j) v[j] = gelu<T>(v[j] + bias[j]);
    static_cast<uint4*>(work.out)[i] = Pack<T>::store(v);
  }
}

template <class T>
__global__ void __launch_bounds__(kColumns* kRows) bias_gelu_backward(BiasGelu work) {
  constexpr int kSize = Pack<T>::size;
  __shared__ float sums[kRows][kColumns * kSize];
  const Place at = place_of<T>(work);
  const bool inside = at.column < at.packs_per_row;
  float bias[kSize] = {}, sum[kSize] = {};
  if (inside) Pack<T>::load(static_cast<const uint4*>(work.bias)[at.column], bias);
  for (std::int64_t row = at.first_row; inside && row < work.rows; row += at.row_stride) {
    const std::int64_t i = row * at.packs_per_row + at.column;
    float v[kSize], upstream[kSize];
    Pack<T>::load(static_cast<const uint4*>(work.x)[i], v);
    Pack<T>::load(static_cast<const uint4*>(work.upstream)[i], upstream);
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      v[j] = upstream[j] * gelu_slope<T>(v[j] + bias[j]);
      sum[j] += v[j];
    }
    static_cast<uint4*>(work.out)[i] = Pack<T>::store(v);
  }
#pragma unroll
  for (int j = 0; j < kSize; ++j) sums[threadIdx.y][threadIdx.x * kSize + j] = sum[j];
  __syncthreads();
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kColumns * kSize;
  for (int k = threadIdx.y * kColumns + threadIdx.x; k < kColumns * kSize; k += kColumns * kRows) {
    if (first + k >= work.width) continue;
    float total = 0;
    for (int row = 0; row < kRows; ++row) total += sums[row][k];
    work.partials[blockIdx.y * work.width + first + k] = total;
  }
}

/// Blocks: x over columns, y over strips of rows. y is 0 where the device is not known.
dim3 grid_for(std::int64_t rows, std::int64_t width, bool bf16) {
  const std::int64_t block_width =
      kColumns * (bf16 ? Pack<__nv_bfloat16>::size : Pack<float>::size);
  const std::int64_t x = (width + block_width - 1) / block_width;
  int device = 0, multiprocessors = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return dim3(1, 0);
  if (cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device) !=
      cudaSuccess) {
    return dim3(1, 0);
  }
  const std::int64_t wanted = (rows + kRows - 1) / kRows;
  const std::int64_t filling =
      (std::int64_t{kBlocksPerMultiprocessor} * multiprocessors + x - 1) / x;
  return dim3(static_cast<unsigned>(x), static_cast<unsigned>(wanted < filling ? wanted : filling));
}

}  // namespace

cudaError_t launch_bias_gelu_forward(const BiasGelu& work, cudaStream_t stream) {
  if (work.rows == 0 || work.width == 0) return cudaSuccess;
  const dim3 grid = grid_for(work.rows, work.width, work.bf16), block(kColumns, kRows);
  if (grid.y == 0) return cudaErrorNoDevice;
  if (work.bf16) {
    bias_gelu_forward<__nv_bfloat16><<<grid, block, 0, stream>>>(work);
  } else {
    bias_gelu_forward<float><<<grid, block, 0, stream>>>(work);
  }
  return cudaGetLastError();
}

int bias_gelu_partial_rows(std::int64_t rows, std::int64_t width, bool bf16) {
  if (rows == 0 || width == 0) return 0;
  return static_cast<int>(grid_for(rows, width, bf16).y);
}

cudaError_t launch_bias_gelu_backward(const BiasGelu& work, cudaStream_t stream) {
  if (work.rows == 0 || work.width == 0) return cudaSuccess;
  const dim3 grid = grid_for(work.rows, work.width, work.bf16), block(kColumns, kRows);
  if (grid.y == 0) return cudaErrorNoDevice;
  if (work.bf16) {
    bias_gelu_backward<__nv_bfloat16><<<grid, block, 0, stream>>>(work);
  } else {
    bias_gelu_backward<float><<<grid, block, 0, stream>>>(work);
  }
  return cudaGetLastError();
}

}  // namespace trainsuite
