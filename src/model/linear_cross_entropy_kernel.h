#pragma once
// Launcher of the cross-entropy kernel; knows no tensor library.
#include <cuda_runtime_api.h>

#include <cstdint>

namespace trainsuite {

struct CrossEntropyRows {
  void* logits;          // [rows, stride], overwritten by the gradient where write_gradient
  bool bf16;             // else fp32
  std::int64_t rows;     // any number below 2^31
  std::int64_t columns;  // classes; the elements from here to a multiple of 16 bytes are scratch
  std::int64_t stride;   // elements from row to row, a multiple of 16 bytes
  const std::int64_t* targets;  // [rows]; -100 is ignored
  float scale;
  float* row_loss;  // [rows], scaled
  bool write_gradient;
};

/// Enqueues one kernel on `stream`. Returns the launch's status; rows 0 launches nothing.
cudaError_t launch_cross_entropy_rows(const CrossEntropyRows& work, cudaStream_t stream);

}  // namespace trainsuite
