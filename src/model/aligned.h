#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/clone.h>

#include <cstdint>

namespace trainsuite {

/// Whether 16-byte accesses may start there.
inline bool is_aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

/// The tensor as kernels with 16-byte loads want it: contiguous, and copied where it starts at an
/// odd place of its storage.
inline at::Tensor aligned(const at::Tensor& tensor) {
  const at::Tensor contiguous = tensor.contiguous();
  return is_aligned(contiguous.const_data_ptr()) ? contiguous : contiguous.clone();
}

}  // namespace trainsuite
