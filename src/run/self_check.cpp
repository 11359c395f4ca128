#include "run/self_check.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "result/statistics.h"

namespace trainsuite {
namespace {

constexpr const char* suffix = "-bare";

/// Mean step of the slowest rank's loop, the only time that both have.
std::optional<double> loop_step(const CaseRecord& record) {
  if (record.status != "ok") return std::nullopt;
  return loop_step_seconds(record);
}

}  // namespace

std::vector<Case> self_check_cases(const std::vector<Case>& cases) {
  std::vector<Case> all;
  for (const Case& one : cases) {
    all.push_back(one);
    all.push_back(one);
    all.back().recipe += suffix;
    all.back().what += ", timed as a whole loop";
    all.back().instrumented = false;
  }
  return all;
}

std::vector<SelfCheck> self_checks(const std::vector<CaseRecord>& records) {
  std::map<std::pair<std::string, std::int64_t>, double> bare;
  for (const CaseRecord& record : records) {
    const auto seconds = loop_step(record);
    if (seconds && record.name.ends_with(suffix)) bare[{record.name, record.repeat}] = *seconds;
  }
  std::vector<std::string> names;
  std::map<std::string, std::vector<double>> ratios;
  for (const CaseRecord& record : records) {
    const auto twin = bare.find({record.name + suffix, record.repeat});
    const auto seconds = loop_step(record);
    if (!seconds || twin == bare.end()) continue;
    if (!ratios.contains(record.name)) names.push_back(record.name);
    ratios[record.name].push_back(*seconds / twin->second);
  }
  std::vector<SelfCheck> checks;
  for (const auto& name : names) checks.push_back({name, over_repeats(ratios[name])});
  return checks;
}

std::string self_check_text(const std::vector<CaseRecord>& records) {
  std::string text;
  for (const SelfCheck& one : self_checks(records)) {
    text += fmt::format("{}: measuring costs {:.2f}% of the loop", one.name, one.share() * 100);
    if (one.ratio.low) {
      text += fmt::format(" [{:.2f}%..{:.2f}%]", (*one.ratio.low - 1) * 100,
                          (*one.ratio.high - 1) * 100);
    }
    text += fmt::format(", {} round{}, {}\n", one.ratio.count, one.ratio.count == 1 ? "" : "s",
                        one.ratio.method);
  }
  return text;
}

nlohmann::json self_check_json(const std::vector<CaseRecord>& records) {
  auto all = nlohmann::json::array();
  for (const SelfCheck& one : self_checks(records)) {
    nlohmann::json entry = {{"case", one.name},
                            {"share", one.share()},
                            {"rounds", one.ratio.count},
                            {"method", one.ratio.method}};
    if (one.ratio.low) entry["low"] = *one.ratio.low - 1;
    if (one.ratio.high) entry["high"] = *one.ratio.high - 1;
    all.push_back(std::move(entry));
  }
  return all;
}

}  // namespace trainsuite
