#pragma once
// Samples a rank's GPU and host beside the training, in a thread of its own.
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "device/nvml.h"
#include "result/record.h"

namespace trainsuite {

/// What a rank samples. Without NVML, or on a CPU, only the host.
struct TelemetrySource {
  std::shared_ptr<const Nvml> nvml;
  int gpu = -1;                    // NVML's index, -1: none
  std::vector<int> own_processes;  // the ranks of this run on that GPU
  bool counts_energy = true;       // false: another rank of the same GPU does
};

struct TelemetryTiming {
  double interval_seconds = 0.15;  // more than five samples a second
  double energy_seconds = 10;      // of a loop whose energy is told: the counter moves in steps
};

class Telemetry {
 public:
  explicit Telemetry(TelemetrySource source, TelemetryTiming timing = {})
      : source_(std::move(source)), timing_(timing) {}
  ~Telemetry() { stop(); }
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

  /// Begins a case: takes a sample now and then every interval. Ends what was under way.
  void start();
  /// The timed loop begins or ends now: outside of what is timed, as it reads the energy counter.
  void begin_loop();
  void end_loop();
  /// Ends sampling and adds to `record`: its telemetry series, and the facts
  /// telemetry_loop_begin_seconds and _end_seconds (since start()) and, for loops of at least
  /// `energy_seconds` on a GPU whose energy this rank counts, loop_energy_joules (NaN
  /// where the GPU does not tell).
  void stop(RankRecord& record);
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  struct Mark {
    bool set = false;
    double seconds = 0, joules = NAN;
  };
  double since_start() const {
    return std::chrono::duration<double>(Clock::now() - start_).count();
  }
  Mark mark_now() const;
  void sample();
  void run();

  TelemetrySource source_;
  TelemetryTiming timing_;
  Clock::time_point start_;
  Mark loop_begin_, loop_end_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::vector<double> seconds_, load_, ram_bytes_;
  std::vector<GpuReading> readings_;
};

/// Runnable processes of the host averaged over a minute, NaN where /proc does not say.
double host_load();
/// RAM of the host in use: total less available; NaN where /proc does not say.
double host_ram_used_bytes();

}  // namespace trainsuite
