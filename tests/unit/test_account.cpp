// What a step of the ddp suite takes, against counts by hand and peaks measured on an H200.
#include <gtest/gtest.h>

#include "../../suites/ddp.h"
#include "run/plan.h"

namespace trainsuite {
namespace {

constexpr double gib = 1024.0 * 1024.0 * 1024.0;

Case case_of(const std::string& size, const std::string& recipe) {
  Options options;
  for (auto& one : ddp_cases(options, /*cuda=*/true, /*ranks=*/1)) {
    if (one.size != size || one.recipe != recipe) continue;
    one.loss_kernel = one.block_kernel = "fused";
    return one;
  }
  throw std::runtime_error("no such case");
}

TEST(Account, CountsOf124M) {
  const auto account = ddp_account(case_of("124m", "1gpu"));
  // Embeddings (50,304 + 1,024) x 768, twelve blocks of 12 x 768^2 + 13 x 768, a norm of 2 x 768.
  constexpr std::int64_t parameters = 51'328 * 768 + 12 * (12 * 768 * 768 + 13 * 768) + 2 * 768;
  static_assert(parameters == 124'475'904);
  EXPECT_EQ(account.weight_bytes, 6 * parameters);     // fp32 and bf16 copies
  EXPECT_EQ(account.optimizer_bytes, 8 * parameters);  // two moments in fp32
  // 6 x (12 x 12 x 768^2 + 50,304 x 768) + 12 x 12 x 768 x 1,024, halved or not; 8,192 tokens.
  EXPECT_DOUBLE_EQ(account.flops, 8192 * (741'408'768.0 + 56'623'104.0));
  EXPECT_DOUBLE_EQ(account.flops_uncausal, 8192 * (741'408'768.0 + 2 * 56'623'104.0));
}

TEST(Account, PeaksAreThoseMeasuredOnAnH200) {
  const std::vector<std::tuple<const char*, const char*, double>> measured = {
      {"124m", "1gpu", 5.12},  {"124m", "1gpu-accumulate4", 5.59},
      {"124m", "plain", 5.59}, {"124m", "bf16", 5.82},
      {"355m", "1gpu", 12.40}, {"355m", "plain", 13.72},
      {"355m", "bf16", 14.38}, {"355m", "both", 14.38}};
  for (const auto& [size, recipe, peak] : measured) {
    const auto account = ddp_account(case_of(size, recipe));
    ASSERT_TRUE(account.peak_bytes());
    EXPECT_NEAR(static_cast<double>(*account.peak_bytes()) / gib, peak, 0.03 * peak)
        << size << " " << recipe;
  }
}

TEST(Account, LeastBytesAreBelowWhatAStepCanMove) {
  // docs/measuring.md: a 124M step takes 18.0 ms at 4.3 TB/s at most, and no less than AdamW's
  // 28 bytes and the copies' 6 bytes a parameter.
  const auto bytes = ddp_account(case_of("124m", "1gpu")).least_bytes.value();
  EXPECT_LT(bytes, 18.0e-3 * 4.3e12);
  EXPECT_GT(bytes, (28 + 6) * 124'475'904.0);
  // Four micro-batches move activations and weights four times, the optimizer's state once.
  const auto four = ddp_account(case_of("124m", "1gpu-accumulate4")).least_bytes.value();
  EXPECT_GT(four, 2 * bytes);
  EXPECT_LT(four, 4 * bytes);
}

TEST(Account, WithPyTorchsKernelsTemporariesAreNotKnown) {
  auto one = case_of("124m", "1gpu");
  one.block_kernel = "reference";
  const auto account = ddp_account(one);
  EXPECT_FALSE(account.activation_bytes || account.peak_bytes());
  EXPECT_EQ(account.least_bytes, ddp_account(case_of("124m", "1gpu")).least_bytes);
  EXPECT_GT(account.flops, 0);
  one.precision = "fp32";
  EXPECT_EQ(ddp_account(one).weight_bytes, 4 * 124'475'904LL);
}

TEST(Account, IsRecordedUnderItsNames) {
  auto one = case_of("124m", "1gpu");
  one.account = ddp_account(one);
  std::string names;
  for (const auto& setting : case_settings(one)) names += setting.name + " ";
  for (const char* name :
       {"flops_per_step", "flops_per_step_uncausal", "predicted_weight_bytes",
        "predicted_gradient_bytes", "predicted_optimizer_bytes", "predicted_activation_bytes",
        "predicted_bytes", "least_bytes_per_step"}) {
    EXPECT_NE(names.find(std::string(name) + " "), std::string::npos) << name;
  }
}

TEST(ExpectedSeconds, ShareThePeakAmongRanks) {
  StepAccount account;
  account.flops = 4e12;
  EXPECT_DOUBLE_EQ(expected_seconds(account, 10, 2, 1e12), 10 * 4e12 / (2 * 1e12 * 0.4));
}

}  // namespace
}  // namespace trainsuite
