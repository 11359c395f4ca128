#pragma once
// Times phases of steps without touching the device's queue: events are recorded in the loop and
// read after it. On a CPU the steady clock takes their place.
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace trainsuite {

enum class Phase { data, forward, backward, exposed_sync, optimizer };
inline constexpr int phase_count = 5;

/// Seconds per step, all of length steps.
struct StepTimes {
  std::vector<double> step_seconds;  // start of step i to start of step i+1 (or end of loop)
  std::vector<double> host_seconds;  // host clock between the same points
  std::array<std::vector<double>, phase_count> phase_seconds;  // summed over micro-batches
};

class StepClock {
 public:
  virtual ~StepClock() = default;
  /// Marks the start of a step, on the current stream.
  virtual void begin_step() = 0;
  /// The work since the previous mark belonged to `phase`.
  virtual void mark(Phase phase) = 0;
  /// Marks the end of the last step.
  virtual void end_loop() = 0;
  /// After the device is done: reads all marks. Throws Error where a mark is missing.
  virtual StepTimes read() = 0;
  /// What the host has begun to issue since its last mark, for messages: "forward".
  virtual const char* issuing() const { return "training"; }
};

/// A clock for `steps` steps of `marks_per_step` marks each. `enabled` false: records nothing
/// and read() gives empty vectors.
std::unique_ptr<StepClock> make_step_clock(bool cuda, std::int64_t steps,
                                           std::int64_t marks_per_step, bool enabled);

}  // namespace trainsuite
