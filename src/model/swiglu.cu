// A thread takes 16 bytes of gate and up.
#include "model/kernel_parts.cuh"
#include "model/swiglu_kernel.h"

namespace trainsuite {
namespace {

constexpr int kThreads = 256;

template <class T, bool kBackward>
__global__ void __launch_bounds__(kThreads) swiglu_rows(Swiglu work) {
  constexpr int kSize = Pack<T>::size;
  const std::int64_t packs = work.hidden / kSize;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= work.rows * packs) return;
  const std::int64_t gate_at = i / packs * 2 * packs + i % packs;
  const auto* gate_up = static_cast<const uint4*>(work.gate_up);
  float gate[kSize], up[kSize], upstream[kSize], out[kSize];
  Pack<T>::load(gate_up[gate_at], gate);
  Pack<T>::load(gate_up[gate_at + packs], up);
  if constexpr (kBackward) Pack<T>::load(static_cast<const uint4*>(work.upstream)[i], upstream);
#pragma unroll
  for (int j = 0; j < kSize; ++j) {
    const float sigmoid = 1 / (1 + Pack<T>::exponential(-gate[j]));
    const float silu = gate[j] * sigmoid;
    out[j] = silu * up[j];
    if constexpr (kBackward) {
      const float slope = sigmoid * (1 + gate[j] * (1 - sigmoid));
      gate[j] = upstream[j] * up[j] * slope;
      up[j] = upstream[j] * silu;
    }
  }
  if (work.out != nullptr) static_cast<uint4*>(work.out)[i] = Pack<T>::store(out);
  if constexpr (kBackward) {
    auto* const gradient = static_cast<uint4*>(work.gradient);
    gradient[gate_at] = Pack<T>::store(gate);
    gradient[gate_at + packs] = Pack<T>::store(up);
  }
}

template <bool kBackward>
cudaError_t launch(const Swiglu& work, cudaStream_t stream) {
  const std::int64_t size = work.bf16 ? Pack<__nv_bfloat16>::size : Pack<float>::size;
  const std::int64_t threads = work.rows * (work.hidden / size);
  if (threads == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((threads + kThreads - 1) / kThreads);
  if (work.bf16) {
    swiglu_rows<__nv_bfloat16, kBackward><<<blocks, kThreads, 0, stream>>>(work);
  } else {
    swiglu_rows<float, kBackward><<<blocks, kThreads, 0, stream>>>(work);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_swiglu_forward(const Swiglu& work, cudaStream_t stream) {
  return launch<false>(work, stream);
}

cudaError_t launch_swiglu_backward(const Swiglu& work, cudaStream_t stream) {
  return launch<true>(work, stream);
}

}  // namespace trainsuite
