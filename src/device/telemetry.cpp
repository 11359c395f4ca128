#include "device/telemetry.h"

#include <chrono>
#include <fstream>
#include <limits>
#include <string>

namespace trainsuite {

double host_load() {
  double load = NAN;
  std::ifstream("/proc/loadavg") >> load;
  return load;
}

double host_ram_used_bytes() {
  constexpr double bytes_per_kib = 1024;
  double total = NAN, available = NAN;
  std::ifstream file("/proc/meminfo");
  std::string name;
  for (double kib = 0; file >> name >> kib;) {
    if (name == "MemTotal:") total = kib;
    if (name == "MemAvailable:") available = kib;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return (total - available) * bytes_per_kib;
}

void Telemetry::start() {
  stop();
  start_ = Clock::now();
  ending_ = false;
  loop_begin_ = loop_end_ = {};
  seconds_.clear();
  load_.clear();
  ram_bytes_.clear();
  readings_.clear();
  thread_ = std::thread([this] { run(); });
}

Telemetry::Mark Telemetry::mark_now() const {
  const bool counted = source_.nvml && source_.gpu >= 0;
  return {true, since_start(), counted ? source_.nvml->energy_joules(source_.gpu) : NAN};
}

// The energy is read last before the loop and first after it.
void Telemetry::begin_loop() { loop_begin_ = mark_now(); }
void Telemetry::end_loop() { loop_end_ = mark_now(); }

void Telemetry::sample() {
  seconds_.push_back(since_start());
  load_.push_back(host_load());
  ram_bytes_.push_back(host_ram_used_bytes());
  if (source_.nvml && source_.gpu >= 0) {
    readings_.push_back(source_.nvml->read(source_.gpu, source_.own_processes));
  }
}

void Telemetry::run() {
  auto next = start_;
  const auto interval = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(timing_.interval_seconds));
  std::unique_lock lock(mutex_);
  while (!ending_) {
    lock.unlock();
    sample();
    lock.lock();
    next = std::max(next + interval, Clock::now());  // a late sample is not followed by a burst
    wake_.wait_until(lock, next, [this] { return ending_; });
  }
}

void Telemetry::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Telemetry::stop(RankRecord& record) {
  stop();
  const auto add = [&](const char* name, const char* unit, std::vector<double> values) {
    record.telemetry.push_back({name, unit, std::move(values)});
  };
  const auto column = [&](const char* name, const char* unit, double GpuReading::*field) {
    std::vector<double> values;
    bool known = false;
    for (const GpuReading& reading : readings_) {
      values.push_back(reading.*field);
      known = known || !std::isnan(reading.*field);
    }
    if (known) add(name, unit, std::move(values));
  };
  add("sample_seconds", "s", seconds_);
  add("host_load", "1", load_);
  add("host_ram_used_bytes", "byte", ram_bytes_);
  column("power_watts", "W", &GpuReading::power_watts);
  column("sm_clock_mhz", "MHz", &GpuReading::sm_clock_mhz);
  column("memory_clock_mhz", "MHz", &GpuReading::memory_clock_mhz);
  column("temperature_celsius", "degC", &GpuReading::temperature_celsius);
  column("throttle_reasons", "1", &GpuReading::throttle_reasons);
  column("other_processes", "1", &GpuReading::other_processes);
  if (!loop_begin_.set || !loop_end_.set) return;
  record.facts.push_back({"telemetry_loop_begin_seconds", loop_begin_.seconds});
  record.facts.push_back({"telemetry_loop_end_seconds", loop_end_.seconds});
  const bool long_enough = loop_end_.seconds - loop_begin_.seconds >= timing_.energy_seconds;
  if (long_enough && source_.nvml && source_.gpu >= 0 && source_.counts_energy) {
    record.facts.push_back({"loop_energy_joules", loop_end_.joules - loop_begin_.joules});
  }
}

}  // namespace trainsuite
