// A block takes a token; a thread some values of a head's first half and those that they turn
// against.
#include "model/kernel_parts.cuh"
#include "model/rotary_kernel.h"

namespace trainsuite {
namespace {

constexpr int kMostThreads = 256;

template <class T>
__device__ const T* head_of(const Rotary& work, std::int64_t token, int head) {
  const int queries = static_cast<int>(work.heads), keys = static_cast<int>(work.key_value_heads);
  const auto at = [&](const void* from, std::int64_t stride, int index) {
    return static_cast<const T*>(from) + token * stride + index * work.head_width;
  };
  if (head < queries) return at(work.query, work.query_stride, head);
  if (head < queries + keys) return at(work.key, work.key_stride, head - queries);
  return at(work.value, work.value_stride, head - queries - keys);
}

template <class T, int kValues>
__global__ void __launch_bounds__(kMostThreads) rotary_rows(Rotary work) {
  const int half = static_cast<int>(work.head_width) / 2, runs = half / kValues;
  const int turning = static_cast<int>(work.heads + work.key_value_heads);
  const int all_heads = turning + static_cast<int>(work.key_value_heads);
  const std::int64_t token = blockIdx.x, angles = token % work.table_rows * half;
  const float sign = work.inverse ? -1 : 1;
  for (int i = static_cast<int>(threadIdx.x); i < all_heads * runs;
       i += static_cast<int>(blockDim.x)) {
    const int head = i / runs, column = i % runs * kValues;
    const T* const from = head_of<T>(work, token, head) + column;
    float a[kValues], b[kValues];
    load_values<kValues>(from, a);
    load_values<kValues>(from + half, b);
    if (head < turning) {
      float cosine[kValues], sine[kValues];
      load_values<kValues>(work.cosine + angles + column, cosine);
      load_values<kValues>(work.sine + angles + column, sine);
#pragma unroll
      for (int j = 0; j < kValues; ++j) {
        const float s = sign * sine[j];
        const float turned = a[j] * cosine[j] - b[j] * s;
        b[j] = b[j] * cosine[j] + a[j] * s;
        a[j] = turned;
      }
    }
    T* const to = static_cast<T*>(work.out) + (token * all_heads + head) * work.head_width + column;
    store_values<kValues>(to, a);
    store_values<kValues>(to + half, b);
  }
}

template <class T, int kValues>
void launch(const Rotary& work, cudaStream_t stream) {
  const std::int64_t items =
      (work.heads + 2 * work.key_value_heads) * (work.head_width / 2 / kValues);
  const auto warps = static_cast<unsigned>((items + 31) / 32);
  const unsigned threads = warps * 32 < kMostThreads ? warps * 32 : kMostThreads;
  rotary_rows<T, kValues><<<static_cast<unsigned>(work.tokens), threads, 0, stream>>>(work);
}

}  // namespace

cudaError_t launch_rotary(const Rotary& work, cudaStream_t stream) {
  if (work.tokens == 0) return cudaSuccess;
  if (!work.bf16) {
    launch<float, 4>(work, stream);
  } else if (work.head_width % 16 == 0) {
    launch<__nv_bfloat16, 8>(work, stream);
  } else {
    launch<__nv_bfloat16, 4>(work, stream);
  }
  return cudaGetLastError();
}

}  // namespace trainsuite
