#include <cuda_runtime.h>

#include "model/counter_hash_kernel.h"

namespace trainsuite {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 4096;  // enough to fill any GPU; threads stride beyond

unsigned blocks_for(std::int64_t items) {
  const std::int64_t blocks = (items + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
}

__device__ std::int64_t first_item() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ std::int64_t item_stride() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

__global__ void random_tokens_kernel(TokenRange range, std::int64_t* out) {
  const std::int64_t items = range.examples * range.length;
  for (std::int64_t i = first_item(); i < items; i += item_stride()) out[i] = token_at(range, i);
}

__global__ void initial_parameter_kernel(std::uint64_t key, float factor, std::int64_t elements,
                                         float* out) {
  for (std::int64_t i = first_item(); i < elements; i += item_stride()) {
    out[i] = normal_at(key, i, factor);
  }
}

__global__ void tensor_hash_kernel(const unsigned char* data, std::int64_t bytes,
                                   unsigned long long* out) {
  __shared__ unsigned long long block_sum;
  if (threadIdx.x == 0) block_sum = blockIdx.x == 0 ? length_share(bytes) : 0;
  __syncthreads();
  unsigned long long sum = 0;
  const std::int64_t words = (bytes + 7) / 8;
  for (std::int64_t i = first_item(); i < words; i += item_stride()) {
    sum += hash_share(word_at(data, bytes, i), i);
  }
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(&block_sum, sum);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(out, block_sum);
}

}  // namespace

cudaError_t launch_random_tokens(const TokenRange& range, std::int64_t* out, cudaStream_t stream) {
  const std::int64_t items = range.examples * range.length;
  if (items == 0) return cudaSuccess;
  random_tokens_kernel<<<blocks_for(items), kThreads, 0, stream>>>(range, out);
  return cudaGetLastError();
}

cudaError_t launch_initial_parameter(std::uint64_t key, float factor, std::int64_t elements,
                                     float* out, cudaStream_t stream) {
  if (elements == 0) return cudaSuccess;
  initial_parameter_kernel<<<blocks_for(elements), kThreads, 0, stream>>>(key, factor, elements,
                                                                          out);
  return cudaGetLastError();
}

cudaError_t launch_tensor_hash(const void* data, std::int64_t bytes, std::int64_t* out,
                               cudaStream_t stream) {
  const unsigned blocks = blocks_for(bytes < 8 ? 1 : (bytes + 7) / 8);  // no bytes: their length
  tensor_hash_kernel<<<blocks, kThreads, 0, stream>>>(
      static_cast<const unsigned char*>(data), bytes, reinterpret_cast<unsigned long long*>(out));
  return cudaGetLastError();
}

}  // namespace trainsuite
