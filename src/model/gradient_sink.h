#pragma once
// Where gradients of weights are summed over micro-batches, for layers that add to the sum where a
// gradient arises: no copy of it in a narrower type is made, and no kernel to add that.
#include <ATen/core/Tensor.h>

#include <cstddef>

namespace trainsuite {

class GradientSink {
 public:
  virtual ~GradientSink() = default;
  struct Sum {
    at::Tensor value;  // of the parameter's shape and dtype
    bool fresh;        // holds nothing yet: to be written, not added to
  };
  /// Of the parameter behind this use. The caller adds to it at once.
  virtual Sum sum(std::size_t use) = 0;
};

/// A weight's place in a sink.
struct GradientTarget {
  GradientSink* sink = nullptr;  // null: the gradient goes through autograd
  std::size_t use = 0;
  GradientSink::Sum sum() const { return sink->sum(use); }
};

/// The target's sum; without a sink a fresh one like `like`, which is also the gradient `own`.
GradientSink::Sum sum_or_own(const GradientTarget& target, const at::Tensor& like, at::Tensor& own);

/// left right, added to the target's sum; without a sink returned.
at::Tensor product_gradient(const GradientTarget& target, const at::Tensor& left,
                            const at::Tensor& right);

/// Adds scale x (left right), in the sum's dtype.
void add_product(const GradientSink::Sum& sum, const at::Tensor& left, const at::Tensor& right,
                 double scale = 1);
/// Adds the sum over x's rows.
void add_row_sum(const GradientSink::Sum& sum, const at::Tensor& x);

}  // namespace trainsuite
