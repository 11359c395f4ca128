#pragma once
// Second half of a sum over rows: adds up what each block of a first kernel has summed.
#include <cuda_runtime_api.h>

#include <cstdint>

namespace trainsuite {

constexpr int kMostSegments = 3;

struct ColumnSums {
  const float* partials;  // [rows, segments, width]
  std::int64_t rows, width;
  int segments;
  void* out[kMostSegments];  // [width] each
  bool bf16[kMostSegments];  // dtype of each, else fp32
  bool add = false;          // to what out holds
};

/// Enqueues one kernel; sums in a fixed order.
cudaError_t launch_column_sums(const ColumnSums& work, cudaStream_t stream);

}  // namespace trainsuite
