#include "result/telemetry.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/text.h"

namespace trainsuite {
namespace {

struct Word {
  std::uint64_t bit;
  const char* text;
};
// nvmlClocksEventReasons of nvml.h; src/device/nvml.cpp holds the two together.
constexpr std::array words{Word{0x04, power_cap},
                           Word{0x08, "hardware slowdown"},
                           Word{0x10, "sync boost with a slower GPU"},
                           Word{0x20, "thermal slowdown (software)"},
                           Word{0x40, "thermal slowdown (hardware)"},
                           Word{0x80, "power brake"}};

const std::vector<double>* values_of(const RankRecord& rank, const std::string& name) {
  for (const Series& series : rank.telemetry) {
    if (series.name == name) return &series.values;
  }
  return nullptr;
}

std::optional<double> fact(const RankRecord& rank, const std::string& name) {
  for (const Setting& one : rank.facts) {
    if (one.name == name && std::holds_alternative<double>(one.value)) {
      return std::get<double>(one.value);
    }
  }
  return std::nullopt;
}

/// Known values of a telemetry series whose sample lies within the rank's timed loop.
std::vector<double> within_loop(const RankRecord& rank, const std::string& name) {
  std::vector<double> kept;
  const auto* seconds = values_of(rank, "sample_seconds");
  const auto* values = values_of(rank, name);
  const auto begin = fact(rank, "telemetry_loop_begin_seconds");
  const auto end = fact(rank, "telemetry_loop_end_seconds");
  if (!seconds || !values || !begin || !end) return kept;
  for (std::size_t i = 0; i < std::min(seconds->size(), values->size()); ++i) {
    const bool inside = (*seconds)[i] >= *begin && (*seconds)[i] <= *end;
    if (inside && !std::isnan((*values)[i])) kept.push_back((*values)[i]);
  }
  return kept;
}

void add_throttling(const RankRecord& rank, TelemetryFlags& flags, std::uint64_t& reasons) {
  const auto masks = within_loop(rank, "throttle_reasons");
  if (masks.empty()) return;
  double throttled = 0;
  for (const double mask : masks) {
    const auto bits = static_cast<std::uint64_t>(mask);
    reasons |= bits;
    if (!throttle_words(bits).empty()) ++throttled;
  }
  const double share = throttled / static_cast<double>(masks.size());
  flags.throttled_share = std::max(flags.throttled_share.value_or(0), share);
}

void set(Settings& results, const std::string& name, Value value) {
  std::erase_if(results, [&](const Setting& one) { return one.name == name; });
  results.push_back({name, std::move(value)});
}

}  // namespace

std::vector<std::string> throttle_words(std::uint64_t reasons) {
  std::vector<std::string> found;
  for (const Word& word : words) {
    if (reasons & word.bit) found.emplace_back(word.text);
  }
  return found;
}

TelemetryFlags telemetry_flags(const CaseRecord& record) {
  TelemetryFlags flags;
  std::uint64_t reasons = 0;
  double energy = 0;
  bool counted = false;
  for (const RankRecord& rank : record.ranks) {
    add_throttling(rank, flags, reasons);
    for (const double others : within_loop(rank, "other_processes")) {
      flags.other_processes =
          std::max(flags.other_processes.value_or(0), static_cast<std::int64_t>(others));
    }
    if (const auto joules = fact(rank, "loop_energy_joules")) {
      energy += *joules;
      counted = true;
    }
  }
  flags.throttle_reasons = throttle_words(reasons);
  if (counted && std::isfinite(energy)) flags.loop_energy_joules = energy;
  return flags;
}

void add_telemetry_results(CaseRecord& row) {
  const auto flags = telemetry_flags(row);
  if (flags.throttled_share) {
    set(row.results, "throttled", *flags.throttled_share > 0);
    set(row.results, "throttled_share", *flags.throttled_share);
    set(row.results, "throttle_reasons", join(flags.throttle_reasons, ", "));
  }
  if (flags.other_processes) {
    set(row.results, "shared_gpu", *flags.other_processes > 0);
    set(row.results, "other_processes", *flags.other_processes);
  }
  std::erase_if(row.results, [](const Setting& one) { return one.name == "loop_energy_joules"; });
  if (flags.loop_energy_joules) {
    row.results.push_back({"loop_energy_joules", *flags.loop_energy_joules});
  }
}

}  // namespace trainsuite
