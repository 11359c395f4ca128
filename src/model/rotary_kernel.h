#pragma once
// Launcher of the rotary kernel; knows no tensor library. T is bf16 or fp32, head_width a multiple
// of 8, pointers aligned to 16 bytes, strides multiples of 8 values.
#include <cuda_runtime_api.h>

#include <cstdint>

namespace trainsuite {

/// Query, key and value heads of a token, each [tokens, its heads, head_width] with a stride
/// between tokens, are written side by side; queries and keys are rotated on the way.
struct Rotary {
  std::int64_t tokens, heads, key_value_heads, head_width, table_rows;
  bool bf16;     // T
  bool inverse;  // turns back: what backward does
  const void* query;
  const void* key;
  const void* value;
  std::int64_t query_stride, key_stride, value_stride;  // values from a token to the next
  const float* cosine;  // [table_rows, head_width / 2]; token t takes row t % table_rows
  const float* sine;
  void* out;  // T [tokens, heads + 2 x key_value_heads, head_width]
};
cudaError_t launch_rotary(const Rotary& work, cudaStream_t stream);

}  // namespace trainsuite
