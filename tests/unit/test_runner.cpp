// What becomes of the ranks' outcomes: the way to rank 0, the row, the exit status.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "run/outcome.h"
#include "run/runner.h"

namespace {

using namespace trainsuite;

Case plain() {
  Case one;
  one.suite = "ddp";
  one.size = "tiny";
  one.recipe = "plain";
  one.ranks = 2;
  one.warmup = 1;
  one.steps = 2;
  return one;
}

RankRecord rank(int number, double setup_seconds, std::int64_t peak, std::int64_t hash) {
  return {number,
          {{"step_seconds", "s", {0.3, 0.1, 0.2}}},
          {{"setup_seconds", setup_seconds},
           {"peak_allocated_bytes", peak},
           {"final_weights_hash", hash}}};
}

template <class T>
T value(const Settings& settings, const std::string& name) {
  for (const auto& setting : settings) {
    if (setting.name == name) return std::get<T>(setting.value);
  }
  throw std::runtime_error("no " + name);
}

TEST(Outcome, SurvivesTheWayToRankZero) {
  Outcome sent{"ok", "ä \"reason\"", rank(3, 0.5, 1LL << 40, -7)};
  sent.record.series.push_back(
      {"loss", "1", {std::nan(""), std::numeric_limits<double>::infinity(), -0.0}});
  sent.record.facts.push_back({"flag", true});
  sent.record.facts.push_back({"text", std::string("x")});
  const auto got = unpack(pack(sent));
  EXPECT_EQ(got.status, "ok");
  EXPECT_EQ(got.reason, sent.reason);
  EXPECT_EQ(got.record.rank, 3);
  ASSERT_EQ(got.record.series.size(), 2U);
  EXPECT_EQ(got.record.series[0].values, sent.record.series[0].values);
  EXPECT_TRUE(std::isnan(got.record.series[1].values[0]));
  EXPECT_TRUE(std::isinf(got.record.series[1].values[1]));
  EXPECT_EQ(value<double>(got.record.facts, "setup_seconds"), 0.5);
  EXPECT_EQ(value<std::int64_t>(got.record.facts, "peak_allocated_bytes"), 1LL << 40);
  EXPECT_EQ(value<std::int64_t>(got.record.facts, "final_weights_hash"), -7);
  EXPECT_TRUE(value<bool>(got.record.facts, "flag"));
  EXPECT_EQ(value<std::string>(got.record.facts, "text"), "x");
}

TEST(Outcome, OfALostDeviceNamesTheLossFirst) {
  const Outcome seen{"failed",
                     "training: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling "
                     "`cublasGemmEx(...)`\nCUDA kernel errors might be reported at some other call",
                     {},
                     "training",
                     21};
  const auto lost = with_device(seen, "GPU lost its CUDA context: device-side assert triggered");
  EXPECT_EQ(lost.lost, "GPU lost its CUDA context: device-side assert triggered");
  EXPECT_EQ(
      lost.reason,
      "GPU lost its CUDA context: device-side assert triggered; first seen at: training: CUDA "
      "error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(...)`");
  EXPECT_EQ(lost.step, 21);
  EXPECT_EQ(with_device(seen, "").reason, seen.reason);
  auto late = seen;
  late.status =
      "timeout";  // the row's reason is the limit; what became of the device is told apart
  EXPECT_EQ(with_device(late, "GPU did not finish its work within 10 s").reason, seen.reason);
}

TEST(Assemble, TakesTheSlowestAndLargestRankAndRankZerosHash) {
  const auto row = assemble(plain(), 4, {rank(0, 0.5, 100, 9), rank(1, 0.7, 50, 9)});
  EXPECT_EQ(row.status, "ok");
  EXPECT_EQ(row.repeat, 4);
  EXPECT_EQ(row.warmup, (std::vector<std::uint8_t>{1, 0, 0}));
  EXPECT_EQ(value<double>(row.results, "setup_seconds"), 0.7);
  EXPECT_EQ(value<std::int64_t>(row.results, "peak_allocated_bytes"), 100);
  EXPECT_EQ(value<std::int64_t>(row.results, "final_weights_hash"), 9);
  EXPECT_TRUE(value<bool>(row.checks, "replicas_equal"));
}

TEST(Assemble, FailsARowWhoseReplicasDiffer) {
  const auto row = assemble(plain(), 0, {rank(0, 1, 1, 9), rank(1, 1, 1, 8)});
  EXPECT_EQ(row.status, "failed");
  EXPECT_FALSE(value<bool>(row.checks, "replicas_equal"));
  EXPECT_NE(row.reason.find("replicas"), std::string::npos);
}

TEST(Assemble, DoesNotCompareRanksThatDoNotCommunicate) {
  auto one = plain();
  one.communicates = false;
  const auto row = assemble(one, 0, {rank(0, 1, 1, 9), rank(1, 1, 1, 8)});
  EXPECT_EQ(row.status, "ok");
  EXPECT_TRUE(row.checks.empty());
}

TEST(ExitStatus, IsOneForAFailureOrATimeout) {
  const auto status = [](const std::string& text) {
    CaseRecord row;
    row.status = text;
    CaseRecord fine;
    fine.status = "ok";
    return exit_status({fine, row});
  };
  EXPECT_EQ(status("ok"), 0);
  EXPECT_EQ(status("oom"), 0);
  EXPECT_EQ(status("skipped"), 0);
  EXPECT_EQ(status("failed"), 1);
  EXPECT_EQ(status("timeout"), 1);
}

}  // namespace
