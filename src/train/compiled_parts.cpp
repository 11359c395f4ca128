#include "train/compiled_parts.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/Version.h>

#include "core/error.h"

namespace trainsuite {
namespace {

at::ScalarType compute_dtype(const Case& work) {
  return work.precision == "bf16" ? at::kBFloat16 : at::kFloat;
}

/// A block's parameters by their specification: matrices and their biases in the compute dtype.
std::vector<BlockTensor> parameter_tensors(const Gpt2Config& model, at::ScalarType dtype,
                                           std::size_t first_use, std::size_t count) {
  const auto specs = gpt2_parameters(model);
  const auto uses = gpt2_uses(model);
  std::vector<BlockTensor> tensors;
  for (std::size_t i = first_use; i < first_use + count; ++i) {
    tensors.push_back({specs[uses[i].parameter].shape, uses[i].compute_dtype ? dtype : at::kFloat,
                       /*gradient=*/true});
  }
  return tensors;
}

constexpr std::size_t embeddings = 2, block_parameters = 12, tail_parameters = 3;

BlockRequest gpt2_block_request(const Case& work, const Gpt2Config& model) {
  BlockRequest request{"gpt2-block", "gpt2_block", {}, {}};
  request.tensors = parameter_tensors(model, compute_dtype(work), embeddings, block_parameters);
  request.tensors.insert(
      request.tensors.begin(),
      {{work.micro_batch, work.sequence, model.width}, at::kFloat, /*gradient=*/true});
  request.arguments = {TensorAt{0}, TensorsFrom{1, block_parameters}, model.heads,
                       work.block_kernel == "fused"};
  return request;
}

BlockRequest gpt2_head_request(const Case& work, const Gpt2Config& model) {
  BlockRequest request{"gpt2-head", "gpt2_head_loss", {}, {}};
  const auto first = gpt2_uses(model).size() - tail_parameters;
  request.tensors = parameter_tensors(model, compute_dtype(work), first, tail_parameters);
  request.tensors.insert(
      request.tensors.begin(),
      {{work.micro_batch, work.sequence, model.width}, at::kFloat, /*gradient=*/true});
  request.tensors.push_back({{work.micro_batch, work.sequence}, at::kLong, /*gradient=*/false});
  // The scale comes after the head: it depends on the number of ranks.
  request.arguments = {TensorAt{0},
                       TensorAt{1},
                       TensorAt{2},
                       TensorAt{3},
                       TensorAt{4},
                       1.0,
                       work.loss_kernel == "fused"};
  return request;
}

}  // namespace

std::vector<BlockRequest> block_requests(const Case& work) {
  const auto model = gpt2_config(work.size, work.vocabulary, work.sequence);
  return {gpt2_block_request(work, model), gpt2_head_request(work, model)};
}

CompileTarget compile_target(const Case& work, const DeviceInfo& device, bool deterministic) {
  CompileTarget target;
  target.cuda = device.cuda;
  target.ordinal = device.ordinal;
  target.architecture =
      device.cuda ? fmt::format("sm_{}", device.compute_capability) : at::get_cpu_capability();
  target.attention = work.attention;
  target.deterministic = deterministic;
  return target;
}

CompiledParts::CompiledParts(const Case& work, const PackageCache& cache,
                             const CompileTarget& target, at::Device device) {
  for (const auto& request : block_requests(work)) {
    blocks_.push_back(
        std::make_unique<CompiledBlock>(request, cache.find(target, request), device));
  }
  gpt2_.block = [block = blocks_[0].get()](const at::Tensor& x, at::TensorList p) {
    std::vector<at::Tensor> tensors{x};
    tensors.insert(tensors.end(), p.begin(), p.end());
    return (*block)(tensors);
  };
  gpt2_.head_loss = [head = blocks_[1].get()](const at::Tensor& x, at::TensorList tail,
                                              const at::Tensor& targets, double scale) {
    return (*head)({x, tail[0], tail[1], tail[2], targets.contiguous()}) * scale;
  };
}

}  // namespace trainsuite
