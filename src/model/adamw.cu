// Memory-bound: every byte is moved once, in accesses of 16 bytes (8 for a bf16 gradient beside
// fp32), all of a thread's loads before its first store.

#include "model/adamw_kernel.h"
#include "model/kernel_parts.cuh"

namespace trainsuite {
namespace {

constexpr int kThreads = 256;
constexpr int kElements = 8;  // of each tensor that a thread takes
constexpr int kMaskBits = 32;

constexpr int kChunk = kThreads * kElements;

/// First chunk of each tensor in the grid; those without a gradient have none.
struct Chunks {
  unsigned first[kMostAdamWTensors + 1];
};

struct Mask {
  unsigned bits[(kMostAdamWTensors + kMaskBits - 1) / kMaskBits];
};

struct Advance {
  float beta1, beta2, weight_decay;
  int tensors;
  const float* learning_rate;
  float* step_counts;
  float4* rates;
  Mask steps;  // tensors that have a gradient
};

/// What all elements of a tensor have in common: its step, counted, gives x lr x weight decay,
/// y lr / bias correction 1, z the root of bias correction 2.
__global__ void __launch_bounds__(kMostAdamWTensors) advance(const __grid_constant__ Advance work) {
  const auto i = static_cast<int>(threadIdx.x);
  if (i >= work.tensors || (work.steps.bits[i / kMaskBits] >> i % kMaskBits & 1) == 0) return;
  const float step = work.step_counts[i] + 1, rate = *work.learning_rate;
  const float correction1 = 1 - powf(work.beta1, step);
  const float correction2 = 1 - powf(work.beta2, step);
  work.step_counts[i] = step;
  work.rates[i] = make_float4(rate * work.weight_decay, rate / correction1, sqrtf(correction2), 0);
}

struct Constants {
  float beta1, beta2, epsilon;
};

__device__ inline void update(const Constants& c, const float4& rates, float g, float& p, float& m,
                              float& v) {
  if (rates.x != 0) p = fmaf(-rates.x, p, p);
  m = fmaf(c.beta1, m, fmaf(-c.beta1, g, g));
  v = fmaf(c.beta2, v, fmaf(-c.beta2, g * g, g * g));
  const float root = sqrtf(v) / rates.z + c.epsilon;
  p -= rates.y * m / root;
}

__device__ inline float value(float x) { return x; }
__device__ inline float value(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline void round_to(float* to, float x) { *to = x; }
__device__ inline void round_to(__nv_bfloat16* to, float x) { *to = __float2bfloat16_rn(x); }

template <class T, class G>
struct Views {
  T *p, *m, *v;
  __nv_bfloat16* copy;
  const G* g;
};

template <class T, class G>
__device__ Views<T, G> views_at(const AdamWTensor& tensor, std::int64_t begin) {
  auto* const copy = static_cast<__nv_bfloat16*>(tensor.copy);
  return {static_cast<T*>(tensor.parameter) + begin, static_cast<T*>(tensor.average) + begin,
          static_cast<T*>(tensor.square_average) + begin, copy == nullptr ? nullptr : copy + begin,
          static_cast<const G*>(tensor.gradient) + begin};
}

template <class T, class G>
__device__ void whole_chunk(const Constants& c, const float4& rates, const Views<T, G>& at) {
  constexpr int kSize = Pack<T>::size, kUnits = kElements / kSize;
  float p[kUnits][kSize], g[kUnits][kSize], m[kUnits][kSize], v[kUnits][kSize];
  const auto place = [](int unit) {
    return (unit * kThreads + static_cast<int>(threadIdx.x)) * kSize;
  };
#pragma unroll
  for (int unit = 0; unit < kUnits; ++unit) {
    load_values<kSize>(at.p + place(unit), p[unit]);
    load_values<kSize>(at.g + place(unit), g[unit]);
    load_values<kSize>(at.m + place(unit), m[unit]);
    load_values<kSize>(at.v + place(unit), v[unit]);
  }
#pragma unroll
  for (int unit = 0; unit < kUnits; ++unit) {
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      update(c, rates, g[unit][i], p[unit][i], m[unit][i], v[unit][i]);
    }
    store_values<kSize>(at.p + place(unit), p[unit]);
    store_values<kSize>(at.m + place(unit), m[unit]);
    store_values<kSize>(at.v + place(unit), v[unit]);
    if (at.copy != nullptr) store_values<kSize>(at.copy + place(unit), p[unit]);
  }
}

/// A tensor's end, or one that starts at an odd place.
template <class T, class G>
__device__ void elements(const Constants& c, const float4& rates, const Views<T, G>& at,
                         int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    float p = value(at.p[i]), m = value(at.m[i]), v = value(at.v[i]);
    update(c, rates, value(at.g[i]), p, m, v);
    round_to(at.p + i, p), round_to(at.m + i, m), round_to(at.v + i, v);
    if (at.copy != nullptr) round_to(at.copy + i, p);
  }
}

template <class T, class G>
__device__ void chunk(const Constants& c, const float4& rates, const AdamWTensor& tensor,
                      std::int64_t begin) {
  const auto at = views_at<T, G>(tensor, begin);
  const std::int64_t left = tensor.size - begin;
  if (tensor.vectors && left >= kChunk) {
    whole_chunk(c, rates, at);
  } else {
    elements(c, rates, at, static_cast<int>(left < kChunk ? left : kChunk));
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    step_chunks(const __grid_constant__ AdamWWork work, const __grid_constant__ Chunks chunks) {
  int tensor = 0;  // the last one whose first chunk is not beyond this
  for (int end = work.tensors; end - tensor > 1;) {
    const int middle = (tensor + end) / 2;
    (chunks.first[middle] <= blockIdx.x ? tensor : end) = middle;
  }
  const float4 rates = reinterpret_cast<const float4*>(work.rates)[tensor];
  const Constants constants{work.beta1, work.beta2, work.epsilon};
  const AdamWTensor& mine = work.tensor[tensor];
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x - chunks.first[tensor]) * kChunk;
  if (mine.bf16_gradient) {
    chunk<T, __nv_bfloat16>(constants, rates, mine, begin);
  } else {
    chunk<T, T>(constants, rates, mine, begin);
  }
}

unsigned lay_out(const AdamWWork& work, Chunks& chunks) {
  unsigned next = 0;
  for (int i = 0; i < work.tensors; ++i) {
    const AdamWTensor& tensor = work.tensor[i];
    chunks.first[i] = next;
    if (tensor.gradient != nullptr) {
      next += static_cast<unsigned>((tensor.size + kChunk - 1) / kChunk);
    }
  }
  return next;
}

template <class T>
void launch_chunks(const AdamWWork& work, cudaStream_t stream) {
  Chunks chunks;
  const unsigned blocks = lay_out(work, chunks);
  if (blocks > 0) step_chunks<T><<<blocks, kThreads, 0, stream>>>(work, chunks);
}

}  // namespace

cudaError_t launch_adamw(const AdamWWork& work, cudaStream_t stream) {
  Advance first{work.beta1,
                work.beta2,
                work.weight_decay,
                work.tensors,
                work.learning_rate,
                work.step_counts,
                reinterpret_cast<float4*>(work.rates),
                {}};
  for (int i = 0; i < work.tensors; ++i) {
    if (work.tensor[i].gradient != nullptr) {
      first.steps.bits[i / kMaskBits] |= 1U << i % kMaskBits;
    }
  }
  advance<<<1, kMostAdamWTensors, 0, stream>>>(first);
  if (work.bf16) {
    launch_chunks<__nv_bfloat16>(work, stream);
  } else {
    launch_chunks<float>(work, stream);
  }
  return cudaGetLastError();
}

}  // namespace trainsuite
