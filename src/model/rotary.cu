// A thread takes four values of a head's first half and the four that they turn against.
#include "model/kernel_parts.cuh"
#include "model/rotary_kernel.h"

namespace trainsuite {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads) rotary_rows(Rotary work) {
  const std::int64_t half = work.head_width / 2, quads = half / 4;
  const std::int64_t all_heads = work.heads + 2 * work.key_value_heads;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= work.tokens * all_heads * quads) return;
  const std::int64_t column = i % quads * 4, head = i / quads % all_heads;
  const std::int64_t token = i / quads / all_heads;
  const T* from = nullptr;
  if (head < work.heads) {
    from = static_cast<const T*>(work.query) + token * work.query_stride + head * work.head_width;
  } else if (head < work.heads + work.key_value_heads) {
    from = static_cast<const T*>(work.key) + token * work.key_stride +
           (head - work.heads) * work.head_width;
  } else {
    from = static_cast<const T*>(work.value) + token * work.value_stride +
           (head - work.heads - work.key_value_heads) * work.head_width;
  }
  float a[4], b[4];
  load_four(from + column, a);
  load_four(from + column + half, b);
  if (head < work.heads + work.key_value_heads) {
    const std::int64_t angle = token % work.table_rows * half + column;
    float cosine[4], sine[4];
    load_four(work.cosine + angle, cosine);
    load_four(work.sine + angle, sine);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float s = work.inverse ? -sine[j] : sine[j];
      const float turned = a[j] * cosine[j] - b[j] * s;
      b[j] = b[j] * cosine[j] + a[j] * s;
      a[j] = turned;
    }
  }
  T* const to = static_cast<T*>(work.out) + (token * all_heads + head) * work.head_width + column;
  store_four(to, a);
  store_four(to + half, b);
}

}  // namespace

cudaError_t launch_rotary(const Rotary& work, cudaStream_t stream) {
  const std::int64_t threads =
      work.tokens * (work.heads + 2 * work.key_value_heads) * (work.head_width / 8);
  if (threads == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((threads + kThreads - 1) / kThreads);
  if (work.bf16) {
    rotary_rows<__nv_bfloat16><<<blocks, kThreads, 0, stream>>>(work);
  } else {
    rotary_rows<float><<<blocks, kThreads, 0, stream>>>(work);
  }
  return cudaGetLastError();
}

}  // namespace trainsuite
