#pragma once
// A compiled function as a part of autograd's graph.
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>

#include "compile/package_cache.h"

namespace trainsuite {

/// Forward and backward packages of one block, loaded. Used for every layer that has its shapes.
/// Computes on the current stream; nothing waits for the device, so it can be captured in a graph.
class CompiledBlock {
 public:
  /// `name` is for messages. Throws Error where a package cannot be loaded or `device` is not what
  /// it was compiled for.
  CompiledBlock(const BlockRequest& request, const BlockPackages& packages, at::Device device);
  ~CompiledBlock();
  CompiledBlock(const CompiledBlock&) = delete;
  CompiledBlock& operator=(const CompiledBlock&) = delete;

  /// `tensors` in the order of the request, with its shapes and dtypes; Error otherwise.
  /// Gradients flow to those that the request says need one. Must outlive the backward pass.
  at::Tensor operator()(at::TensorList tensors) const;

 private:
  struct Loaded;
  std::unique_ptr<Loaded> loaded_;
};

}  // namespace trainsuite
