#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

namespace trainsuite {

struct AdamWOptions {
  double learning_rate = 1e-4, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01;
  bool foreach = false;  // operators over lists with a temporary of all parameters' size
};

/// AdamW (Loshchilov and Hutter 2019) through ATen's fused kernel, the one that
/// torch.optim.AdamW(fused=True) launches, or those of its foreach form. State is fp32; steps are
/// counted per parameter.
class AdamW {
 public:
  AdamW(std::vector<at::Tensor> parameters, AdamWOptions options);
  /// gradients[i] belongs to parameters[i]; a parameter without gradient is left as it is.
  void step(const std::vector<at::Tensor>& gradients);
  /// Of the steps to come.
  void set_learning_rate(double rate) { options_.learning_rate = rate; }
  std::int64_t state_bytes() const;

 private:
  void foreach_step(at::TensorList p, at::TensorList g, at::TensorList m, at::TensorList v);

  std::int64_t foreach_steps_ = 0;
  std::vector<at::Tensor> parameters_, averages_, square_averages_, steps_;
  at::Tensor step_counts_;  // steps_ are views of it
  AdamWOptions options_;
};

}  // namespace trainsuite
