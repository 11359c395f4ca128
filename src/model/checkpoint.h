#pragma once
// Activations computed again in backward instead of being kept (Chen et al. 2016).
#include <ATen/core/Tensor.h>

#include <functional>

namespace trainsuite {

/// run(x), of whose activations only x is kept. Backward runs it again and lets the gradients of
/// all leaves within it accumulate there, hooks included. `trained`: a leaf that run uses and that
/// requires a gradient (undefined: none). `run` must give the same values each time.
at::Tensor checkpoint(const at::Tensor& x, const at::Tensor& trained,
                      std::function<at::Tensor(const at::Tensor&)> run);

}  // namespace trainsuite
