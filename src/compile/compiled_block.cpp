#include "compile/compiled_block.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include "core/error.h"

namespace trainsuite {

using torch::inductor::AOTIModelPackageLoader;

struct CompiledBlock::Loaded {
  BlockRequest request;
  BlockPackages packages;
  // Single-threaded: without it each call would synchronize through events.
  AOTIModelPackageLoader forward, backward;

  Loaded(const BlockRequest& request_, const BlockPackages& packages_, at::DeviceIndex index)
      : request(request_),
        packages(packages_),
        forward(packages_.forward, "model", /*run_single_threaded=*/true, 1, index),
        backward(packages_.backward, "model", /*run_single_threaded=*/true, 1, index) {}

  void check(at::TensorList tensors) const;
};

namespace {

/// `loaded` travels as a number: autograd functions take tensors and plain values.
struct Run : torch::autograd::Function<Run> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, AOTIModelPackageLoader* fw,
                            AOTIModelPackageLoader* bw, const std::vector<std::size_t>* gradients,
                            at::TensorList tensors) {
    auto outputs = fw->run(tensors.vec());
    context->saved_data["backward"] = reinterpret_cast<std::int64_t>(bw);
    context->saved_data["gradients"] = reinterpret_cast<std::int64_t>(gradients);
    context->saved_data["count"] = static_cast<std::int64_t>(tensors.size());
    context->save_for_backward({outputs.begin() + 1, outputs.end()});
    return outputs[0];
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list upstream) {
    const auto number = [&](const char* name) { return context->saved_data[name].toInt(); };
    auto* package = reinterpret_cast<AOTIModelPackageLoader*>(number("backward"));
    const auto* gradients = reinterpret_cast<std::vector<std::size_t>*>(number("gradients"));
    auto inputs = context->get_saved_variables();
    inputs.push_back(upstream[0].contiguous());
    const auto outputs = package->boxed_run(std::move(inputs));
    torch::autograd::variable_list all(3 + static_cast<std::size_t>(number("count")));
    for (std::size_t i = 0; i < outputs.size(); ++i) all[3 + gradients->at(i)] = outputs[i];
    return all;
  }
};

}  // namespace

void CompiledBlock::Loaded::check(at::TensorList tensors) const {
  if (tensors.size() != request.tensors.size()) {
    fail("compiled {}: {} tensors given, {} needed", request.name, tensors.size(),
         request.tensors.size());
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& wanted = request.tensors[i];
    if (tensors[i].sizes() != at::IntArrayRef(wanted.shape) ||
        tensors[i].scalar_type() != wanted.dtype || !tensors[i].is_contiguous()) {
      fail("compiled {}: tensor {} does not have the shape, type and layout it was compiled for",
           request.name, i);
    }
  }
}

CompiledBlock::CompiledBlock(const BlockRequest& request, const BlockPackages& packages,
                             at::Device device) {
  try {
    const auto index = device.is_cuda() ? device.index() : static_cast<at::DeviceIndex>(-1);
    loaded_ = std::make_unique<Loaded>(request, packages, index);
  } catch (const c10::Error& error) {
    fail("cannot load the packages of {} at {}: {}", request.name,
         packages.forward.parent_path().string(), error.what_without_backtrace());
  }
}

CompiledBlock::~CompiledBlock() = default;

at::Tensor CompiledBlock::operator()(at::TensorList tensors) const {
  loaded_->check(tensors);
  return Run::apply(&loaded_->forward, &loaded_->backward, &loaded_->packages.gradients, tensors);
}

}  // namespace trainsuite
