#include "train/optimizer.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cmath>

namespace trainsuite {

AdamW::AdamW(std::vector<at::Tensor> parameters, AdamWOptions options)
    : parameters_(std::move(parameters)), options_(options) {
  const auto count = static_cast<std::int64_t>(parameters_.size());
  step_counts_ = at::zeros({count}, parameters_.front().options().dtype(at::kFloat));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto& p = parameters_[static_cast<size_t>(i)];
    averages_.push_back(at::zeros_like(p));
    square_averages_.push_back(at::zeros_like(p));
    steps_.push_back(step_counts_.select(0, i));
  }
}

void AdamW::step(const std::vector<at::Tensor>& gradients) {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> p, g, m, v, t;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!gradients[i].defined()) continue;
    p.push_back(parameters_[i]);
    g.push_back(gradients[i]);
    m.push_back(averages_[i]);
    v.push_back(square_averages_[i]);
    t.push_back(steps_[i]);
  }
  if (p.empty()) return;
  if (options_.foreach) return foreach_step(p, g, m, v);
  if (p.size() == parameters_.size()) {
    step_counts_.add_(1);
  } else {
    at::_foreach_add_(t, 1);
  }
  at::_fused_adamw_(p, g, m, v, {}, t, options_.learning_rate, options_.beta1, options_.beta2,
                    options_.weight_decay, options_.epsilon, /*amsgrad=*/false,
                    /*maximize=*/false);
}

void AdamW::foreach_step(at::TensorList p, at::TensorList g, at::TensorList m, at::TensorList v) {
  const auto t = static_cast<double>(++foreach_steps_);
  const double correction1 = 1 - std::pow(options_.beta1, t);
  const double correction2 = std::sqrt(1 - std::pow(options_.beta2, t));
  at::_foreach_mul_(p, 1 - options_.learning_rate * options_.weight_decay);
  at::_foreach_lerp_(m, g, 1 - options_.beta1);
  at::_foreach_mul_(v, options_.beta2);
  at::_foreach_addcmul_(v, g, g, 1 - options_.beta2);
  const std::vector<at::Tensor> root = at::_foreach_sqrt(v);
  at::_foreach_div_(root, correction2);
  at::_foreach_add_(root, options_.epsilon);
  at::_foreach_addcdiv_(p, m, root, -options_.learning_rate / correction1);
}

std::int64_t AdamW::state_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& m : averages_) bytes += 2 * static_cast<std::int64_t>(m.nbytes());
  return bytes;
}

}  // namespace trainsuite
