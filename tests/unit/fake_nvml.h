#pragma once
// A management library that says what a test wants: what no healthy machine shows.
#include <array>
#include <atomic>
#include <string>

namespace fake_nvml {

constexpr int most_gpus = 4, most_links = 18, most_processes = 8;

struct Gpu {
  const char* uuid = "";
  unsigned bus = 0;
  std::atomic<unsigned> power_milliwatts{345678};
  std::atomic<unsigned long long> energy_millijoules{1000000};
  std::atomic<unsigned long long> throttle_reasons{0};
  std::atomic<bool> tells_energy{true};
  unsigned sm_clock = 1980, memory_clock = 3201, temperature = 45;
  unsigned power_limit_milliwatts = 700000;
  bool ecc = true, mig = false, persistence = true;
  unsigned width = 16;
  int active_links = 0;          // NVLink links that are up
  int link_to = -1;              // index of the GPU that they lead to, -1: a switch
  bool peers_by_nvlink = false;  // what the driver says of peers
  std::array<unsigned, most_processes> processes{};
  std::atomic<int> process_count{0};
  std::atomic<int> reads{0};  // of its power
};

struct State {
  int count = 2;
  bool starts = true;
  bool open = false;
  std::array<Gpu, most_gpus> gpus;
  unsigned common_ancestor = 30;  // nvmlGpuTopologyLevel_t
};

}  // namespace fake_nvml

/// The one state of the loaded library.
extern "C" fake_nvml::State* fake_nvml_state();
