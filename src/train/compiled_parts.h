#pragma once
// The compiled blocks of a case's model.
#include <memory>
#include <vector>

#include "compile/compiled_block.h"
#include "device/device.h"
#include "run/case.h"

namespace trainsuite {

/// What the case's model is compiled of.
std::vector<BlockRequest> block_requests(const Case& work);
CompileTarget compile_target(const Case& work, const DeviceInfo& device, bool deterministic);

/// The blocks of one case, loaded; in the order of block_requests.
class CompiledParts {
 public:
  CompiledParts(const Case& work, const PackageCache& cache, const CompileTarget& target,
                at::Device device);
  const CompiledBlock& block(std::size_t index) const { return *blocks_.at(index); }

 private:
  std::vector<std::unique_ptr<CompiledBlock>> blocks_;
};

}  // namespace trainsuite
