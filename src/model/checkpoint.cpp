#include "model/checkpoint.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <optional>

namespace trainsuite {
namespace {

using Run = std::function<at::Tensor(const at::Tensor&)>;

/// Carries the function from forward to backward.
struct RunHolder : torch::CustomClassHolder {
  explicit RunHolder(Run given) : run(std::move(given)) {}
  Run run;
};

class Checkpoint : public torch::autograd::Function<Checkpoint> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const std::optional<at::Tensor>&, const Run& run) {
    context->save_for_backward({x});
    context->saved_data["run"] = at::IValue::make_capsule(c10::make_intrusive<RunHolder>(run));
    return run(x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& upstream) {
    const bool wanted = context->needs_input_grad(0);
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_(wanted);
    const auto holder = context->saved_data["run"].toCapsule();
    const c10::AutoGradMode grad_mode(true);
    const at::Tensor y = static_cast<RunHolder*>(holder.get())->run(x);
    torch::autograd::backward({y}, {upstream[0]});
    return {x.grad(), {}, {}};
  }
};

}  // namespace

at::Tensor checkpoint(const at::Tensor& x, const at::Tensor& trained, Run run) {
  if (!c10::GradMode::is_enabled()) return run(x);
  return Checkpoint::apply(x, trained.defined() ? std::optional(trained) : std::nullopt, run);
}

}  // namespace trainsuite
