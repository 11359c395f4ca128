#include "train/working_weights.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "model/counter_hash.h"

namespace trainsuite {
namespace {

constexpr std::int64_t alignment = 64;  // elements: 256 bytes of fp32, for vector accesses

std::int64_t count(const std::vector<std::int64_t>& shape) {
  std::int64_t n = 1;
  for (auto extent : shape) n *= extent;
  return n;
}

std::int64_t aligned(std::int64_t n) { return (n + alignment - 1) / alignment * alignment; }

}  // namespace

WorkingWeights::WorkingWeights(const std::vector<ParameterSpec>& specs,
                               const std::vector<ParameterUse>& uses, at::ScalarType compute_dtype,
                               at::Device device, std::int64_t seed, at::ScalarType storage)
    : uses_(uses), parameters_(specs.size()), copies_(specs.size()) {
  const bool copies = compute_dtype != storage;
  std::vector<bool> has_copy(specs.size(), false);
  for (const auto& use : uses)
    has_copy[use.parameter] = has_copy[use.parameter] || use.compute_dtype;

  std::vector<std::int64_t> offsets(specs.size());
  std::int64_t total = 0, copied = 0;
  for (const bool pass : {true, false}) {
    for (size_t i = 0; i < specs.size(); ++i) {
      if (has_copy[i] != pass) continue;
      offsets[i] = total;
      total += aligned(count(specs[i].shape));
    }
    if (pass) copied = total;
  }
  buffer_ = at::zeros({total}, at::TensorOptions().dtype(storage).device(device));
  if (copies) copy_buffer_ = at::empty({copied}, buffer_.options().dtype(compute_dtype));

  for (size_t i = 0; i < specs.size(); ++i) {
    auto& p = parameters_[i];
    p = buffer_.narrow(0, offsets[i], count(specs[i].shape)).view(specs[i].shape);
    if (specs[i].init_std > 0) {
      auto values = storage == at::kFloat ? p : at::empty_like(p, p.options().dtype(at::kFloat));
      fill_initial_parameter_(values, seed, static_cast<std::int64_t>(i), specs[i].init_std);
      if (storage != at::kFloat) p.copy_(values);
    } else {
      p.fill_(specs[i].init_constant);
    }
  }
  for (const auto& use : uses) {
    const auto& p = parameters_[use.parameter];
    auto& copy = copies_[use.parameter];
    const bool computes_with_copy = use.compute_dtype && copies;
    if (computes_with_copy && !copy.defined()) {
      copy = copy_buffer_.narrow(0, offsets[use.parameter], p.numel()).view(p.sizes());
    }
    leaves_.push_back((computes_with_copy ? copy : p).detach().requires_grad_());
  }
  refresh();
}

void WorkingWeights::refresh() {
  if (!copy_buffer_.defined()) return;
  const c10::NoGradGuard no_grad;
  copy_buffer_.copy_(buffer_.narrow(0, 0, copy_buffer_.numel()));
}

std::int64_t WorkingWeights::parameter_count() const {
  std::int64_t n = 0;
  for (const auto& p : parameters_) n += p.numel();
  return n;
}

std::int64_t WorkingWeights::fp32_bytes() const {
  return buffer_.scalar_type() == at::kFloat ? static_cast<std::int64_t>(buffer_.nbytes()) : 0;
}

std::int64_t WorkingWeights::copy_bytes() const {
  const auto& narrow = buffer_.scalar_type() == at::kFloat ? copy_buffer_ : buffer_;
  return narrow.defined() ? static_cast<std::int64_t>(narrow.nbytes()) : 0;
}

at::Tensor WorkingWeights::hash() const {
  std::vector<at::Tensor> hashes;
  for (const auto& p : parameters_) hashes.push_back(tensor_hash(p));
  return tensor_hash(at::stack(hashes));
}

}  // namespace trainsuite
