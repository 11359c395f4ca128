// Quantizing: a warp a block, two values a lane. Dequantizing: a thread writes 16 bytes from one
// piece of codes, so that reads and writes of a warp lie side by side.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "model/nf4_kernel.h"

namespace trainsuite {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

template <class T>
__device__ float widened(T x);
template <>
__device__ float widened(float x) {
  return x;
}
template <>
__device__ float widened(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
template <>
__device__ float widened(__half x) {
  return __half2float(x);
}

template <class T>
__device__ T rounded(float x);
template <>
__device__ float rounded(float x) {
  return x;
}
template <>
__device__ __nv_bfloat16 rounded(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ __half rounded(float x) {
  return __float2half_rn(x);
}

/// The larger one, NaN where one is NaN.
__device__ float larger(float a, float b) { return isnan(a) ? a : isnan(b) ? b : fmaxf(a, b); }

__device__ float scaled_value(float value, float divisor, float factor, bool whole) {
  const float scaled = whole ? __fmul_rn(value, factor) : __fdiv_rn(value, divisor);
  return scaled < -1.0f ? -1.0f : scaled > 1.0f ? 1.0f : scaled;
}

template <class T>
__global__ void __launch_bounds__(kThreads) quantize(Nf4Work work) {
  const Nf4Tables tables;
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const std::int64_t start = block * kNf4Block;
  if (start >= work.count) return;  // the whole warp
  const auto* values = static_cast<const T*>(work.values);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t first = start + 2 * lane;
  const bool whole = start + kNf4Block <= work.count;
  const float a = first < work.count ? widened(values[first]) : 0.0f;
  const float b = first + 1 < work.count ? widened(values[first + 1]) : 0.0f;
  float most = larger(fabsf(a), fabsf(b));
  for (int offset = 16; offset > 0; offset /= 2) {
    most = larger(most, __shfl_xor_sync(0xffffffffu, most, offset));
  }
  const float divisor = most < kNf4LeastScale ? kNf4LeastScale : most;
  const float factor = __frcp_rn(divisor);
  if (lane == 0) work.absmax[block] = whole ? most : divisor;
  if (first >= work.count) return;
  const int high = nf4_index(tables, scaled_value(a, divisor, factor, whole));
  // A value beyond the end is a zero that was not scaled, whatever the block holds.
  const int low =
      first + 1 < work.count ? nf4_index(tables, scaled_value(b, divisor, factor, whole)) : 7;
  work.codes[first / 2] = static_cast<std::uint8_t>(high << 4 | low);
}

template <class T>
__global__ void __launch_bounds__(kThreads) dequantize(Nf4Work work) {
  constexpr int kValues = 16 / sizeof(T);  // a thread's
  __shared__ float code[16];
  if (threadIdx.x < 16) code[threadIdx.x] = Nf4Tables{}.code[threadIdx.x];
  __syncthreads();
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kValues;
  if (first >= work.count) return;
  const float most = work.absmax[first / kNf4Block];
  auto* out = static_cast<T*>(work.out);
  const auto value = [&](int byte, bool upper) {
    return rounded<T>(__fmul_rn(code[upper ? byte >> 4 : byte & 15], most));
  };
  if (first + kValues > work.count) {
    for (std::int64_t i = first; i < work.count; ++i) out[i] = value(work.codes[i / 2], i % 2 == 0);
    return;
  }
  alignas(16) T values[kValues];
  alignas(4) std::uint8_t bytes[kValues / 2];
  if constexpr (kValues == 8) {
    *reinterpret_cast<std::uint32_t*>(bytes) =
        *reinterpret_cast<const std::uint32_t*>(work.codes + first / 2);
  } else {
    *reinterpret_cast<std::uint16_t*>(bytes) =
        *reinterpret_cast<const std::uint16_t*>(work.codes + first / 2);
  }
#pragma unroll
  for (int i = 0; i < kValues; ++i) values[i] = value(bytes[i / 2], i % 2 == 0);
  *reinterpret_cast<uint4*>(out + first) = *reinterpret_cast<const uint4*>(values);
}

template <class Launch>
void with_type(Nf4Type type, const Launch& launch) {
  if (type == Nf4Type::fp32) return launch(float{});
  if (type == Nf4Type::fp16) return launch(__half{});
  return launch(__nv_bfloat16{});
}

unsigned blocks_for(std::int64_t work, std::int64_t each) {
  return static_cast<unsigned>((work + each - 1) / each);
}

}  // namespace

cudaError_t launch_nf4_quantize(const Nf4Work& work, cudaStream_t stream) {
  if (work.count == 0) return cudaSuccess;
  const unsigned blocks = blocks_for(work.count, std::int64_t{kWarps} * kNf4Block);
  with_type(work.type,
            [&](auto type) { quantize<decltype(type)><<<blocks, kThreads, 0, stream>>>(work); });
  return cudaGetLastError();
}

cudaError_t launch_nf4_dequantize(const Nf4Work& work, cudaStream_t stream) {
  if (work.count == 0) return cudaSuccess;
  with_type(work.type, [&](auto type) {
    const unsigned blocks = blocks_for(work.count, std::int64_t{kThreads} * (16 / sizeof(type)));
    dequantize<decltype(type)><<<blocks, kThreads, 0, stream>>>(work);
  });
  return cudaGetLastError();
}

}  // namespace trainsuite
