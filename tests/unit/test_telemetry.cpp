// NVML through a library that says what a healthy GPU does not, and what a row makes of it.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "device/telemetry.h"
#include "fake_nvml.h"
#include "result/telemetry.h"

namespace trainsuite {
namespace {

using namespace std::chrono_literals;

class WithNvml : public testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    nvml_ = Nvml::open(reason, FAKE_NVML_LIBRARY);
    ASSERT_TRUE(nvml_) << reason;
    // The state dies with the library: held open as long as the test, loaded anew for the next.
    library_ = dlopen(FAKE_NVML_LIBRARY, RTLD_NOW);
    ASSERT_NE(library_, nullptr);
    using GetState = fake_nvml::State* (*)();
    fake_ = reinterpret_cast<GetState>(dlsym(library_, "fake_nvml_state"))();
  }
  void TearDown() override {
    nvml_.reset();
    dlclose(library_);
  }
  fake_nvml::Gpu& gpu(std::size_t index) { return fake_->gpus.at(index); }

  std::shared_ptr<const Nvml> nvml_;
  void* library_ = nullptr;
  fake_nvml::State* fake_ = nullptr;
};

TEST(Nvml, AMachineWithoutItSaysWhy) {
  std::string reason;
  EXPECT_FALSE(Nvml::open(reason, "libno-such-library.so.1"));
  EXPECT_NE(reason.find("libno-such-library.so.1"), std::string::npos) << reason;
  EXPECT_FALSE(Nvml::open(reason, "libm.so.6"));
  EXPECT_NE(reason.find("no NVML"), std::string::npos) << reason;
}

TEST_F(WithNvml, StartsAndEndsTheLibrary) {
  EXPECT_TRUE(fake_->open);
  nvml_.reset();
  EXPECT_FALSE(fake_->open);
  fake_->starts = false;
  std::string reason;
  EXPECT_FALSE(Nvml::open(reason, FAKE_NVML_LIBRARY));
  EXPECT_NE(reason.find("Driver Not Loaded"), std::string::npos) << reason;
}

TEST_F(WithNvml, IdentityHasUnitsAndStates) {
  gpu(1).power_limit_milliwatts = 500000;
  gpu(1).ecc = false;
  gpu(1).mig = true;
  gpu(1).width = 8;
  const auto one = nvml_->identity(1);
  EXPECT_EQ(one.gpu, 1);
  EXPECT_EQ(one.uuid, "GPU-bbbb");
  EXPECT_EQ(one.pci_bus_id, "0000:19:00.0");
  EXPECT_EQ(one.power_limit_watts, 500);
  EXPECT_EQ(one.power_limit_default_watts, 700);
  EXPECT_EQ(one.ecc + one.mig + one.persistence, "offonon");
  EXPECT_EQ(one.compute_mode, "exclusive process");
  EXPECT_EQ(one.pcie_generation, 4);
  EXPECT_EQ(one.pcie_generation_max, 5);
  EXPECT_EQ(one.pcie_width, 8);
  EXPECT_EQ(one.pcie_width_max, 16);
  EXPECT_EQ(nvml_->index_of("GPU-bbbb"), 1);
  EXPECT_EQ(nvml_->index_of("GPU-zzzz"), -1);
  EXPECT_EQ(nvml_->driver_version(), "580.1");
}

TEST_F(WithNvml, LinksAreNamedAsNvidiaSmiDoes) {
  EXPECT_EQ(nvml_->link(0, 1), "PHB");
  fake_->common_ancestor = 50;
  EXPECT_EQ(nvml_->link(0, 1), "SYS");
  gpu(0).active_links = 4;  // straight to GPU 1
  gpu(0).link_to = 1;
  EXPECT_EQ(nvml_->link(0, 1), "NV4");
  gpu(0).active_links = 18;  // to switches that have no GPU's address
  gpu(0).link_to = -1;
  EXPECT_EQ(nvml_->link(0, 1), "SYS");
  gpu(0).peers_by_nvlink = gpu(1).peers_by_nvlink = true;
  EXPECT_EQ(nvml_->link(0, 1), "NV18");
}

TEST_F(WithNvml, AReadingIsInWattsAndCountsOthers) {
  gpu(0).processes = {11, 12, 13};
  gpu(0).process_count = 3;
  const auto reading = nvml_->read(0, {12});
  EXPECT_DOUBLE_EQ(reading.power_watts, 345.678);
  EXPECT_EQ(reading.sm_clock_mhz, 1980);
  EXPECT_EQ(reading.memory_clock_mhz, 3201);
  EXPECT_EQ(reading.temperature_celsius, 45);
  EXPECT_EQ(reading.other_processes, 2);
  EXPECT_DOUBLE_EQ(nvml_->energy_joules(0), 1000);
  gpu(0).tells_energy = false;
  EXPECT_TRUE(std::isnan(nvml_->energy_joules(0)));
}

TEST(OtherProcesses, OfAContainerAreCounted) {
  EXPECT_EQ(other_processes({}, {7}), 0);  // our context is not made yet
  EXPECT_EQ(other_processes({7}, {7}), 0);
  EXPECT_EQ(other_processes({7, 8}, {7, 9}), 1);
  EXPECT_EQ(other_processes({70001}, {7}), 0);  // ours, under the host's number
  EXPECT_EQ(other_processes({70001, 70002, 5}, {7, 8}), 1);
  EXPECT_EQ(other_processes({70001, 70001}, {7}), 0);  // listed once a context
  EXPECT_EQ(other_processes({7, 7, 7}, {7}), 0);
  EXPECT_EQ(other_processes({7, 7, 5, 5}, {7, 8}), 1);
}

/// Waits for what the sampler will do; a machine may be as slow as it likes.
bool comes(const std::function<bool()>& condition) {
  for (const auto end = std::chrono::steady_clock::now() + 60s;
       std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(1ms)) {
    if (condition()) return true;
  }
  return false;
}

const Series* find(const RankRecord& record, const std::string& name) {
  for (const auto& series : record.telemetry) {
    if (series.name == name) return &series;
  }
  return nullptr;
}

TEST_F(WithNvml, SamplesAndEnergyOfTheLoopReachTheRow) {
  Telemetry telemetry({nvml_, 1, {7}, true}, {.interval_seconds = 2e-3, .energy_seconds = 1e-3});
  gpu(1).throttle_reasons = 0x40;  // before the loop: not the loop's business
  telemetry.start();
  const auto wait_for_samples = [&] {
    const int before = gpu(1).reads;
    ASSERT_TRUE(comes([&] { return gpu(1).reads >= before + 3; }));
  };
  wait_for_samples();
  gpu(1).throttle_reasons = 0x1;  // idle is no throttling
  wait_for_samples();
  telemetry.begin_loop();
  wait_for_samples();
  gpu(1).throttle_reasons = 0x4;
  gpu(1).processes = {7, 4242};
  gpu(1).process_count = 2;
  gpu(1).energy_millijoules += 2500000;
  wait_for_samples();
  telemetry.end_loop();
  gpu(1).energy_millijoules += 999000;
  RankRecord record;
  telemetry.stop(record);

  for (const char* name :
       {"sample_seconds", "power_watts", "sm_clock_mhz", "memory_clock_mhz", "temperature_celsius",
        "throttle_reasons", "other_processes", "host_load", "host_ram_used_bytes"}) {
    ASSERT_NE(find(record, name), nullptr) << name;
    EXPECT_EQ(find(record, name)->values.size(), find(record, "sample_seconds")->values.size());
  }
  const auto& seconds = find(record, "sample_seconds")->values;
  EXPECT_TRUE(std::is_sorted(seconds.begin(), seconds.end()));
  EXPECT_GE(seconds.front(), 0);
  EXPECT_DOUBLE_EQ(find(record, "power_watts")->values.back(), 345.678);
  EXPECT_EQ(find(record, "power_watts")->unit, "W");
  EXPECT_GT(find(record, "host_ram_used_bytes")->values.back(), 1e6);

  CaseRecord row;
  row.ranks = {record};
  const auto flags = telemetry_flags(row);
  EXPECT_EQ(flags.throttle_reasons, (std::vector<std::string>{"power cap"}));
  EXPECT_GT(flags.throttled_share.value(), 0);
  EXPECT_LT(flags.throttled_share.value(), 1);
  EXPECT_EQ(flags.other_processes, 1);
  EXPECT_DOUBLE_EQ(flags.loop_energy_joules.value(), 2500);
}

TEST_F(WithNvml, EnergyOfAShortLoopOrAnotherRanksGpuIsNotTold) {
  const auto energy_known = [&](double energy_seconds, bool counts) {
    Telemetry telemetry({nvml_, 0, {}, counts},
                        {.interval_seconds = 1, .energy_seconds = energy_seconds});
    telemetry.start();
    telemetry.begin_loop();
    telemetry.end_loop();
    CaseRecord row;
    row.ranks.emplace_back();
    telemetry.stop(row.ranks[0]);
    return telemetry_flags(row).loop_energy_joules.has_value();
  };
  EXPECT_TRUE(energy_known(0, true));
  EXPECT_FALSE(energy_known(10, true));
  EXPECT_FALSE(energy_known(0, false));
  gpu(0).tells_energy = false;
  EXPECT_FALSE(energy_known(0, true));
}

TEST(Telemetry, WithoutNvmlTheHostAloneIsSampled) {
  Telemetry telemetry({});
  telemetry.start();
  RankRecord record;
  telemetry.stop(record);
  EXPECT_NE(find(record, "host_load"), nullptr);
  EXPECT_EQ(find(record, "power_watts"), nullptr);
  EXPECT_EQ(find(record, "throttle_reasons"), nullptr);
  EXPECT_TRUE(record.facts.empty());  // no loop was marked
}

RankRecord sampled(std::vector<double> masks, std::vector<double> others) {
  RankRecord rank;
  rank.facts = {{"telemetry_loop_begin_seconds", 1.0}, {"telemetry_loop_end_seconds", 2.0}};
  std::vector<double> seconds;
  for (std::size_t i = 0; i < masks.size(); ++i)
    seconds.push_back(1.0 + 0.25 * static_cast<double>(i));
  rank.telemetry = {{"sample_seconds", "s", seconds},
                    {"throttle_reasons", "1", std::move(masks)},
                    {"other_processes", "1", std::move(others)}};
  return rank;
}

bool has_result(const CaseRecord& row, const std::string& name) {
  return std::any_of(row.results.begin(), row.results.end(),
                     [&](const Setting& one) { return one.name == name; });
}

TEST(TelemetryFlags, TakeTheWorstRankAndJoinReasons) {
  CaseRecord row;
  row.ranks = {sampled({0, 0x20, 0x20, 1, 0, 0x80}, {0, 0, 0, 0, 0, 9}),
               sampled({0x4, 2, 0, 0, 0, 0}, {0, NAN, 3, 1, 0, 0})};
  row.results = {{"loop_energy_joules", 5.0}};
  row.ranks[0].facts.push_back({"loop_energy_joules", 5.0});
  row.ranks[1].facts.push_back({"loop_energy_joules", 4.0});
  auto flags = telemetry_flags(row);  // the sixth sample comes after the loop
  EXPECT_DOUBLE_EQ(flags.throttled_share.value(), 0.4);
  EXPECT_EQ(flags.throttle_reasons,
            (std::vector<std::string>{"power cap", "thermal slowdown (software)"}));
  EXPECT_EQ(flags.other_processes, 3);
  add_telemetry_results(row);
  EXPECT_EQ(std::count_if(row.results.begin(), row.results.end(),
                          [](const auto& one) { return one.name == "loop_energy_joules"; }),
            1);
  EXPECT_DOUBLE_EQ(telemetry_flags(row).loop_energy_joules.value(), 9);
  for (const char* name :
       {"throttled", "throttled_share", "throttle_reasons", "shared_gpu", "other_processes"}) {
    EXPECT_TRUE(has_result(row, name)) << name;
  }
}

TEST(TelemetryFlags, AreAbsentWhereNothingWasSampled) {
  CaseRecord row;
  row.ranks = {RankRecord{}};
  add_telemetry_results(row);
  EXPECT_TRUE(row.results.empty());
}

}  // namespace
}  // namespace trainsuite
