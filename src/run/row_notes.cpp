#include "run/row_notes.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "core/text.h"
#include "result/statistics.h"
#include "result/steadiness.h"
#include "result/telemetry.h"
#include "run/speed_up.h"

namespace trainsuite {
namespace {

constexpr double worth_telling = 0.02;  // of a step, that others wait for a rank

void add_steadiness(const CaseRecord& record, std::vector<std::string>& notes) {
  // Steps of different problems differ.
  if (!record.ranks.empty() && find_series(record.ranks[0], "problem_size")) return;
  const auto steps = measured_steps(record);
  if (const auto found = trend(steps); found && found->found()) {
    notes.push_back(fmt::format("not steady: steps became {:.1f}% {} from the first to the last",
                                std::fabs(found->change) * 100,
                                found->change > 0 ? "slower" : "faster"));
  }
  const auto odd = outliers(steps);
  if (odd.slow + odd.fast > 0) {
    notes.push_back(fmt::format(
        "{} of {} steps are outliers (beyond 3 interquartile ranges; kept): {} slow, {} fast",
        odd.slow + odd.fast, odd.of, odd.slow, odd.fast));
  }
  const auto late = straggler(record);
  if (late && !steps.empty() && late->imposed_seconds > worth_telling * quantile(steps, 0.5)) {
    notes.push_back(fmt::format("the other ranks wait {:.2f} ms a step for rank {}",
                                late->imposed_seconds * 1e3, late->rank));
  }
}

void add_telemetry(const CaseRecord& record, std::vector<std::string>& notes) {
  const auto flags = telemetry_flags(record);
  if (flags.throttled_share.value_or(0) > 0) {
    const auto reasons = join(flags.throttle_reasons, ", ");
    const double percent = *flags.throttled_share * 100;
    notes.push_back(
        reasons == power_cap
            ? fmt::format(
                  "at its power limit in {:.0f}% of the samples ({}), as is usual under full"
                  " load: the clock is what the limit allows",
                  percent, reasons)
            : fmt::format("throttled in {:.0f}% of the samples: {}", percent, reasons));
  }
  if (flags.other_processes.value_or(0) > 0) {
    const bool one = *flags.other_processes == 1;
    notes.push_back(fmt::format("the GPU was shared: up to {} other process{} had {} on it",
                                *flags.other_processes, one ? "" : "es",
                                one ? "a context" : "contexts"));
  }
}

/// Joules of a step and tokens of a joule, where the energy of the loop is known.
void add_energy(const CaseRecord& record, std::vector<std::string>& notes) {
  const auto joules = find_number(record.results, "loop_energy_joules");
  const auto steps = find_number(record.results, "loop_steps");
  const auto tokens = find_number(record.settings, "tokens_per_step");
  if (!joules || !steps || !tokens || !(*joules > 0)) return;
  notes.push_back(fmt::format("energy: {:.1f} J a step, {:.1f} tokens a joule", *joules / *steps,
                              *tokens * *steps / *joules));
}

}  // namespace

std::vector<std::string> row_notes(const CaseRecord& record) {
  std::vector<std::string> notes;
  if (record.status != "ok") return notes;
  add_steadiness(record, notes);
  add_telemetry(record, notes);
  add_energy(record, notes);
  for (const Setting& check : record.checks) {
    if (check.name == "below_peak" && check.value == Value(false)) {
      notes.push_back("faster than the peak of its GPUs: this row or that peak is wrong");
    }
  }
  return notes;
}

}  // namespace trainsuite
