#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "model/adamw.h"

namespace trainsuite {

class WorkingWeights;

struct AdamWOptions {
  double learning_rate = 1e-4, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01;
  bool foreach = false;  // operators over lists with a temporary of all parameters' size
};

/// AdamW (Loshchilov and Hutter 2019). On CUDA devices our own kernel, with the bits of ATen's
/// fused one (torch.optim.AdamW(fused=True)); on CPUs that one; or the operators of torch's foreach
/// form. State has the parameters' dtype; steps are counted per parameter.
class AdamW {
 public:
  AdamW(std::vector<at::Tensor> parameters, AdamWOptions options);
  /// Each step also brings the weights' compute copies up to date; `weights` must outlive this.
  AdamW(WorkingWeights& weights, AdamWOptions options);
  /// gradients[i] belongs to parameters[i], in its dtype or another; a parameter without gradient
  /// is left as it is.
  void step(const std::vector<at::Tensor>& gradients);
  /// Of the steps to come; also of a captured graph's replays, where the kernel is ours. Not to be
  /// called while a graph is captured, which would set the rate again at each replay.
  void set_learning_rate(double rate);
  std::int64_t state_bytes() const;

 private:
  AdamW(std::vector<at::Tensor> parameters, std::vector<at::Tensor> copies, AdamWOptions options);
  void use_kernel(std::vector<at::Tensor> copies);
  void step_by_operators(const std::vector<at::Tensor>& gradients);
  void foreach_step(at::TensorList p, at::TensorList g, at::TensorList m, at::TensorList v);

  WorkingWeights* weights_ = nullptr;
  std::int64_t foreach_steps_ = 0;
  std::vector<at::Tensor> parameters_, averages_, square_averages_, steps_;
  at::Tensor step_counts_;    // steps_ are views of it
  at::Tensor learning_rate_;  // for the kernel
  std::optional<AdamWKernel> kernel_;
  AdamWOptions options_;
};

}  // namespace trainsuite
