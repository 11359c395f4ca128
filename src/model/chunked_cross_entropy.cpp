#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <functional>

#include "model/linear_cross_entropy.h"

namespace trainsuite {
namespace {

/// What is no tensor, carried from forward to backward.
struct Chunking : torch::CustomClassHolder {
  std::int64_t rows = 0;  // of a chunk
  double scale = 1;
  bool x_trains = false, weight_trains = false;
  GradientTarget target{};
};

void for_each_chunk(std::int64_t rows, std::int64_t chunk_rows,
                    const std::function<void(std::int64_t first, std::int64_t count)>& work) {
  for (std::int64_t first = 0; first < rows; first += chunk_rows) {
    work(first, std::min(chunk_rows, rows - first));
  }
}

class ChunkedCrossEntropy : public torch::autograd::Function<ChunkedCrossEntropy> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, const at::Tensor& targets,
                            const c10::intrusive_ptr<Chunking>& chunking) {
    const bool now = chunking->x_trains && !chunking->weight_trains;
    const at::Tensor x_gradient = now ? at::empty_like(x) : at::Tensor();
    std::vector<at::Tensor> losses;
    for_each_chunk(x.size(0), chunking->rows, [&](std::int64_t first, std::int64_t count) {
      const auto [row_loss, gradient] = cross_entropy_rows(
          x.narrow(0, first, count), weight, targets.narrow(0, first, count), chunking->scale, now);
      losses.push_back(row_loss.sum());
      if (!now) return;
      at::Tensor out = x_gradient.narrow(0, first, count);
      at::mm_out(out, gradient, weight);
    });
    if (now) context->save_for_backward({x_gradient});
    if (chunking->weight_trains) context->save_for_backward({x, weight, targets});
    context->saved_data["chunking"] = at::IValue::make_capsule(chunking);
    return losses.empty() ? x.new_zeros({}, at::kFloat) : at::stack(losses).sum();
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& upstream) {
    const auto holder = context->saved_data["chunking"].toCapsule();
    const auto& chunking = *static_cast<const Chunking*>(holder.get());
    const auto saved = context->get_saved_variables();
    // A 0-d tensor keeps the other factor's dtype and stays on the device.
    if (!chunking.weight_trains) return {saved[0] * upstream[0], {}, {}, {}};
    return of_weight(chunking, saved[0], saved[1], saved[2], upstream[0]);
  }

 private:
  static torch::autograd::variable_list of_weight(const Chunking& chunking, const at::Tensor& x,
                                                  const at::Tensor& weight,
                                                  const at::Tensor& targets,
                                                  const at::Tensor& upstream) {
    const at::Tensor scaled_x = x * upstream, x_gradient = at::empty_like(x);
    at::Tensor weight_gradient;
    GradientSink::Sum sum = sum_or_own(chunking.target, weight, weight_gradient);
    for_each_chunk(x.size(0), chunking.rows, [&](std::int64_t first, std::int64_t count) {
      const at::Tensor gradient = std::get<1>(
          cross_entropy_rows(x.narrow(0, first, count), weight, targets.narrow(0, first, count),
                             chunking.scale, /*with_gradient=*/true));
      at::Tensor out = x_gradient.narrow(0, first, count);
      at::mm_out(out, gradient, weight);
      add_product(sum, gradient.t(), scaled_x.narrow(0, first, count));
      sum.fresh = false;
    });
    return {x_gradient.mul_(upstream), weight_gradient, {}, {}};
  }
};

}  // namespace

at::Tensor chunked_cross_entropy(const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& targets, double scale, std::int64_t chunk_bytes,
                                 const GradientTarget& target) {
  check_cross_entropy(x, weight, targets);
  const std::int64_t row_bytes = weight.size(0) * static_cast<std::int64_t>(weight.element_size());
  const std::int64_t most = std::max<std::int64_t>(1, chunk_bytes / row_bytes);
  const bool in_one = x.size(0) <= most;
  if (chunk_bytes == 0 || (in_one && !target.sink))
    return linear_cross_entropy(x, weight, targets, scale);
  const std::int64_t chunks = in_one ? 1 : (x.size(0) + most - 1) / most;
  auto chunking = c10::make_intrusive<Chunking>();
  chunking->rows = std::max<std::int64_t>(1, (x.size(0) + chunks - 1) / chunks);
  chunking->scale = scale;
  chunking->x_trains = c10::GradMode::is_enabled() && x.requires_grad();
  chunking->weight_trains = c10::GradMode::is_enabled() && weight.requires_grad();
  chunking->target = target;
  return ChunkedCrossEntropy::apply(x, weight, targets.contiguous(), chunking);
}

}  // namespace trainsuite
