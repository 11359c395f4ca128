#pragma once
// Launchers of the fused bias and tanh-GELU kernels; know no tensor library. T is bf16 or fp32;
// rows are contiguous, pointers and rows aligned to 16 bytes.
#include <cuda_runtime_api.h>

#include <cstdint>

namespace trainsuite {

struct BiasGelu {
  std::int64_t rows, width;
  bool bf16;             // T
  const void* x;         // T [rows, width], without the bias
  const void* bias;      // T [width]
  void* out;             // T [rows, width]: gelu(x + bias), or in backward the gradient of x
  const void* upstream;  // T [rows, width], backward only
  float* partials;       // [bias_gelu_partial_rows, width], backward only: of the bias
};
cudaError_t launch_bias_gelu_forward(const BiasGelu& work, cudaStream_t stream);
/// 0 where the current device is not known.
int bias_gelu_partial_rows(std::int64_t rows, std::int64_t width, bool bf16);
cudaError_t launch_bias_gelu_backward(const BiasGelu& work, cudaStream_t stream);

}  // namespace trainsuite
