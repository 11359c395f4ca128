#pragma once
// AdamW's step over many tensors on a CUDA device. It lies beside the other kernels, in the library
// that Python loads too.
#include <ATen/core/Tensor.h>

#include <vector>

namespace trainsuite {

struct AdamWWork;

struct AdamWRates {
  double beta1, beta2, epsilon, weight_decay;
};

/// All of one length; contiguous. Parameters and moments are of one dtype, fp32 or bf16.
struct AdamWState {
  std::vector<at::Tensor> parameters, averages, square_averages;
  std::vector<at::Tensor> copies;  // bf16; an undefined one: its parameter has no copy
  at::Tensor step_counts;          // fp32 [parameters]
  at::Tensor learning_rate;        // fp32, 0-d
};

/// The same bits as at::_fused_adamw_ on gradients cast to the parameters' dtype, followed by the
/// cast of the parameters into their copies, without the bytes that these casts move.
class AdamWKernel {
 public:
  AdamWKernel(AdamWState state, const AdamWRates& rates);
  ~AdamWKernel();
  AdamWKernel(AdamWKernel&&) noexcept;

  /// gradients[i]: of parameter i, in its dtype or bf16, else cast to its dtype; undefined: the
  /// parameter and its step count stay.
  /// Enqueues two kernels (for each 480 parameters); may be captured in a graph, which then reads
  /// the learning rate of each replay.
  void step(at::ArrayRef<at::Tensor> gradients);

 private:
  void fill(AdamWWork& work, std::size_t first);

  AdamWState state_;
  at::Tensor scratch_;
  std::vector<AdamWWork> work_;
};

}  // namespace trainsuite
