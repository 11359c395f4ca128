#pragma once
// Launchers of the fused RMSNorm kernels; know no tensor library. R is the residual stream's type,
// T that of the products; each is bf16 or fp32. Rows are contiguous, pointers aligned to 16 bytes,
// width a multiple of 8 and at most kMostRmsWidth.
#include <cuda_runtime_api.h>

#include <cstdint>

namespace trainsuite {

constexpr std::int64_t kMostRmsWidth = 2048;

struct RmsForward {
  std::int64_t rows, width;
  bool wide_bf16, bf16;  // R, T
  float epsilon;
  const void* residual;  // R [rows, width]
  const void* delta;     // T [rows, width], added to the residual; null: nothing is added
  const void* weight;    // R [width]
  void* sum;             // R [rows, width], null where delta is
  void* normalized;      // T [rows, width]
  float* rstd;           // [rows]; null: not wanted
};
cudaError_t launch_rms_forward(const RmsForward& work, cudaStream_t stream);

struct RmsBackward {
  std::int64_t rows, width;
  bool wide_bf16, bf16;
  const void* upstream;      // T [rows, width], of normalized
  const void* sum_upstream;  // R [rows, width], of sum; null: none
  const void* sum;           // R [rows, width]
  const float* rstd;
  const void* weight;
  void* sum_gradient;    // R [rows, width], of residual
  void* delta_gradient;  // T [rows, width]; null: not wanted
  void* normalized;      // T [rows, width], computed again; null: not wanted
  float* partials;       // [rms_backward_blocks, width], of weight; null: not wanted
};
/// Blocks that launch_rms_backward starts on the current device; 0 where that is not known.
int rms_backward_blocks(std::int64_t rows);
cudaError_t launch_rms_backward(const RmsBackward& work, cudaStream_t stream);

}  // namespace trainsuite
