#pragma once
// What a result file of earlier runs holds, as far as a run that goes on with it must know.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/setting.h"

namespace H5 {
class H5File;
}

namespace trainsuite {

struct EarlierRow {
  std::string suite, name;
  std::int64_t repeat = 0;
  Settings attributes;  // scalars: settings, results, status, reason
};

struct EarlierRun {
  Settings attributes;  // scalars: versions, environment
  std::vector<std::string> planned;
  std::vector<std::string> devices;  // a line for each rank, "NVIDIA H200, 150754820096 bytes"
  std::vector<std::string> hosts;    // a line for each, "<CPU model>, 2 sockets, 64 cores"
};

struct EarlierFile {
  std::string file_id;
  std::vector<EarlierRun> runs;
  std::vector<EarlierRow> rows;
};

/// Reads `path` and its parts. Throws UsageError naming what is wrong where it is no result file.
EarlierFile read_earlier(const std::string& path);
/// The same from an open file.
EarlierFile read_earlier(H5::H5File& file);

/// The scalar of that name; null where there is none.
const Value* find_value(const Settings& settings, const std::string& name);
/// Empty where there is no such text.
std::string text_of(const Settings& settings, const std::string& name);
/// The run was asked to stop within this case: it has no result yet.
bool was_stopped(const EarlierRow& row);

/// Part files of `path`, in order of their numbers.
std::vector<std::string> part_files(const std::string& path);

/// A rank's device and a host as EarlierRun words them.
std::string device_line(const std::string& name, std::int64_t memory_bytes);
std::string host_line(const std::string& cpu_model, std::int64_t sockets, std::int64_t cores);

}  // namespace trainsuite
