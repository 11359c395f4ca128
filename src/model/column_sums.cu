#include "model/column_sums_kernel.h"
#include "model/kernel_parts.cuh"

namespace trainsuite {
namespace {

constexpr int kColumns = 32;  // of a block: one line of 128 bytes
constexpr int kRows = 32;     // summed side by side

__global__ void __launch_bounds__(kColumns* kRows) column_sums(ColumnSums work) {
  __shared__ float sums[kRows][kColumns + 1];
  const std::int64_t columns = work.segments * work.width;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumns + threadIdx.x;
  float sum = 0;
  if (column < columns) {
    for (std::int64_t row = threadIdx.y; row < work.rows; row += kRows) {
      sum += work.partials[row * columns + column];
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  // Warp y adds up column y of this block.
  const float total = warp_sum(sums[threadIdx.x][threadIdx.y]);
  const std::int64_t mine = static_cast<std::int64_t>(blockIdx.x) * kColumns + threadIdx.y;
  if (threadIdx.x != 0 || mine >= columns) return;
  const int segment = static_cast<int>(mine / work.width);
  const std::int64_t index = mine % work.width;
  if (work.bf16[segment]) {
    auto* const out = static_cast<__nv_bfloat16*>(work.out[segment]) + index;
    *out = __float2bfloat16(work.add ? __bfloat162float(*out) + total : total);
  } else {
    auto* const out = static_cast<float*>(work.out[segment]) + index;
    *out = work.add ? *out + total : total;
  }
}

}  // namespace

cudaError_t launch_column_sums(const ColumnSums& work, cudaStream_t stream) {
  const std::int64_t columns = work.segments * work.width;
  const auto blocks = static_cast<unsigned>((columns + kColumns - 1) / kColumns);
  if (blocks == 0) return cudaSuccess;
  column_sums<<<blocks, dim3(kColumns, kRows), 0, stream>>>(work);
  return cudaGetLastError();
}

}  // namespace trainsuite
