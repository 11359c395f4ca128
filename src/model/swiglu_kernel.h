#pragma once
// Launchers of the SwiGLU kernels; know no tensor library. T is bf16 or fp32; rows are contiguous,
// pointers and halves of rows aligned to 16 bytes.
#include <cuda_runtime_api.h>

#include <cstdint>

namespace trainsuite {

struct Swiglu {
  std::int64_t rows, hidden;
  bool bf16;             // T
  const void* gate_up;   // T [rows, 2 x hidden], gate first
  void* out;             // T [rows, hidden]: silu(gate) x up; in backward null where not wanted
  const void* upstream;  // T [rows, hidden], backward only
  void* gradient;        // T [rows, 2 x hidden], backward only
};
cudaError_t launch_swiglu_forward(const Swiglu& work, cudaStream_t stream);
cudaError_t launch_swiglu_backward(const Swiglu& work, cudaStream_t stream);

}  // namespace trainsuite
