#pragma once
// The result file, schema 1 (docs/schema.md). Kill-safe: a finished case survives kill -9.
#include <memory>
#include <string>

#include "result/record.h"

namespace trainsuite {

class ResultFile {
 public:
  /// Creates `path` exclusively (parent folder must exist and be writable) holding the run's
  /// record. Throws UsageError when it exists, or naming what is missing and the fix.
  static std::unique_ptr<ResultFile> create(const std::string& path, const RunRecord& run);
  /// results/<suite>-<UTC time>[-<Slurm job>[_<array task>]].h5, with a suffix on collision;
  /// makes results/ where needed.
  static std::string default_path(const std::string& suite);
  /// Throws UsageError, before anything is measured, when `path` cannot be created.
  static void check_creatable(const std::string& path);

  virtual ~ResultFile() = default;
  virtual const std::string& path() const = 0;
  /// Adds one row durably: on return it survives kill -9.
  virtual void append(const CaseRecord& record) = 0;
  /// Marks the file complete (if every planned name has a result) and closes it.
  virtual void finish() = 0;
};

}  // namespace trainsuite
