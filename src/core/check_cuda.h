#pragma once
#include <cuda_runtime_api.h>

#include "core/error.h"

namespace trainsuite {

/// Throws Error (OutOfMemory for cudaErrorMemoryAllocation) when `code` is not cudaSuccess.
inline void check_cuda(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  if (code == cudaErrorMemoryAllocation) fail<OutOfMemory>("{}: {}", what, cudaGetErrorString(code));
  fail("{}: {}", what, cudaGetErrorString(code));
}

}  // namespace trainsuite
