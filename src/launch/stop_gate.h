#pragma once
// How ranks agree on the step before which they stop, without a collective in the loop.
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

namespace trainsuite {

/// The training thread passes a gate before each step. When a stop is known, the watchdog freezes
/// the gate: the step under way ends, and its rank tells the next one's index to rank 0, which
/// takes the largest of all ranks. A rank that is behind goes on to that step; so all have made the
/// same steps, and the same communications, when they stop. Any thread may call any function.
class StopGate {
 public:
  static constexpr std::int64_t not_in_it = -1;  // next step of a rank that does not train

  struct Frozen {
    std::int64_t epoch = 0;
    std::int64_t next = not_in_it;  // the first step that this rank has not begun
  };

  void begin_case(std::int64_t epoch, bool trains);
  Frozen freeze();
  /// A stop is known: what only prepares the step under way may end at once, on all ranks alike.
  bool frozen();
  /// The agreed step of the case `epoch`; ignored in any other.
  void decide(std::int64_t epoch, std::int64_t stop_step);

  /// Before step `index`: true where all ranks stop before it. While the others' word is awaited
  /// `wait` is called with what is awaited; it returns when that is true, or throws.
  bool stops_before(std::int64_t index,
                    const std::function<void(const std::function<bool()>&)>& wait);

 private:
  std::mutex mutex_;
  std::int64_t epoch_ = 0;
  bool trains_ = false;
  std::int64_t next_ = 0;  // the first step not begun
  bool frozen_ = false;
  std::optional<std::int64_t> stop_step_;
};

}  // namespace trainsuite
