#include "model/adamw.h"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <algorithm>

#include "core/check_cuda.h"
#include "model/adamw_kernel.h"
#include "model/aligned.h"

namespace trainsuite {
namespace {

constexpr std::size_t kRates = 4;  // fp32 values of a tensor that the kernels hand on

void check_tensor(const at::Tensor& tensor, const at::Tensor& like, at::ScalarType dtype,
                  const char* what) {
  if (tensor.device() == like.device() && tensor.is_contiguous() &&
      tensor.numel() == like.numel() && tensor.scalar_type() == dtype) {
    return;
  }
  fail("AdamW: {} of {} elements, {}, on {}; wanted {} contiguous ones, {}, on {}", what,
       tensor.numel(), toString(tensor.scalar_type()), tensor.device().str(), like.numel(),
       toString(dtype), like.device().str());
}

void check_state(const AdamWState& state) {
  const at::Tensor& first = state.parameters.at(0);
  const at::ScalarType dtype = first.scalar_type();
  if (!first.is_cuda()) fail("AdamW: the kernel takes tensors of a CUDA device, not of a CPU");
  if (dtype != at::kFloat && dtype != at::kBFloat16) {
    fail("AdamW: parameters in {}; give fp32 or bf16 ones", toString(dtype));
  }
  for (std::size_t i = 0; i < state.parameters.size(); ++i) {
    const at::Tensor& p = state.parameters[i];
    if (p.device() != first.device()) fail("AdamW: parameters on several devices");
    check_tensor(p, p, dtype, "a parameter");
    check_tensor(state.averages.at(i), p, dtype, "a moment");
    check_tensor(state.square_averages.at(i), p, dtype, "a moment");
    const at::Tensor& copy = state.copies.at(i);
    if (copy.defined()) check_tensor(copy, p, at::kBFloat16, "a copy");
  }
}

}  // namespace

AdamWKernel::AdamWKernel(AdamWState state, const AdamWRates& rates) : state_(std::move(state)) {
  check_state(state_);
  const std::size_t count = state_.parameters.size();
  scratch_ = at::empty({static_cast<std::int64_t>(count * kRates)}, state_.step_counts.options());
  for (std::size_t first = 0; first < count; first += kMostAdamWTensors) {
    AdamWWork& work = work_.emplace_back();
    work.beta1 = static_cast<float>(rates.beta1), work.beta2 = static_cast<float>(rates.beta2);
    work.epsilon = static_cast<float>(rates.epsilon);
    work.weight_decay = static_cast<float>(rates.weight_decay);
    fill(work, first);
  }
}

AdamWKernel::~AdamWKernel() = default;
AdamWKernel::AdamWKernel(AdamWKernel&&) noexcept = default;

/// All but the gradients.
void AdamWKernel::fill(AdamWWork& work, std::size_t first) {
  const std::size_t count =
      std::min<std::size_t>(kMostAdamWTensors, state_.parameters.size() - first);
  work.tensors = static_cast<int>(count);
  work.bf16 = state_.parameters[0].scalar_type() == at::kBFloat16;
  work.learning_rate = state_.learning_rate.const_data_ptr<float>();
  work.step_counts = state_.step_counts.mutable_data_ptr<float>() + first;
  work.rates = scratch_.mutable_data_ptr<float>() + kRates * first;
  for (std::size_t i = 0; i < count; ++i) {
    AdamWTensor& tensor = work.tensor[i];
    const at::Tensor& copy = state_.copies[first + i];
    tensor.parameter = state_.parameters[first + i].mutable_data_ptr();
    tensor.average = state_.averages[first + i].mutable_data_ptr();
    tensor.square_average = state_.square_averages[first + i].mutable_data_ptr();
    tensor.copy = copy.defined() ? copy.mutable_data_ptr() : nullptr;
    tensor.size = state_.parameters[first + i].numel();
  }
}

void AdamWKernel::step(at::ArrayRef<at::Tensor> gradients) {
  const c10::cuda::CUDAGuard guard(state_.step_counts.device());
  std::vector<at::Tensor> kept;  // until the kernels are enqueued
  std::size_t next = 0;
  for (AdamWWork& work : work_) {
    for (int i = 0; i < work.tensors; ++i, ++next) {
      AdamWTensor& tensor = work.tensor[i];
      tensor.gradient = nullptr;
      at::Tensor gradient = gradients[next];
      if (!gradient.defined()) continue;
      const at::Tensor& p = state_.parameters[next];
      tensor.bf16_gradient = gradient.scalar_type() == at::kBFloat16;
      const at::ScalarType dtype = tensor.bf16_gradient ? at::kBFloat16 : p.scalar_type();
      if (!gradient.is_contiguous() || gradient.scalar_type() != dtype) {
        kept.push_back(gradient = gradient.to(dtype).contiguous());
      }
      check_tensor(gradient, p, dtype, "a gradient");
      tensor.gradient = gradient.const_data_ptr();
      tensor.vectors = is_aligned(tensor.parameter) && is_aligned(tensor.average) &&
                       is_aligned(tensor.square_average) && is_aligned(tensor.copy) &&
                       is_aligned(tensor.gradient);
    }
    check_cuda(launch_adamw(work, c10::cuda::getCurrentCUDAStream()), "AdamW kernel");
  }
}

namespace {

using OptionalTensors = c10::List<std::optional<at::Tensor>>;

std::vector<at::Tensor> tensors_of(const OptionalTensors& list) {
  std::vector<at::Tensor> tensors;
  for (std::size_t i = 0; i < list.size(); ++i) {
    tensors.push_back(list.get(i).value_or(at::Tensor()));
  }
  return tensors;
}

void adamw_step(at::TensorList parameters, const OptionalTensors& gradients,
                at::TensorList averages, at::TensorList square_averages,
                const OptionalTensors& copies, const at::Tensor& step_counts,
                const at::Tensor& learning_rate, double beta1, double beta2, double weight_decay,
                double epsilon) {
  const AdamWState state{parameters.vec(),   averages.vec(), square_averages.vec(),
                         tensors_of(copies), step_counts,    learning_rate};
  AdamWKernel(state, {beta1, beta2, epsilon, weight_decay}).step(tensors_of(gradients));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(trainsuite, m) {
  m.def(
      "adamw_step(Tensor(a!)[] parameters, Tensor?[] gradients, Tensor(b!)[] averages, "
      "Tensor(c!)[] square_averages, Tensor?[] copies, Tensor(d!) step_counts, "
      "Tensor learning_rate, float beta1, float beta2, float weight_decay, float epsilon) -> ()",
      &adamw_step);
}

}  // namespace trainsuite
