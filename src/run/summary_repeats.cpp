#include "run/summary_repeats.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "run/row_figures.h"
#include "run/speed_up.h"

namespace trainsuite {
namespace {

constexpr const char* unknown = "-";

/// What one run of a case gave.
struct RunFigures {
  RowFigures row;
  SpeedUp ratios;
};

template <class Get>
std::optional<Repeats> summarized(const std::vector<RunFigures>& runs, Get get) {
  std::vector<double> values;
  for (const RunFigures& run : runs) {
    const std::optional<double> value = get(run);
    if (value && *value > 0 && std::isfinite(*value)) values.push_back(*value);
  }
  if (values.empty()) return std::nullopt;
  return over_repeats(values);
}

std::string interval_text(const Repeats& repeats, const auto& print) {
  if (!repeats.low) return print(repeats.median);
  return fmt::format("{} [{}..{}]", print(repeats.median), print(*repeats.low),
                     print(*repeats.high));
}

std::string rate_text(double rate) { return grouped(static_cast<long long>(rate + 0.5)); }
std::string milliseconds_text(double seconds) { return fmt::format("{:.2f}", seconds * 1e3); }
std::string ratio_text(double ratio) { return fmt::format("{:.3f}x", ratio); }
std::string percent_text(double fraction) { return fmt::format("{:.1f}%", fraction * 100); }

std::string cell(const std::optional<Repeats>& repeats, std::string (*print)(double)) {
  return repeats ? interval_text(*repeats, print) : unknown;
}

std::string width_text(const std::optional<Repeats>& repeats) {
  if (!repeats || !repeats->low) return unknown;
  return fmt::format("{:.2f}%", repeats->half_width() * 100);
}

}  // namespace

std::vector<CaseRepeats> case_repeats(const std::vector<CaseRecord>& records,
                                      const SummaryFacts& facts) {
  const auto ratios = speed_ups(records);
  std::vector<CaseRepeats> cases;
  std::vector<std::vector<RunFigures>> runs;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const auto at = std::find_if(cases.begin(), cases.end(), [&](const CaseRepeats& one) {
      return one.suite == records[i].suite && one.name == records[i].name;
    });
    const auto index = static_cast<std::size_t>(at - cases.begin());
    if (at == cases.end()) {
      cases.push_back({});
      cases.back().suite = records[i].suite;
      cases.back().name = records[i].name;
      runs.emplace_back();
    }
    ++cases[index].all;
    if (records[i].status != "ok") continue;
    ++cases[index].ok;
    cases[index].own_base = ratios[i].own_base;
    runs[index].push_back({row_figures(records[i], facts), ratios[i]});
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto of = [&](auto get) { return summarized(runs[i], get); };
    cases[i].tokens_per_second = of([](const auto& run) { return run.row.tokens_per_second; });
    cases[i].step_seconds = of([](const auto& run) { return run.row.step_seconds; });
    cases[i].over_own = of([](const auto& run) { return run.ratios.over_own; });
    cases[i].over_1gpu = of([](const auto& run) { return run.ratios.over_1gpu; });
    cases[i].mfu = of([](const auto& run) { return run.row.mfu; });
  }
  return cases;
}

std::string repeats_text(const std::vector<CaseRecord>& records, const SummaryFacts& facts) {
  const auto cases = case_repeats(records, facts);
  const bool any_ok =
      std::any_of(cases.begin(), cases.end(), [](const CaseRepeats& one) { return one.ok > 0; });
  if (!any_ok) return {};
  const bool repeated =
      std::any_of(cases.begin(), cases.end(), [](const CaseRepeats& one) { return one.all > 1; });
  if (!repeated) return "single run of each case: no interval; --repeats N gives one.\n";
  std::vector<std::vector<std::string>> rows = {{"over repeats", "runs ok", "method",
                                                 "tokens/s [95% interval]", "+-", "step ms",
                                                 "speed-up on own base", "on 1gpu", "MFU"}};
  for (const CaseRepeats& one : cases) {
    const auto& rate = one.tokens_per_second;
    rows.push_back({one.name, fmt::format("{} of {}", one.ok, one.all),
                    rate ? rate->method : unknown, cell(rate, rate_text), width_text(rate),
                    cell(one.step_seconds, milliseconds_text), cell(one.over_own, ratio_text),
                    cell(one.over_1gpu, ratio_text), cell(one.mfu, percent_text)});
  }
  return aligned_table(rows, 3) +
         "Over repeats: the median of the runs' own medians with its 95% interval (over runs, not"
         " steps): Student's t on logarithms from 3 runs, exact bootstrap of the median from 10;"
         " +- is the farther end's distance from the median. Ratios are formed within a round.\n";
}

nlohmann::json repeats_json(const std::vector<CaseRecord>& records, const SummaryFacts& facts) {
  auto all = nlohmann::json::array();
  for (const CaseRepeats& one : case_repeats(records, facts)) {
    nlohmann::json entry = {{"case", one.name}, {"runs", one.all}, {"runs_ok", one.ok}};
    const auto add = [&entry](const char* name, const std::optional<Repeats>& repeats) {
      if (!repeats) return;
      entry[name] = {{"median", repeats->median}, {"method", repeats->method}};
      if (repeats->low) entry[name]["low"] = *repeats->low;
      if (repeats->high) entry[name]["high"] = *repeats->high;
    };
    add("tokens_per_second", one.tokens_per_second);
    add("step_seconds", one.step_seconds);
    add("speed_up_on_own_base", one.over_own);
    add("speed_up_on_1gpu", one.over_1gpu);
    add("mfu", one.mfu);
    all.push_back(std::move(entry));
  }
  return all;
}

}  // namespace trainsuite
