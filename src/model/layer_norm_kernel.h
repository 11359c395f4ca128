#pragma once
// Launchers of the fused LayerNorm kernels; know no tensor library. T is bf16 or fp32, all rows
// are contiguous, pointers aligned to 16 bytes, width a multiple of 4 and at most kMostNormWidth.
#include <cuda_runtime_api.h>

#include <cstdint>

namespace trainsuite {

constexpr std::int64_t kMostNormWidth = 2048;

struct NormForward {
  std::int64_t rows, width;
  bool bf16;  // T
  float epsilon;
  const float* residual;   // [rows, width]
  const void* delta;       // T [rows, width], added to the residual; null: nothing is added
  const void* delta_bias;  // T [width], added too; null where delta is
  const float* weight;
  const float* bias;
  float* sum;        // [rows, width], null where delta is
  void* normalized;  // T [rows, width]
  float* mean;       // [rows]
  float* rstd;       // [rows]
};
cudaError_t launch_norm_forward(const NormForward& work, cudaStream_t stream);

struct NormBackward {
  std::int64_t rows, width;
  bool bf16;
  const void* upstream;       // T [rows, width], of normalized
  const float* sum_upstream;  // [rows, width], of sum; null: none
  const float* sum;           // [rows, width]
  const float* mean;
  const float* rstd;
  const float* weight;
  float* sum_gradient;   // [rows, width], of residual
  void* delta_gradient;  // T [rows, width]; null: not wanted
  float* partials;       // [norm_backward_blocks, 3, width]: of weight, bias and delta_bias
};
/// Blocks that launch_norm_backward starts on the current device; 0 where that is not known.
int norm_backward_blocks(std::int64_t rows);
cudaError_t launch_norm_backward(const NormBackward& work, cudaStream_t stream);

}  // namespace trainsuite
