#include "model/attention.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/Sleep.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace trainsuite {
namespace {

constexpr int kWarmupPasses = 3;
constexpr int kTimedPasses = 10;
constexpr std::int64_t kHeadStartCycles = 60'000'000;  // about 30 ms

/// Puts the switches back as they were.
class SwitchGuard {
 public:
  SwitchGuard() = default;
  ~SwitchGuard() {
    at::Context& context = at::globalContext();
    context.setSDPUseCuDNN(cudnn_);
    context.setSDPUseFlash(flash_);
    context.setSDPUseMemEfficient(efficient_);
    context.setSDPUseMath(math_);
  }
  SwitchGuard(const SwitchGuard&) = delete;
  SwitchGuard& operator=(const SwitchGuard&) = delete;

 private:
  bool cudnn_ = at::globalContext().userEnabledCuDNNSDP();
  bool flash_ = at::globalContext().userEnabledFlashSDP();
  bool efficient_ = at::globalContext().userEnabledMemEfficientSDP();
  bool math_ = at::globalContext().userEnabledMathSDP();
};

/// A kernel that cannot run explains itself in warnings; here that is an expected answer.
class SilentWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

/// One forward and backward pass, laid out as in the models: qkv [batch, sequence, all heads,
/// head_dim], the heads of queries, keys and values side by side.
void attention_pass(const at::Tensor& qkv, std::int64_t heads, const at::Tensor& upstream) {
  const std::int64_t key_value_heads = (qkv.size(2) - heads) / 2;
  const std::vector<at::Tensor> parts =
      qkv.split_with_sizes({heads, key_value_heads, key_value_heads}, 2);
  const at::Tensor out = at::scaled_dot_product_attention(
      parts[0].transpose(1, 2), parts[1].transpose(1, 2), parts[2].transpose(1, 2), {}, 0.0,
      /*is_causal=*/true, /*scale=*/std::nullopt, /*enable_gqa=*/heads != key_value_heads);
  torch::autograd::grad({out.transpose(1, 2)}, {qkv}, {upstream});
}

double pass_milliseconds(const at::Tensor& qkv, std::int64_t heads, const at::Tensor& upstream) {
  for (int i = 0; i < kWarmupPasses; ++i) attention_pass(qkv, heads, upstream);
  at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
  // Launching takes the host longer than the kernels take: give it a head start, so that the events
  // see the kernels back to back, as in a training step.
  at::cuda::sleep(kHeadStartCycles);
  begin.record();
  for (int i = 0; i < kTimedPasses; ++i) attention_pass(qkv, heads, upstream);
  end.record();
  end.synchronize();
  return begin.elapsed_time(end) / kTimedPasses;
}

}  // namespace

AttentionKernel attention_kernel(const std::string& name) {
  if (name == "automatic" || name == "auto" || name == "default" || name == "naive") {
    return AttentionKernel::automatic;  // naive calls no kernel of this kind
  }
  if (name == "cudnn") return AttentionKernel::cudnn;
  if (name == "flash") return AttentionKernel::flash;
  if (name == "efficient") return AttentionKernel::efficient;
  if (name == "math") return AttentionKernel::math;
  fail("unknown attention kernel '{}': choose automatic, cudnn, flash, efficient or math", name);
}

void use_attention(AttentionKernel kernel) {
  const bool all = kernel == AttentionKernel::automatic;
  at::Context& context = at::globalContext();
  context.setSDPUseCuDNN(all || kernel == AttentionKernel::cudnn);
  context.setSDPUseFlash(all || kernel == AttentionKernel::flash);
  context.setSDPUseMemEfficient(all || kernel == AttentionKernel::efficient);
  context.setSDPUseMath(all || kernel == AttentionKernel::math);
}

std::vector<std::string> attention_candidates(bool cuda) {
  if (!cuda) return {"default"};
  return {"cudnn", "flash", "efficient", "math"};
}

std::string fastest_attention(c10::Device device, c10::ScalarType dtype, std::int64_t batch,
                              std::int64_t heads, std::int64_t key_value_heads,
                              std::int64_t sequence, std::int64_t head_dim) {
  if (!device.is_cuda()) return "default";
  const c10::DeviceGuard device_guard(device);
  const SwitchGuard switches;
  SilentWarnings silent;
  const c10::WarningUtils::WarningHandlerGuard warnings(&silent);
  const c10::AutoGradMode grad_mode(true);
  const at::TensorOptions options = at::TensorOptions().dtype(dtype).device(device);
  const at::Tensor qkv =
      at::randn({batch, sequence, heads + 2 * key_value_heads, head_dim}, options)
          .requires_grad_(true);
  const at::Tensor upstream = at::randn({batch, sequence, heads, head_dim}, options);
  std::string fastest, reason;
  double least_milliseconds = std::numeric_limits<double>::infinity();
  for (const std::string& name : attention_candidates(true)) {
    use_attention(attention_kernel(name));
    try {
      const double milliseconds = pass_milliseconds(qkv, heads, upstream);
      if (milliseconds < least_milliseconds) least_milliseconds = milliseconds, fastest = name;
    } catch (const std::exception& error) {
      reason = fmt::format("{}: {}", name, error.what());
    }
  }
  if (fastest.empty())
    fail("no attention kernel works on {}; the last said {}", device.str(), reason);
  return fastest;
}

}  // namespace trainsuite
