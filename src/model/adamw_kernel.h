#pragma once
// Launcher of the AdamW kernels; knows no tensor library.
#include <cuda_runtime_api.h>

#include <cstdint>

namespace trainsuite {

/// Tensors of one launch: CUDA takes 32,764 bytes of kernel arguments.
constexpr int kMostAdamWTensors = 480;

/// Contiguous tensors of `size` elements; T is the same for all of a launch, bf16 or fp32.
struct AdamWTensor {
  void* parameter;  // T, as the moments
  void *average, *square_average;
  void* copy;            // bf16, what the parameter is rounded to; null: none
  const void* gradient;  // null: the tensor is left as it is
  std::int64_t size;
  bool bf16_gradient;  // else T
  bool vectors;        // all of them start at multiples of 16 bytes
};

struct AdamWWork {
  float beta1, beta2, epsilon, weight_decay;
  bool bf16;  // T
  int tensors;
  const float* learning_rate;  // on the device: a graph reads what holds when it is replayed
  float* step_counts;          // [tensors]
  float* rates;                // [tensors, 4], scratch, aligned to 16 bytes
  AdamWTensor tensor[kMostAdamWTensors];
};

/// Counts the step of every tensor with a gradient and makes it, in two kernels. The arithmetic is
/// fp32 and, operation by operation, that of ATen's fused kernel.
cudaError_t launch_adamw(const AdamWWork& work, cudaStream_t stream);

}  // namespace trainsuite
