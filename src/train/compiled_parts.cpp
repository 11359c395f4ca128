#include "train/compiled_parts.h"

#include <ATen/Version.h>

#include "core/error.h"
#include "train/finetune_parts.h"
#include "train/trained_model.h"

namespace trainsuite {

std::vector<BlockRequest> block_requests(const Case& work) {
  if (work.finetune) return finetune_block_requests(work);
  return make_model(work, at::kCPU, /*rows_gradient=*/false)->requests();
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
}

}  // namespace trainsuite
