#include "device/step_clock.h"

#include <c10/cuda/CUDAStream.h>

#include <chrono>

#include "core/check_cuda.h"

namespace trainsuite {
namespace {

using HostTime = std::chrono::steady_clock::time_point;

double seconds_between(HostTime from, HostTime to) {
  return std::chrono::duration<double>(to - from).count();
}

/// What a mark ended: a phase, or the gap before a step's start.
struct Mark {
  int phase = -1;  // -1: start of a step or end of the loop
  HostTime host;
};

/// The bookkeeping that both clocks share; a backend supplies the time between two marks.
class MarkClock : public StepClock {
 public:
  MarkClock(std::int64_t steps, std::int64_t marks_per_step) : steps_(steps) {
    marks_.reserve(static_cast<size_t>(steps * (marks_per_step + 1) + 1));
  }
  void begin_step() override { push(-1); }
  void mark(Phase phase) override { push(static_cast<int>(phase)); }
  void end_loop() override { push(-1); }

  StepTimes read() override {
    std::vector<size_t> starts;
    for (size_t i = 0; i < marks_.size(); ++i) {
      if (marks_[i].phase < 0) starts.push_back(i);
    }
    if (starts.size() != static_cast<size_t>(steps_) + 1) {
      fail("step clock: {} step marks for {} steps", starts.size(), steps_);
    }
    StepTimes times;
    for (auto& phase : times.phase_seconds) phase.assign(static_cast<size_t>(steps_), 0.0);
    for (size_t step = 0; step + 1 < starts.size(); ++step) {
      const size_t from = starts[step], to = starts[step + 1];
      times.step_seconds.push_back(elapsed(from, to));
      times.host_seconds.push_back(seconds_between(marks_[from].host, marks_[to].host));
      for (size_t i = from + 1; i < to; ++i) {
        times.phase_seconds[static_cast<size_t>(marks_[i].phase)][step] += elapsed(i - 1, i);
      }
    }
    return times;
  }

  const char* issuing() const override {
    static constexpr const char* next[] = {"forward", "backward", "gradient sync", "optimizer",
                                           "data"};  // after the mark of each phase
    if (marks_.empty() || marks_.back().phase < 0) return "data";
    return next[marks_.back().phase];
  }

 protected:
  virtual double elapsed(size_t from, size_t to) = 0;
  virtual void push(int phase) { marks_.push_back({phase, std::chrono::steady_clock::now()}); }
  std::vector<Mark> marks_;

 private:
  std::int64_t steps_;
};

class HostClock final : public MarkClock {
 public:
  using MarkClock::MarkClock;

 private:
  double elapsed(size_t from, size_t to) override {
    return seconds_between(marks_[from].host, marks_[to].host);
  }
};

/// Events are made before the loop, recorded in it and read after it.
class CudaClock final : public MarkClock {
 public:
  CudaClock(std::int64_t steps, std::int64_t marks_per_step) : MarkClock(steps, marks_per_step) {
    events_.resize(static_cast<size_t>(steps * (marks_per_step + 1) + 1), nullptr);
    for (auto& event : events_) check_cuda(cudaEventCreate(&event), "cudaEventCreate");
  }
  ~CudaClock() override {
    for (auto& event : events_) {
      if (event) cudaEventDestroy(event);
    }
  }

 private:
  void push(int phase) override {
    if (marks_.size() == events_.size()) fail("step clock: more marks than were planned");
    check_cuda(cudaEventRecord(events_[marks_.size()], c10::cuda::getCurrentCUDAStream()),
               "cudaEventRecord");
    MarkClock::push(phase);
  }
  double elapsed(size_t from, size_t to) override {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, events_[from], events_[to]),
               "cudaEventElapsedTime");
    return milliseconds * 1e-3;
  }
  std::vector<cudaEvent_t> events_;
};

class DisabledClock final : public StepClock {
 public:
  void begin_step() override {}
  void mark(Phase) override {}
  void end_loop() override {}
  StepTimes read() override { return {}; }
};

}  // namespace

std::unique_ptr<StepClock> make_step_clock(bool cuda, std::int64_t steps,
                                           std::int64_t marks_per_step, bool enabled) {
  if (!enabled) return std::make_unique<DisabledClock>();
  if (cuda) return std::make_unique<CudaClock>(steps, marks_per_step);
  return std::make_unique<HostClock>(steps, marks_per_step);
}

}  // namespace trainsuite
