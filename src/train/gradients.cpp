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

void LocalGradients::begin_backward(bool first, bool) {
  if (first) release();
}

void LocalGradients::release() {
  for (auto& gradient : gradients_) gradient.reset();
}

GradientSink::Sum LocalGradients::sum(size_t use) {
  const size_t index = weights_.uses()[use].parameter;
  auto& value = gradients_[index];
  const bool fresh = !value.defined();
  if (fresh) value = at::empty_like(weights_.parameters()[index]);
  return {value, fresh};
}

void LocalGradients::receive(size_t use, const at::Tensor& gradient) {
  const size_t index = weights_.uses()[use].parameter;
  auto& sum = gradients_[index];
  if (gradient.is_sparse()) {
    if (!sum.defined()) sum = at::zeros_like(weights_.parameters()[index]);
    add_rows_(sum, gradient._indices()[0], gradient._values());
  } else if (sum.defined()) {
    sum.add_(gradient);
  } else {
    sum = gradient.to(weights_.parameters()[index].scalar_type()).contiguous();
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
