#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/clone.h>

namespace trainsuite {

/// The tensor as kernels with 16-byte loads want it: contiguous, and copied where it starts at an
/// odd place of its storage.
inline at::Tensor aligned(const at::Tensor& tensor) {
  const at::Tensor contiguous = tensor.contiguous();
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(contiguous.const_data_ptr()) % 16 == 0;
  return is_aligned ? contiguous : contiguous.clone();
}

}  // namespace trainsuite
