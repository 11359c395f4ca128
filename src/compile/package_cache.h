#pragma once
// Compiled packages on disk: made once for all ranks and jobs that share the folder.
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "compile/block_request.h"
#include "compile/compile_tools.h"

namespace trainsuite {

/// One block's packages.
struct BlockPackages {
  std::filesystem::path forward, backward;
  std::vector<std::size_t> gradients;  // which tensor each output of backward is the gradient of
};

/// What getting packages took.
struct CompileReport {
  bool compiled = false;  // false: all came from the cache
  bool waited = false;    // for another job that compiled them
  std::map<std::string, double>
      seconds;                     // import, trace, inductor, kernels, wrapper; compiled only
  std::vector<std::string> notes;  // locks that could not be had, damaged packages
};

/// The default folder: $XDG_CACHE_HOME/trainsuite, or ~/.cache/trainsuite.
std::filesystem::path default_compile_cache();

class PackageCache {
 public:
  /// `folder` is made if need be. `logs`: where the compiler's output is kept; in the folder itself
  /// if empty. `lock_seconds`: how long another job's compilation of the same blocks is waited for
  /// before compiling privately.
  PackageCache(std::filesystem::path folder, CompileTools tools, std::filesystem::path logs = {},
               double lock_seconds = 900);

  /// Compiles what is missing or damaged. `watch` is called while waiting and may throw.
  /// Throws Error with the log's name where a block cannot be compiled.
  CompileReport ensure(const CompileTarget& target, const std::vector<BlockRequest>& requests,
                       const std::function<void()>& watch) const;

  /// The packages of one request that are there. Throws Error where they are not.
  BlockPackages find(const CompileTarget& target, const BlockRequest& request) const;
  bool has(const CompileTarget& target, const BlockRequest& request) const;

  /// Folder name of a request: its name and the hash of all that the packages depend on.
  std::string key(const CompileTarget& target, const BlockRequest& request) const;
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::vector<BlockRequest> missing(const CompileTarget& target,
                                    const std::vector<BlockRequest>& requests,
                                    CompileReport& report) const;
  void compile(const CompileTarget& target, const std::vector<BlockRequest>& requests,
               const std::function<void()>& watch, CompileReport& report) const;
  void publish(const std::filesystem::path& made, const std::string& key_name) const;

  std::filesystem::path folder_, logs_;
  CompileTools tools_;
  double lock_seconds_;
  std::string tools_hash_;
};

}  // namespace trainsuite
