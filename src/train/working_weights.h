#pragma once
// The fp32 parameters and the leaves that the model computes with.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "model/gpt2.h"

namespace trainsuite {

/// Owns the parameters (fp32, views of one buffer) and one autograd leaf for each use of one. A
/// leaf in the compute dtype is a copy, refreshed once an optimizer step (autocast makes the same
/// copy once a forward pass); an fp32 leaf shares the parameter's memory.
class WorkingWeights {
 public:
  /// Initial values come from the counter hash of (seed, parameter, element).
  /// `storage`: dtype of the parameters themselves; where it is not fp32 they are rounded once.
  WorkingWeights(const std::vector<ParameterSpec>& specs, const std::vector<ParameterUse>& uses,
                 at::ScalarType compute_dtype, at::Device device, std::int64_t seed,
                 at::ScalarType storage = at::kFloat);

  at::TensorList leaves() const { return leaves_; }          // in order of use
  at::TensorList parameters() const { return parameters_; }  // in order of the specs
  std::vector<at::Tensor>& parameters() { return parameters_; }
  /// Of each parameter in the compute dtype; undefined where it has none.
  const std::vector<at::Tensor>& copies() const { return copies_; }
  const std::vector<ParameterUse>& uses() const { return uses_; }

  /// Brings the compute copies up to date with the parameters; enqueues one cast. The optimizer
  /// does so itself.
  void refresh();

  std::int64_t parameter_count() const;
  std::int64_t fp32_bytes() const;
  std::int64_t copy_bytes() const;
  /// Order-sensitive hash over all parameters, int64 scalar on the device.
  at::Tensor hash() const;

 private:
  std::vector<ParameterUse> uses_;
  std::vector<at::Tensor> parameters_, copies_, leaves_;
  at::Tensor buffer_;       // all parameters; those that have a compute copy come first
  at::Tensor copy_buffer_;  // undefined when computing in fp32
};

}  // namespace trainsuite
