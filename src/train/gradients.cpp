#include "train/gradients.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "core/error.h"

namespace trainsuite {

struct ReceiveHook final : torch::autograd::PostAccumulateGradHook {
  ReceiveHook(Gradients& owner_, size_t use_) : owner(owner_), use(use_) {}
  void operator()(const torch::autograd::Variable& leaf) override {
    const c10::NoGradGuard no_grad;
    auto& slot = leaf.mutable_grad();
    const at::Tensor gradient = slot;
    slot.reset();
    if (gradient.defined()) owner.receive(use, gradient);
  }
  Gradients& owner;
  size_t use;
};

Gradients::Gradients(WorkingWeights& weights)
    : weights_(weights), gradients_(weights.parameters().size()) {
  const auto leaves = weights.leaves();
  for (size_t use = 0; use < leaves.size(); ++use) {
    torch::autograd::impl::set_post_acc_grad_hooks(leaves[use],
                                                   std::make_unique<ReceiveHook>(*this, use));
  }
}

Gradients::~Gradients() {
  for (const auto& leaf : weights_.leaves()) {
    torch::autograd::impl::set_post_acc_grad_hooks(leaf, nullptr);
  }
}

void add_rows_(at::Tensor& dense, const at::Tensor& row_ids, const at::Tensor& rows) {
  // index_put_ with accumulate sorts the ids first; index_add_ would use atomics on CUDA.
  dense.index_put_({row_ids}, rows, /*accumulate=*/true);
}

std::int64_t Gradients::total_bytes(std::int64_t) const {
  std::int64_t total = 0;
  for (const auto& p : weights_.parameters()) total += static_cast<std::int64_t>(p.nbytes());
  return total;
}

std::int64_t LocalGradients::total_bytes(std::int64_t micro_batches) const {
  std::int64_t total = Gradients::total_bytes(micro_batches);
  if (micro_batches > 1) return total;
  std::vector<int> uses(gradients_.size(), 0);
  for (const auto& use : weights_.uses()) ++uses[use.parameter];
  for (size_t i = 0; i < uses.size(); ++i) {
    const auto& copy = weights_.copies()[i];
    if (uses[i] != 1 || !copy.defined()) continue;
    total += static_cast<std::int64_t>(copy.nbytes());
    total -= static_cast<std::int64_t>(weights_.parameters()[i].nbytes());
  }
  return total;
}

void LocalGradients::begin_backward(bool first, bool) {
  if (first) release();
}

void LocalGradients::release() {
  for (auto& gradient : gradients_) gradient.reset();
}

/// The sum of what came so far, in the dtype that sums have; undefined: nothing yet.
at::Tensor& LocalGradients::widened(size_t parameter) {
  auto& sum = gradients_[parameter];
  if (sum.defined()) sum = sum.to(weights_.parameters()[parameter].scalar_type());
  return sum;
}

GradientSink::Sum LocalGradients::sum(size_t use) {
  const size_t index = weights_.uses()[use].parameter;
  auto& value = widened(index);
  const bool fresh = !value.defined();
  if (fresh) value = at::empty_like(weights_.parameters()[index]);
  return {value, fresh};
}

void LocalGradients::receive(size_t use, const at::Tensor& gradient) {
  const size_t index = weights_.uses()[use].parameter;
  auto& sum = widened(index);
  if (gradient.is_sparse()) {
    if (!sum.defined()) sum = at::zeros_like(weights_.parameters()[index]);
    add_rows_(sum, gradient._indices()[0], gradient._values());
  } else if (sum.defined()) {
    sum.add_(gradient);
  } else {
    sum = gradient.contiguous();
  }
}

KeptGradients::KeptGradients(WorkingWeights& weights, Communicator* communicator)
    : Gradients(weights), communicator_(communicator) {
  constexpr std::int64_t alignment = 64;  // elements
  std::vector<std::int64_t> offsets{0};
  for (const at::Tensor& p : weights.parameters()) {
    offsets.push_back(offsets.back() + (p.numel() + alignment - 1) / alignment * alignment);
  }
  buffer_ = at::zeros({offsets.back()}, weights.parameters().front().options());
  for (size_t i = 0; i < gradients_.size(); ++i) {
    const at::Tensor& p = weights.parameters()[i];
    gradients_[i] = buffer_.narrow(0, offsets[i], p.numel()).view(p.sizes());
  }
}

void KeptGradients::begin_backward(bool first, bool) {
  if (first) buffer_.zero_();
}

void KeptGradients::finish() {
  if (communicator_) communicator_->all_reduce(buffer_);
}

void KeptGradients::receive(size_t use, const at::Tensor& gradient) {
  at::Tensor& sum = gradients_[weights_.uses()[use].parameter];
  if (gradient.is_sparse()) return add_rows_(sum, gradient._indices()[0], gradient._values());
  sum.add_(gradient);
}

}  // namespace trainsuite
