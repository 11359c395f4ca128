#include "run/resume.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"
#include "run/plan.h"

namespace trainsuite {
namespace {

// How long and how often, not what.
constexpr std::array free_settings = {
    "time_limit_seconds", "total_time_limit_seconds", "repeats", "order", "until_percent", "fault"};
constexpr std::array compared_attributes = {"implementation", "git_commit", "dry_run",
                                            "ranks_total", "torch_threads"};
constexpr std::array compared_environment = {"env_NCCL_",  "env_OMP_",     "env_MKL_",
                                             "env_TORCH_", "env_PYTORCH_", "env_CUBLAS_"};

std::string in_words(const Value* value) {
  if (value == nullptr) return "absent";
  return std::visit([](const auto& v) { return fmt::format("{}", v); }, *value);
}

bool is_compared(const std::string& attribute) {
  const auto is = [&](const char* name) { return attribute == name; };
  const auto begins = [&](const char* prefix) { return attribute.starts_with(prefix); };
  return attribute.ends_with("_version") ||
         std::any_of(compared_attributes.begin(), compared_attributes.end(), is) ||
         std::any_of(compared_environment.begin(), compared_environment.end(), begins);
}

/// Differences in words, one entry each.
class Differences {
 public:
  void compare(const std::string& what, const std::string& before, const std::string& now) {
    if (before != now) found_.push_back(fmt::format("{} was {}, is {}", what, before, now));
  }
  /// At most three: more say the same.
  void throw_if_any() const {
    if (found_.empty()) return;
    const std::vector<std::string> first(found_.begin(),
                                         found_.begin() + std::min<long>(3, count()));
    const auto rest = count() > 3 ? fmt::format("; and {} more", count() - 3) : std::string();
    fail<UsageError>(
        "--resume: this run differs from the file's: {}{}; name another file with --out",
        join(first, "; "), rest);
  }

 private:
  long count() const { return static_cast<long>(found_.size()); }
  std::vector<std::string> found_;
};

void compare_runs(const EarlierRun& before, const RunRecord& now, Differences& differences) {
  const auto compare = [&](const std::string& name) {
    if (!is_compared(name)) return;
    differences.compare(name, in_words(find_value(before.attributes, name)),
                        in_words(find_value(now.attributes, name)));
  };
  for (const Setting& setting : now.attributes) compare(setting.name);
  for (const Setting& setting : before.attributes) {
    if (find_value(now.attributes, setting.name) == nullptr) compare(setting.name);
  }
  std::vector<std::string> devices, hosts;
  for (const auto& rank : now.ranks) {
    devices.push_back(device_line(rank.device_name, rank.memory_bytes));
  }
  for (const auto& host : now.hosts) {
    hosts.push_back(host_line(host.cpu_model, host.sockets, host.cores));
  }
  for (size_t r = 0; r < std::min(devices.size(), before.devices.size()); ++r) {
    differences.compare(fmt::format("the device of rank {}", r), before.devices[r], devices[r]);
  }
  differences.compare("the number of hosts", fmt::format("{}", before.hosts.size()),
                      fmt::format("{}", hosts.size()));
  for (size_t h = 0; h < std::min(hosts.size(), before.hosts.size()); ++h) {
    differences.compare(fmt::format("host {}", h), before.hosts[h], hosts[h]);
  }
}

const EarlierRow* first_row(const EarlierFile& file, const Case& work) {
  const EarlierRow* first = nullptr;
  for (const auto& row : file.rows) {
    if (row.suite != work.suite || row.name != work.name()) continue;
    if (first == nullptr || row.repeat < first->repeat) first = &row;
  }
  return first;
}

void compare_case(const EarlierRow& before, const Case& work, const Settings& flags,
                  Differences& differences) {
  for (const Setting& setting : merged_settings(flags, case_settings(work))) {
    const auto is_it = [&](const char* name) { return setting.name == name; };
    if (std::any_of(free_settings.begin(), free_settings.end(), is_it)) continue;
    if (setting.name == "seed" && work.vary_seed) continue;  // of each repeat
    if (setting.name == "ranks") continue;                   // of a row: those that took part
    differences.compare(work.name() + " " + setting.name,
                        in_words(find_value(before.attributes, setting.name)),
                        in_words(&setting.value));
  }
}

}  // namespace

EarlierCases earlier_cases(const EarlierFile& file, const std::string& suite, bool retry) {
  EarlierCases cases;
  for (const auto& row : file.rows) {
    if (row.suite != suite) continue;
    auto& one = cases[row.name];
    one.next = std::max(one.next, row.repeat + 1);
    const auto status = text_of(row.attributes, "status");
    const bool again = was_stopped(row) || (retry && (status == "failed" || status == "timeout"));
    if (!again) ++one.have;
  }
  return cases;
}

std::optional<std::int64_t> repeat_to_run(const EarlierCases& earlier, const std::string& name,
                                          std::int64_t planned_repeat) {
  const auto at = earlier.find(name);
  if (at == earlier.end()) return planned_repeat;
  if (planned_repeat < at->second.have) return std::nullopt;
  return at->second.next + planned_repeat - at->second.have;
}

std::string to_text(const EarlierCases& cases) {
  nlohmann::json all = nlohmann::json::object();
  for (const auto& [name, one] : cases) all[name] = {one.have, one.next};
  return all.dump();
}

EarlierCases earlier_cases_from_text(const std::string& text) {
  EarlierCases cases;
  const auto all = nlohmann::json::parse(text);
  for (const auto& [name, one] : all.items()) cases[name] = {one[0], one[1]};
  return cases;
}

void check_resumable(const EarlierFile& file, const RunRecord& run, const std::vector<Case>& cases,
                     const Settings& flags) {
  if (file.runs.empty()) fail<UsageError>("--resume: the file holds no run; name another file");
  Differences differences;
  compare_runs(file.runs.back(), run, differences);
  for (const Case& work : cases) {
    if (const auto* row = first_row(file, work)) compare_case(*row, work, flags, differences);
  }
  differences.throw_if_any();
}

}  // namespace trainsuite
