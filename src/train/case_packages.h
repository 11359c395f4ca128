#pragma once
// The packages of one case: made by one rank of each host, loaded by all.
#include <filesystem>
#include <optional>

#include "compile/held_folder.h"
#include "core/setting.h"
#include "device/device.h"
#include "launch/world.h"
#include "run/case.h"
#include "train/compiled_parts.h"

namespace trainsuite {

/// How packages are come by.
struct CompileChoice {
  std::filesystem::path cache;  // folder
  bool cold = false;            // each case compiles into an empty folder of its own
  bool deterministic = false;
};

class CasePackages {
 public:
  CasePackages(const Case& work, const DeviceInfo& device, World& world, CompileChoice choice);
  CasePackages(const CasePackages&) = delete;
  CasePackages& operator=(const CasePackages&) = delete;

  /// Collective among the ranks of the case: compiles what is missing and loads all.
  /// True where any rank had to compile. Throws Error where a block cannot be compiled or loaded.
  bool load();
  const CompiledParts* parts() const { return parts_ ? &*parts_ : nullptr; }

  /// compile_seconds of all calls of load(), and its parts.
  Settings facts() const;

 private:
  bool any_rank(bool mine) const;
  void compile(const PackageCache& cache, const CompileTarget& target);

  Case work_;
  DeviceInfo device_;
  World& world_;
  CompileChoice choice_;
  std::filesystem::path logs_;
  std::optional<HeldFolder> cold_;  // of a cold case; removed at its end
  std::optional<CompiledParts> parts_;
  CompileReport report_;
  double seconds_ = 0, load_seconds_ = 0;
};

}  // namespace trainsuite
