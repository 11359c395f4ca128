#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "model/adapter_dropout_kernel.h"

namespace trainsuite {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 8192;  // threads stride beyond

/// A thread's pair of elements shares a hash.
template <class T>
__global__ void dropout_kernel(Dropout work) {
  const std::uint64_t key = dropout_key(*work.counter, work.layer);
  const T* in = static_cast<const T*>(work.in);
  T* out = static_cast<T*>(work.out);
  const std::int64_t pairs = (work.elements + 1) / 2;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t pair = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       pair < pairs; pair += stride) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int64_t element = 2 * pair + i;
      if (element >= work.elements) break;
      const bool kept = dropout_keeps(key, element, work.threshold);
      out[element] = static_cast<T>(kept ? static_cast<float>(in[element]) * work.scale : 0.0f);
    }
  }
}

}  // namespace

cudaError_t launch_dropout(const Dropout& work, cudaStream_t stream) {
  if (work.elements == 0) return cudaSuccess;
  const std::int64_t needed = ((work.elements + 1) / 2 + kThreads - 1) / kThreads;
  const auto blocks = static_cast<unsigned>(needed < kMostBlocks ? needed : kMostBlocks);
  if (work.bf16) {
    dropout_kernel<__nv_bfloat16><<<blocks, kThreads, 0, stream>>>(work);
  } else {
    dropout_kernel<float><<<blocks, kThreads, 0, stream>>>(work);
  }
  return cudaGetLastError();
}

}  // namespace trainsuite
