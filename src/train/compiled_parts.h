#pragma once
// The compiled parts of a case's model: which blocks there are, and the functions that run them.
#include <memory>
#include <vector>

#include "compile/compiled_block.h"
#include "device/device.h"
#include "model/gpt2.h"
#include "run/case.h"

namespace trainsuite {

/// What the case's model is compiled of, on this device.
std::vector<BlockRequest> block_requests(const Case& work);
CompileTarget compile_target(const Case& work, const DeviceInfo& device, bool deterministic);

/// The blocks of one case, loaded.
class CompiledParts {
 public:
  CompiledParts(const Case& work, const PackageCache& cache, const CompileTarget& target,
                at::Device device);
  /// Functions for gpt2_loss; this object must outlive them.
  const Gpt2Parts& gpt2() const { return gpt2_; }

 private:
  std::vector<std::unique_ptr<CompiledBlock>> blocks_;
  Gpt2Parts gpt2_;
};

}  // namespace trainsuite
