#include "run/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "run/row_figures.h"
#include "run/row_notes.h"
#include "run/self_check.h"
#include "run/speed_up.h"
#include "run/summary_repeats.h"

namespace trainsuite {
namespace {

constexpr double gib = 1024.0 * 1024.0 * 1024.0;
constexpr const char* unknown = "-";
using Optional = std::optional<double>;

std::string row_name(const CaseRecord& record) {
  return record.repeat == 0 ? record.name : fmt::format("{} #{}", record.name, record.repeat);
}

std::string rate_text(double rate) { return grouped(static_cast<long long>(rate + 0.5)); }

std::string number_text(const Optional& value, double scale, int digits) {
  return value ? fmt::format("{:.{}f}", *value * scale, digits) : unknown;
}

std::string rates_text(const RowFigures& row) {
  if (!row.tokens_per_second) return unknown;
  const std::string median = rate_text(*row.tokens_per_second);
  if (!row.tokens_per_second_p10 || !row.tokens_per_second_p90) return median;
  return fmt::format("{} [{}..{}]", median, rate_text(*row.tokens_per_second_p10),
                     rate_text(*row.tokens_per_second_p90));
}

std::string peaks_text(const RowFigures& row) {
  if (!row.peak_allocated_bytes && !row.peak_reserved_bytes) return unknown;
  return fmt::format("{} / {}", number_text(row.peak_allocated_bytes, 1 / gib, 2),
                     number_text(row.peak_reserved_bytes, 1 / gib, 2));
}

std::string own_text(const SpeedUp& speed_up) {
  if (!speed_up.over_own) return unknown;
  return fmt::format("{:.3f}x {}", *speed_up.over_own, speed_up.own_base);
}

std::string mfu_text(const RowFigures& row) {
  if (!row.mfu) return unknown;
  return fmt::format("{:.1f}% ({}%)", *row.mfu * 100, number_text(row.mfu_uncausal, 100, 1));
}

using Rows = std::vector<std::vector<std::string>>;

/// Drops the columns in which no row knows anything; tells which.
std::vector<std::string> drop_unknown_columns(Rows& rows) {
  std::vector<std::string> dropped;
  for (std::size_t c = rows[0].size(); c-- > 0;) {
    const bool known = std::any_of(rows.begin() + 1, rows.end(),
                                   [c](const auto& row) { return row[c] != unknown; });
    if (known) continue;
    dropped.insert(dropped.begin(), rows[0][c]);
    for (auto& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(c));
  }
  return dropped;
}

/// Names the rows whose steps were not timed one by one, and says what figures all rows have.
std::string rate_notes(const std::vector<CaseRecord>& records, const SummaryFacts& facts) {
  std::vector<std::string> of_loop;
  for (const CaseRecord& record : records) {
    if (row_figures(record, facts).of_loop) of_loop.push_back(row_name(record));
  }
  std::string notes;
  const bool finetune = std::any_of(records.begin(), records.end(), [](const CaseRecord& record) {
    return find_number(record.results, "train_seconds").has_value();
  });
  if (finetune) {
    notes += "tokens/s: tokens that are no padding over the time of all steps; step: median.\n";
  } else if (of_loop.empty() || of_loop.size() < records.size()) {
    notes +=
        "tokens/s: median [p10..p90] over the measured steps, each at its slowest rank;"
        " independent: sum over ranks of own tokens / own step.\n";
  }
  if (!of_loop.empty()) {
    notes += fmt::format(
        "Means of the loop, all steps after the first, as single steps were not timed"
        " (--instrumentation off): {}.\n",
        of_loop.size() == records.size() ? "all rows" : join(of_loop, ", "));
  }
  return notes;
}

/// "measured" or "listed" peak, as the rows say.
std::string peak_words(const std::vector<CaseRecord>& records) {
  bool measured = false, listed = false;
  for (const CaseRecord& record : records) {
    const auto source = find_text(record.results, "peak_flops_source");
    measured = measured || source == "measured";
    listed = listed || source == "listed";
  }
  return measured && listed ? "measured, where there is none listed,"
         : measured         ? "measured"
                            : "listed";
}

std::string notes_on(const std::vector<CaseRecord>& records, const std::vector<SpeedUp>& ratios,
                     const std::vector<std::string>& absent, const SummaryFacts& facts) {
  std::string notes;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const CaseRecord& record = records[i];
    if (record.status != "ok") {
      notes += fmt::format("{}: {}: {}\n", row_name(record), record.status, record.reason);
    }
    for (const auto& note : row_notes(record)) {
      notes += fmt::format("{}: {}\n", row_name(record), note);
    }
    if (ratios[i].efficiency) {
      notes += fmt::format("{}: {:.1f}% of {} x 1gpu\n", row_name(record),
                           *ratios[i].efficiency * 100, record.ranks.size());
    }
  }
  notes += rate_notes(records, facts);
  const auto shown = [&](const char* column) {
    return std::find(absent.begin(), absent.end(), column) == absent.end();
  };
  if (shown("exposed sync ms")) notes += "Exposed sync: the longest wait of any rank, median.\n";
  if (shown("MFU (uncausal)")) {
    notes +=
        "MFU = FLOPs per token x tokens/s / (" + peak_words(records) +
        " dense peak x GPUs); "
        "FLOPs per token = 6 x"
        " parameters of matmuls (head in, input embedding out) + 12 x layers x width x sequence,"
        " halved as attention is causal (in brackets: not halved).\n";
  }
  if (!absent.empty()) notes += fmt::format("Not known here: {}.\n", join(absent, ", "));
  const bool tiny = std::any_of(records.begin(), records.end(), [](const CaseRecord& record) {
    return find_text(record.settings, "size") == "tiny";
  });
  if (tiny || !facts.cuda) {
    notes += fmt::format("Not comparable: {}; these are no results of a GPU or a real model.\n",
                         facts.cuda ? "size tiny"
                         : tiny     ? "CPU dry run of size tiny"
                                    : "CPU dry run");
  }
  return notes;
}

}  // namespace

std::string summary_text(const std::vector<CaseRecord>& records, const SummaryFacts& facts) {
  const auto ratios = speed_ups(records);
  Rows rows = {{"case", "status", "tokens/s [p10..p90]", "step ms", "exposed sync ms",
                "peak GiB allocated / reserved", "speed-up on own base", "on 1gpu",
                "MFU (uncausal)"}};
  for (std::size_t i = 0; i < records.size(); ++i) {
    const RowFigures row = row_figures(records[i], facts);
    const auto single = ratios[i].over_1gpu;
    rows.push_back({row_name(records[i]), records[i].status, rates_text(row),
                    number_text(row.step_seconds, 1e3, 2),
                    number_text(row.exposed_sync_seconds, 1e3, 2), peaks_text(row),
                    own_text(ratios[i]), single ? fmt::format("{:.3f}x", *single) : unknown,
                    mfu_text(row)});
  }
  const auto absent = drop_unknown_columns(rows);
  return "\n" + aligned_table(rows, 2) + "\n" + notes_on(records, ratios, absent, facts) +
         repeats_text(records, facts) + fmt::format("Output: {}\n", facts.output_path);
}

std::string summary_json(const std::vector<CaseRecord>& records, const SummaryFacts& facts) {
  const auto ratios = speed_ups(records);
  auto cases = nlohmann::json::array();
  for (std::size_t i = 0; i < records.size(); ++i) {
    const RowFigures row = row_figures(records[i], facts);
    nlohmann::json entry = {
        {"case", records[i].name}, {"repeat", records[i].repeat}, {"status", records[i].status}};
    if (!records[i].reason.empty()) entry["reason"] = records[i].reason;
    const auto add = [&entry](const char* name, const Optional& value) {
      if (value) entry[name] = *value;
    };
    add("tokens_per_second", row.tokens_per_second);
    add("tokens_per_second_p10", row.tokens_per_second_p10);
    add("tokens_per_second_p90", row.tokens_per_second_p90);
    add("step_seconds", row.step_seconds);
    if (row.of_loop) entry["means_of_loop"] = true;
    add("exposed_sync_seconds", row.exposed_sync_seconds);
    add("peak_allocated_bytes", row.peak_allocated_bytes);
    add("peak_reserved_bytes", row.peak_reserved_bytes);
    if (ratios[i].over_own) entry["own_base"] = ratios[i].own_base;
    add("speed_up_on_own_base", ratios[i].over_own);
    add("speed_up_on_1gpu", ratios[i].over_1gpu);
    add("efficiency", ratios[i].efficiency);
    for (const char* name : {"ceiling_flops_per_second", "ceiling_bytes_per_second",
                             "ceiling_bus_bytes_per_second", "ceiling_problem_size"}) {
      add(name, find_number(records[i].results, name));
    }
    add("mfu", row.mfu);
    add("mfu_uncausal", row.mfu_uncausal);
    if (const auto notes = row_notes(records[i]); !notes.empty()) entry["notes"] = notes;
    cases.push_back(std::move(entry));
  }
  nlohmann::json all = {{"dry_run", !facts.cuda},
                        {"output", facts.output_path},
                        {"cases", std::move(cases)},
                        {"over_repeats", repeats_json(records, facts)}};
  if (auto checks = self_check_json(records); !checks.empty()) all["self_check"] = checks;
  return all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace trainsuite
