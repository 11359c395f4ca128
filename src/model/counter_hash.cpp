#include "model/counter_hash.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <cmath>

#include "core/check_cuda.h"
#include "core/error.h"
#include "model/counter_hash_kernel.h"

namespace trainsuite {
namespace {

constexpr std::int64_t kGrain = 1 << 15;  // items a thread takes at least

std::uint64_t hash_on_cpu(const unsigned char* data, std::int64_t bytes) {
  std::atomic<std::uint64_t> total{length_share(bytes)};
  at::parallel_for(0, (bytes + 7) / 8, kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::uint64_t sum = 0;
    for (std::int64_t i = begin; i < end; ++i) sum += hash_share(word_at(data, bytes, i), i);
    total += sum;
  });
  return total;
}

}  // namespace

at::Tensor random_tokens(std::int64_t seed, std::int64_t step, std::int64_t first_example,
                         std::int64_t examples, std::int64_t length, std::int64_t vocabulary,
                         at::Device device) {
  if (examples < 0 || length < 0) {
    fail("random_tokens: {} examples of {} tokens; neither may be negative", examples, length);
  }
  if (vocabulary < 1 || vocabulary >= (std::int64_t{1} << 31)) {
    fail("random_tokens: vocabulary {} must be between 1 and 2^31 - 1", vocabulary);
  }
  const TokenRange range{seed, step, first_example, examples, length, vocabulary};
  const c10::OptionalDeviceGuard guard(device);
  at::Tensor ids =
      at::empty({examples, length}, at::TensorOptions().dtype(at::kLong).device(device));
  auto* out = ids.mutable_data_ptr<std::int64_t>();
  if (device.is_cuda()) {
    check_cuda(launch_random_tokens(range, out, c10::cuda::getCurrentCUDAStream()),
               "random_tokens kernel");
    return ids;
  }
  at::parallel_for(0, ids.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) out[i] = token_at(range, i);
  });
  return ids;
}

void fill_initial_parameter_(at::Tensor& out, std::int64_t seed, std::int64_t parameter,
                             double std) {
  if (out.scalar_type() != at::kFloat || !out.is_contiguous()) {
    fail("fill_initial_parameter_: the tensor must be contiguous float32");
  }
  const std::uint64_t key = parameter_key(seed, parameter);
  const float factor = static_cast<float>(std / std::sqrt((std::pow(2.0, 32) - 1) / 3));
  auto* values = out.mutable_data_ptr<float>();
  if (out.is_cuda()) {
    const c10::cuda::CUDAGuard guard(out.device());
    check_cuda(launch_initial_parameter(key, factor, out.numel(), values,
                                        c10::cuda::getCurrentCUDAStream()),
               "initial_parameter kernel");
    return;
  }
  at::parallel_for(0, out.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) values[i] = normal_at(key, i, factor);
  });
}

at::Tensor tensor_hash(const at::Tensor& tensor) {
  const at::Tensor data = tensor.detach().resolve_conj().resolve_neg().contiguous();
  const auto bytes = static_cast<std::int64_t>(data.nbytes());
  const at::TensorOptions options = data.options().dtype(at::kLong);
  if (!data.is_cuda()) {
    const auto* raw = static_cast<const unsigned char*>(data.const_data_ptr());
    return at::full({}, static_cast<std::int64_t>(hash_on_cpu(raw, bytes)), options);
  }
  const c10::cuda::CUDAGuard guard(data.device());
  at::Tensor hash = at::zeros({}, options);
  check_cuda(launch_tensor_hash(data.const_data_ptr(), bytes, hash.mutable_data_ptr<std::int64_t>(),
                                c10::cuda::getCurrentCUDAStream()),
             "tensor_hash kernel");
  return hash;
}

}  // namespace trainsuite
