#pragma once
// The result file, schema 1 (docs/schema.md). Kill-safe: a finished case survives kill -9.
#include <cstddef>
#include <memory>
#include <string>

#include "result/record.h"

namespace trainsuite {

class ResultFile {
 public:
  /// Below this size each case makes a new copy of the file; above it cases lie as part files in
  /// `<path>.parts/` until they are joined.
  static constexpr std::size_t default_small_file_bytes = std::size_t{8} << 20;

  /// Creates `path` exclusively (parent folder must exist and be writable) holding the run's
  /// record. Throws UsageError when it exists, or naming what is missing and the fix.
  static std::unique_ptr<ResultFile> create(
      const std::string& path, const RunRecord& run,
      std::size_t small_file_bytes = default_small_file_bytes);
  /// Creates a file at default_path(suite); a run that takes the name first is no error.
  static std::unique_ptr<ResultFile> create_default(const std::string& suite, const RunRecord& run);
  /// results/<suite>-<UTC time>[-<Slurm job>[_<array task>]].h5, with a suffix on collision;
  /// makes results/ where needed.
  static std::string default_path(const std::string& suite);
  /// Throws UsageError, before anything is measured, when `path` cannot be created.
  static void check_creatable(const std::string& path);

  /// Goes on with the file of earlier runs: joins its parts, keeps its rows, adds this run's
  /// record. Throws UsageError where it is no result file or another run is using it.
  static std::unique_ptr<ResultFile> resume(
      const std::string& path, const RunRecord& run,
      std::size_t small_file_bytes = default_small_file_bytes);

  virtual ~ResultFile() = default;
  virtual const std::string& path() const = 0;
  /// Adds one row durably: on return it survives kill -9. Throws Error when it cannot be written
  /// (disk full) or its row exists; the rows before are kept.
  virtual void append(const CaseRecord& record) = 0;
  /// Joins part files and marks the file complete if every planned name has a result.
  virtual void finish() = 0;
};

}  // namespace trainsuite
