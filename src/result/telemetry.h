#pragma once
// What the telemetry of a row says about its trustworthiness. Pure arithmetic over records.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "result/record.h"

namespace trainsuite {

/// The one reason that is usual: at full load a GPU takes what its power limit allows.
inline constexpr const char* power_cap = "power cap";

/// Of NVML's bit mask of clock event reasons, those that say that a GPU ran slower than it could,
/// in words: "power cap", "thermal slowdown (hardware)". Idle and clocks that were set are none.
std::vector<std::string> throttle_words(std::uint64_t reasons);

/// Over the samples within the timed loop (facts telemetry_loop_begin_seconds and _end_seconds) of
/// all ranks. Absent where nothing of the kind was sampled.
struct TelemetryFlags {
  std::optional<double> throttled_share;        // of the worst rank's samples, 0..1
  std::vector<std::string> throttle_reasons;    // each once, of all ranks
  std::optional<std::int64_t> other_processes;  // most seen at once on any rank's GPU
  std::optional<double> loop_energy_joules;     // of all GPUs of the row together
};
TelemetryFlags telemetry_flags(const CaseRecord& record);

/// Adds the flags to the row's results: throttled, throttled_share, throttle_reasons, shared_gpu,
/// other_processes, loop_energy_joules (which replaces the largest rank's).
void add_telemetry_results(CaseRecord& row);

}  // namespace trainsuite
