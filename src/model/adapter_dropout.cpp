#include "model/adapter_dropout.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <cmath>

#include "core/check_cuda.h"
#include "core/error.h"
#include "model/adapter_dropout_kernel.h"

namespace trainsuite {
namespace {

template <class T>
void on_cpu(const Dropout& work) {
  const std::uint64_t key = dropout_key(*work.counter, work.layer);
  const T* in = static_cast<const T*>(work.in);
  T* out = static_cast<T*>(work.out);
  at::parallel_for(0, work.elements, 1 << 14, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const bool kept = dropout_keeps(key, i, work.threshold);
      out[i] = static_cast<T>(kept ? static_cast<float>(in[i]) * work.scale : 0.0f);
    }
  });
}

void check(const at::Tensor& x, const AdapterDropout& dropout) {
  if (!(dropout.probability > 0 && dropout.probability < 1)) {
    fail("dropout: probability {} is not from 0 to below 1", dropout.probability);
  }
  if (x.scalar_type() != at::kFloat && x.scalar_type() != at::kBFloat16) {
    fail("dropout: x must be float32 or bfloat16");
  }
  const at::Tensor& counter = dropout.counter;
  if (!counter.defined() || counter.numel() != 1 || counter.scalar_type() != at::kLong ||
      counter.device() != x.device()) {
    fail("dropout: the counter must be one int64 on x's device");
  }
}

}  // namespace

at::Tensor dropped_out(const at::Tensor& x, const AdapterDropout& dropout) {
  if (dropout.probability == 0) return x;
  check(x, dropout);
  const at::Tensor in = x.contiguous(), out = at::empty_like(in);
  const auto threshold = static_cast<std::uint32_t>(std::ldexp(dropout.probability, 32));
  const Dropout work{in.numel(),
                     in.scalar_type() == at::kBFloat16,
                     in.const_data_ptr(),
                     out.mutable_data_ptr(),
                     dropout.counter.const_data_ptr<std::int64_t>(),
                     dropout.layer,
                     threshold,
                     static_cast<float>(1 / (1 - dropout.probability))};
  if (x.is_cuda()) {
    const c10::cuda::CUDAGuard guard(x.device());
    check_cuda(launch_dropout(work, c10::cuda::getCurrentCUDAStream()), "dropout kernel");
  } else if (work.bf16) {
    on_cpu<c10::BFloat16>(work);
  } else {
    on_cpu<float>(work);
  }
  return out;
}

std::int64_t dropout_counter(std::int64_t seed, std::int64_t micro_batch) {
  return static_cast<std::int64_t>(mix(mix(kDropoutKey, seed), micro_batch));
}

TORCH_LIBRARY_FRAGMENT(trainsuite, m) {
  m.def("adapter_dropout(Tensor x, Tensor counter, int layer, float probability) -> Tensor",
        [](const at::Tensor& x, const at::Tensor& counter, std::int64_t layer, double probability) {
          return dropped_out(x, {probability, counter, layer});
        });
}

}  // namespace trainsuite
