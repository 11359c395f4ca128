#include "model/linear_cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>

#include "core/check_cuda.h"
#include "core/error.h"
#include "model/dispatched.h"
#include "model/linear_cross_entropy_kernel.h"

namespace trainsuite {
namespace {

constexpr std::int64_t kIgnoredTarget = -100;
// Rows of the logits start at multiples of 128 bytes whatever the vocabulary: 16-byte loads in the
// kernel, and the fast matrix kernels, which an odd leading dimension rules out.
constexpr std::int64_t kRowAlignmentBytes = 128;
constexpr std::int64_t kCpuBlockElements = 4 << 20;  // fp32 scratch of the CPU kernel: 16 MiB

/// A [tokens, vocabulary] view whose rows are aligned.
at::Tensor empty_logits(const at::Tensor& x, const at::Tensor& weight) {
  const std::int64_t columns = weight.size(0);
  const std::int64_t alignment =
      kRowAlignmentBytes / static_cast<std::int64_t>(weight.element_size());
  const std::int64_t stride = (columns + alignment - 1) / alignment * alignment;
  return at::empty({x.size(0), stride}, weight.options()).narrow(1, 0, columns);
}

/// x @ weight^T.
at::Tensor aligned_logits(const at::Tensor& x, const at::Tensor& weight) {
  at::Tensor logits = empty_logits(x, weight);
  at::mm_out(logits, x, weight.t());
  return logits;
}

/// Row losses [tokens] fp32; overwrites logits by the gradient where `write_gradient`.
at::Tensor cuda_rows(at::Tensor& logits, const at::Tensor& targets, double scale,
                     bool write_gradient) {
  const c10::cuda::CUDAGuard guard(logits.device());
  at::Tensor row_loss = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
  if (logits.size(0) > std::numeric_limits<int>::max()) {
    fail("linear_cross_entropy: {} tokens at once; give fewer than 2^31", logits.size(0));
  }
  const CrossEntropyRows work{logits.data_ptr(),
                              logits.scalar_type() == at::kBFloat16,
                              logits.size(0),
                              logits.size(1),
                              logits.stride(0),
                              targets.const_data_ptr<std::int64_t>(),
                              static_cast<float>(scale),
                              row_loss.mutable_data_ptr<float>(),
                              write_gradient};
  check_cuda(launch_cross_entropy_rows(work, c10::cuda::getCurrentCUDAStream()),
             "linear_cross_entropy kernel");
  return row_loss;
}

void check_targets(const at::Tensor& targets, std::int64_t columns) {
  const auto* values = targets.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < targets.numel(); ++i) {
    if (values[i] != kIgnoredTarget && (values[i] < 0 || values[i] >= columns)) {
      fail("linear_cross_entropy: target {} at {} is outside the vocabulary of {}", values[i], i,
           columns);
    }
  }
}

/// The CPU kernel, in blocks of rows so that the fp32 values stay small.
at::Tensor cpu_rows(at::Tensor& logits, const at::Tensor& targets, double scale,
                    bool write_gradient) {
  const std::int64_t rows = logits.size(0), columns = logits.size(1);
  check_targets(targets, columns);
  at::Tensor row_loss = at::zeros({rows}, logits.options().dtype(at::kFloat));
  const auto* target = targets.const_data_ptr<std::int64_t>();
  auto* loss = row_loss.mutable_data_ptr<float>();
  const std::int64_t block = std::max<std::int64_t>(1, kCpuBlockElements / columns);
  for (std::int64_t first = 0; first < rows; first += block) {
    at::Tensor lines = logits.narrow(0, first, std::min(block, rows - first));
    at::Tensor scores = at::_log_softmax(lines.to(at::kFloat), 1, /*half_to_float=*/false);
    for (std::int64_t i = 0; i < lines.size(0); ++i) {
      if (target[first + i] == kIgnoredTarget) continue;
      const auto* row = scores.const_data_ptr<float>() + i * columns;
      loss[first + i] = static_cast<float>(-scale * row[target[first + i]]);
    }
    if (!write_gradient) continue;
    scores.exp_().mul_(scale);
    for (std::int64_t i = 0; i < lines.size(0); ++i) {
      auto* row = scores.mutable_data_ptr<float>() + i * columns;
      if (target[first + i] == kIgnoredTarget) {
        std::fill(row, row + columns, 0.0f);
      } else {
        row[target[first + i]] -= static_cast<float>(scale);
      }
    }
    lines.copy_(scores);
  }
  return row_loss;
}

using RowsResult = std::tuple<at::Tensor, at::Tensor>;

template <bool cuda>
RowsResult rows_kernel(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                       double scale, bool with_gradient) {
  at::Tensor logits = aligned_logits(x, weight);
  const at::Tensor row_loss = cuda ? cuda_rows(logits, targets, scale, with_gradient)
                                   : cpu_rows(logits, targets, scale, with_gradient);
  return {row_loss, logits};
}

/// Shapes alone, for tracing.
RowsResult rows_shapes(const at::Tensor& x, const at::Tensor& weight, const at::Tensor&, double,
                       bool) {
  return {at::empty({x.size(0)}, x.options().dtype(at::kFloat)), empty_logits(x, weight)};
}

}  // namespace

RowsResult cross_entropy_rows(const at::Tensor& x, const at::Tensor& weight,
                              const at::Tensor& targets, double scale, bool with_gradient) {
  // Through the dispatcher, so that tracing sees one op.
  static const auto op =
      dispatched<RowsResult(const at::Tensor&, const at::Tensor&, const at::Tensor&, double, bool)>(
          "linear_cross_entropy_rows");
  return op.call(x, weight, targets, scale, with_gradient);
}

namespace {

class LinearCrossEntropy : public torch::autograd::Function<LinearCrossEntropy> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, const at::Tensor& targets, double scale,
                            bool with_gradient) {
    const auto [row_loss, gradient] = cross_entropy_rows(x, weight, targets, scale, with_gradient);
    if (with_gradient) context->save_for_backward({gradient, x, weight});
    return row_loss.sum();
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& upstream) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &gradient = saved[0], &x = saved[1], &weight = saved[2];
    // A 0-d tensor keeps the other factor's dtype and stays on the device.
    at::Tensor x_gradient, weight_gradient;
    if (context->needs_input_grad(0)) x_gradient = at::mm(gradient, weight) * upstream[0];
    if (context->needs_input_grad(1)) weight_gradient = at::mm(gradient.t(), x * upstream[0]);
    return {x_gradient, weight_gradient, {}, {}, {}};
  }
};

}  // namespace

void check_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets) {
  if (x.dim() != 2 || weight.dim() != 2 || x.size(1) != weight.size(1)) {
    fail("linear_cross_entropy: x must be [tokens, width] and weight [vocabulary, width]");
  }
  if (targets.dim() != 1 || targets.size(0) != x.size(0) || targets.scalar_type() != at::kLong) {
    fail("linear_cross_entropy: targets must be int64 [{}]", x.size(0));
  }
  const bool dtype_known = x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16;
  if (x.scalar_type() != weight.scalar_type() || !dtype_known) {
    fail("linear_cross_entropy: x and weight must both be float32 or both be bfloat16");
  }
  if (x.device() != weight.device() || x.device() != targets.device()) {
    fail("linear_cross_entropy: x, weight and targets must be on one device");
  }
  if (weight.size(0) < 1) fail("linear_cross_entropy: the vocabulary is empty");
}

at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& targets, double scale) {
  check_cross_entropy(x, weight, targets);
  const bool with_gradient =
      at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad());
  return LinearCrossEntropy::apply(x, weight, targets.contiguous(), scale, with_gradient);
}

TORCH_LIBRARY_FRAGMENT(trainsuite, m) {
  m.def(
      "linear_cross_entropy_rows(Tensor x, Tensor weight, Tensor targets, float scale, "
      "bool with_gradient) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(trainsuite, CPU, m) { m.impl("linear_cross_entropy_rows", &rows_kernel<false>); }
TORCH_LIBRARY_IMPL(trainsuite, CUDA, m) { m.impl("linear_cross_entropy_rows", &rows_kernel<true>); }
TORCH_LIBRARY_IMPL(trainsuite, Meta, m) { m.impl("linear_cross_entropy_rows", &rows_shapes); }

}  // namespace trainsuite
