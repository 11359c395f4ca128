#include "launch/stop_gate.h"

namespace trainsuite {

void StopGate::begin_case(std::int64_t epoch, bool trains) {
  const std::lock_guard lock(mutex_);
  epoch_ = epoch;
  trains_ = trains;
  next_ = 0;
  frozen_ = false;
  stop_step_.reset();
}

StopGate::Frozen StopGate::freeze() {
  const std::lock_guard lock(mutex_);
  frozen_ = true;
  return {epoch_, trains_ ? next_ : not_in_it};
}

bool StopGate::frozen() {
  const std::lock_guard lock(mutex_);
  return frozen_;
}

void StopGate::decide(std::int64_t epoch, std::int64_t stop_step) {
  const std::lock_guard lock(mutex_);
  if (epoch == epoch_) stop_step_ = stop_step;
}

bool StopGate::stops_before(std::int64_t index,
                            const std::function<void(const std::function<bool()>&)>& wait) {
  const auto decided = [this] {
    const std::lock_guard lock(mutex_);
    return stop_step_.has_value();
  };
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (!frozen_ || (stop_step_ && index < *stop_step_)) {
        next_ = index + 1;
        return false;
      }
      if (stop_step_) return true;
    }
    wait(decided);
  }
}

}  // namespace trainsuite
