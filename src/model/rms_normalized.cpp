#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "model/rms_norm.h"

namespace trainsuite {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class RmsNormFunction : public torch::autograd::Function<RmsNormFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& residual,
                            const std::optional<at::Tensor>& delta, const at::Tensor& weight,
                            double epsilon, at::ScalarType dtype) {
    const RmsNorm out = rms_norm(residual, delta.value_or(at::Tensor()), weight, epsilon, dtype);
    context->save_for_backward({out.sum, out.rstd, weight});
    context->saved_data["adds"] = delta.has_value();
    return out.normalized;
  }

  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    const auto saved = context->get_saved_variables();
    const bool adds = context->saved_data["adds"].toBool();
    const RmsNormGradients out =
        rms_norm_backward(upstream[0], {}, saved[0], saved[1], saved[2],
                          {adds, saved[2].requires_grad(), /*normalized=*/false});
    return {out.residual, out.delta, out.weight, {}, {}};
  }
};

}  // namespace

at::Tensor rms_normalized(const at::Tensor& residual, const at::Tensor& delta,
                          const at::Tensor& weight, double epsilon, at::ScalarType dtype) {
  const auto given = delta.defined() ? std::optional<at::Tensor>(delta) : std::nullopt;
  return RmsNormFunction::apply(residual, given, weight, epsilon, dtype);
}

}  // namespace trainsuite
