#include "compile/package_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "compile/child_process.h"
#include "compile/file_lock.h"
#include "compile/held_folder.h"
#include "core/error.h"

namespace trainsuite {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* manifest_name = "block.json";
constexpr const char* package_names[] = {"forward", "backward"};

std::string read_text(const fs::path& file) {
  std::stringstream content;
  content << std::ifstream(file).rdbuf();
  return content.str();
}

void write_text(const fs::path& file, const std::string& text) {
  std::ofstream stream(file);
  stream << text << std::flush;
  if (!stream) fail("cannot write {}: {}", file.string(), std::strerror(errno));
}

/// Why the entry cannot be used; empty where it can. Packages that a crash cut short, or a disk
/// damaged, differ from the checksums in their manifest.
std::string fault_of(const fs::path& entry) {
  const auto manifest = json::parse(read_text(entry / manifest_name), nullptr, false);
  if (manifest.is_discarded() || !manifest.contains("checksums")) return "it has no manifest";
  for (const char* name : package_names) {
    const auto file = entry / fmt::format("{}.pt2", name);
    std::error_code error;
    if (!fs::is_regular_file(file, error)) return fmt::format("{}.pt2 is missing", name);
    if (hash_of_file(file) != manifest["checksums"].value(name, "")) {
      return fmt::format("{}.pt2 differs from its checksum", name);
    }
  }
  return {};
}

/// CUDA_VISIBLE_DEVICES that leaves a child the target's GPU alone.
std::string visible_gpu(const CompileTarget& target) {
  const char* given = std::getenv("CUDA_VISIBLE_DEVICES");
  if (given == nullptr) return std::to_string(target.ordinal);
  std::istringstream list(given);
  std::string entry;
  for (int i = 0; i <= target.ordinal; ++i) std::getline(list, entry, ',');
  return entry;
}

/// The line that says what went wrong: the last one that is not a warning's.
std::string last_line(const fs::path& log) {
  std::ifstream file(log);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

}  // namespace

fs::path default_compile_cache() {
  if (const char* base = std::getenv("XDG_CACHE_HOME"); base && *base) {
    return fs::path(base) / "trainsuite";
  }
  if (const char* home = std::getenv("HOME"); home && *home) {
    return fs::path(home) / ".cache" / "trainsuite";
  }
  return fs::temp_directory_path() / fmt::format("trainsuite-{}", getuid());
}

PackageCache::PackageCache(fs::path folder, CompileTools tools, fs::path logs, double lock_seconds)
    : folder_(std::move(folder)),
      logs_(logs.empty() ? folder_ / "logs" : std::move(logs)),
      tools_(std::move(tools)),
      lock_seconds_(lock_seconds) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (!error) fs::create_directories(logs_, error);
  if (error) {
    fail<UsageError>("cannot make the compile cache {}: {}; name another with --compile-cache",
                     folder_.string(), error.message());
  }
  tools_hash_ = hash_of_file(tools_.ops_library);
  for (const char* name : {"capture.py", "capture_inductor.py", "capture_wrapper.py"}) {
    const auto script = tools_.capture.parent_path() / name;
    if (fs::exists(script, error)) tools_hash_ += hash_of_file(script);
  }
}

std::string PackageCache::key(const CompileTarget& target, const BlockRequest& request) const {
  CompileTarget used = target;
  if (!request.attention) used.attention.clear();
  return request.name + "-" +
         hash_of_text(to_json_text(used) + to_json_text(request) + tools_.torch_version +
                      tools_hash_);
}

bool PackageCache::has(const CompileTarget& target, const BlockRequest& request) const {
  return fault_of(folder_ / key(target, request)).empty();
}

BlockPackages PackageCache::find(const CompileTarget& target, const BlockRequest& request) const {
  const auto entry = folder_ / key(target, request);
  const auto manifest = json::parse(read_text(entry / manifest_name), nullptr, false);
  if (manifest.is_discarded()) fail("{} holds no packages of {}", entry.string(), request.name);
  return {entry / "forward.pt2", entry / "backward.pt2",
          manifest["gradients"].get<std::vector<std::size_t>>()};
}

std::vector<BlockRequest> PackageCache::missing(const CompileTarget& target,
                                                const std::vector<BlockRequest>& requests,
                                                CompileReport& report) const {
  std::vector<BlockRequest> list;
  for (const auto& request : requests) {
    const auto entry = folder_ / key(target, request);
    std::error_code error;
    if (!fs::exists(entry, error)) {
      list.push_back(request);
    } else if (const auto fault = fault_of(entry); !fault.empty()) {
      report.notes.push_back(fmt::format("{} is rebuilt: {}", entry.string(), fault));
      list.push_back(request);
    }
  }
  return list;
}

CompileReport PackageCache::ensure(const CompileTarget& target,
                                   const std::vector<BlockRequest>& requests,
                                   const std::function<void()>& watch) const {
  CompileReport report;
  auto wanted = missing(target, requests, report);
  if (wanted.empty()) return report;
  std::vector<std::string> names;
  for (const auto& request : wanted) names.push_back(key(target, request));
  std::sort(names.begin(), names.end());  // everyone locks in one order
  std::vector<std::unique_ptr<FileLock>> locks;
  for (const auto& name : names) {
    locks.push_back(std::make_unique<FileLock>(folder_ / (name + ".lock"), lock_seconds_, watch));
    if (!locks.back()->held()) {
      report.notes.push_back(locks.back()->reason() + "; compiled without waiting for others");
    }
  }
  CompileReport again;  // another job may have made them while this one waited
  wanted = missing(target, wanted, again);
  if (!wanted.empty()) {
    compile(target, wanted, watch, report);
  } else {
    report.waited = true;
    report.notes.push_back("waited for another job that compiled the same blocks");
  }
  return report;
}

void PackageCache::compile(const CompileTarget& target, const std::vector<BlockRequest>& requests,
                           const std::function<void()>& watch, CompileReport& report) const {
  const HeldFolder scratch(folder_, unique_name("making"));
  fs::create_directories(scratch.path());
  json request = json::parse(to_json_text(target));
  request["ops_library"] = tools_.ops_library.string();
  request["torch_version"] = tools_.torch_version;
  request["work_folder"] = (folder_ / "work").string();
  request["blocks"] = json::array();
  for (const auto& block : requests) request["blocks"].push_back(json::parse(to_json_text(block)));
  write_text(scratch.path() / "request.json", request.dump());

  ChildCommand command;
  const auto made = scratch.path() / "made";
  command.words = {tools_.python, tools_.capture, scratch.path() / "request.json", made};
  if (target.cuda) command.environment.emplace_back("CUDA_VISIBLE_DEVICES", visible_gpu(target));
  command.log = logs_ / (key(target, requests.front()) + ".log");
  fs::remove(command.log);
  const int status = run_child(command, watch);
  if (status != 0) {
    fail("compiling {} failed (exit status {}): {}; the whole output is in {}",
         requests.front().name, status, last_line(command.log), command.log.string());
  }
  report.compiled = true;
  report.seconds =
      json::parse(read_text(made / "timing.json")).get<std::map<std::string, double>>();
  for (const auto& block : requests) publish(made / block.name, key(target, block));
}

void PackageCache::publish(const fs::path& made, const std::string& key_name) const {
  json manifest;
  for (const char* name : package_names) {
    manifest["checksums"][name] = hash_of_file(made / fmt::format("{}.pt2", name));
  }
  const auto backward = json::parse(read_text(made / "backward.json"));
  manifest["gradients"] = backward.at("outputs");
  write_text(made / manifest_name, manifest.dump());
  const auto entry = folder_ / key_name;
  const HeldFolder old(folder_, unique_name("old"));  // a damaged entry, if there is one
  std::error_code error;
  fs::rename(entry, old.path(), error);
  fs::rename(made, entry, error);
  if (error && !fault_of(entry).empty()) {  // not another job's that came first
    fail("cannot put packages at {}: {}", entry.string(), error.message());
  }
}

}  // namespace trainsuite
