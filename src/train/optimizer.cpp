#include "train/optimizer.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "train/working_weights.h"

namespace trainsuite {

AdamW::AdamW(std::vector<at::Tensor> parameters, AdamWOptions options)
    : AdamW(parameters, std::vector<at::Tensor>(parameters.size()), options) {}

AdamW::AdamW(WorkingWeights& weights, AdamWOptions options)
    : AdamW(weights.parameters(), weights.copies(), options) {
  weights_ = &weights;
}

AdamW::AdamW(std::vector<at::Tensor> parameters, std::vector<at::Tensor> copies,
             AdamWOptions options)
    : parameters_(std::move(parameters)), options_(options) {
  const auto count = static_cast<std::int64_t>(parameters_.size());
  const auto& first = parameters_.front();
  step_counts_ = at::zeros({count}, first.options().dtype(at::kFloat));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto& p = parameters_[static_cast<size_t>(i)];
    averages_.push_back(at::zeros_like(p));
    square_averages_.push_back(at::zeros_like(p));
    steps_.push_back(step_counts_.select(0, i));
  }
  if (first.is_cuda() && !options_.foreach) use_kernel(std::move(copies));
}

void AdamW::use_kernel(std::vector<at::Tensor> copies) {
  learning_rate_ = at::full({}, options_.learning_rate, step_counts_.options());
  kernel_.emplace(
      AdamWState{parameters_, averages_, square_averages_, std::move(copies), step_counts_,
                 learning_rate_},
      AdamWRates{options_.beta1, options_.beta2, options_.epsilon, options_.weight_decay});
}

void AdamW::set_learning_rate(double rate) {
  if (kernel_ && rate != options_.learning_rate) learning_rate_.fill_(rate);
  options_.learning_rate = rate;
}

void AdamW::step(const std::vector<at::Tensor>& gradients) {
  const c10::NoGradGuard no_grad;
  if (kernel_) return kernel_->step(gradients);
  step_by_operators(gradients);
  if (weights_) weights_->refresh();
}

void AdamW::step_by_operators(const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor> p, g, m, v, t;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!gradients[i].defined()) continue;
    p.push_back(parameters_[i]);
    g.push_back(gradients[i].to(parameters_[i].scalar_type()));
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
