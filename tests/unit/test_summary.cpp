#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "run/row_figures.h"
#include "run/speed_up.h"
#include "run/summary.h"

namespace trainsuite {
namespace {

using Numbers = std::vector<double>;

/// A row of `ranks` equal ranks whose measured steps all take `step_seconds`.
CaseRecord row(const std::string& recipe, std::int64_t accumulate, int ranks, double step_seconds,
               const std::string& size = "124m") {
  CaseRecord record;
  record.suite = "ddp";
  record.name = size + "-" + recipe;
  record.status = "ok";
  record.settings = {{"size", size},
                     {"recipe", recipe},
                     {"accumulate", accumulate},
                     {"wire", std::string("fp32")},
                     {"tokens_per_step", std::int64_t{1000} * accumulate * ranks}};
  record.warmup = {1, 0, 0, 0};
  for (int rank = 0; rank < ranks; ++rank) {
    record.ranks.push_back(
        {rank, {{"step_seconds", "s", {99, step_seconds, step_seconds, step_seconds}}}, {}});
  }
  return record;
}

Numbers& series(CaseRecord& record, int rank, const std::string& name) {
  auto& all = record.ranks.at(static_cast<std::size_t>(rank)).series;
  for (Series& one : all) {
    if (one.name == name) return one.values;
  }
  all.push_back({name, "s", Numbers(record.warmup.size(), std::nan(""))});
  return all.back().values;
}

void set(Settings& settings, const std::string& name, Value value) {
  for (Setting& setting : settings) {
    if (setting.name == name) setting.value = value;
  }
  settings.push_back({name, std::move(value)});
}

/// All seven recipes on two ranks; 1,000 tokens a micro-batch.
std::vector<CaseRecord> whole_run() {
  return {row("1gpu", 1, 1, 0.1),        row("1gpu-accumulate4", 4, 1, 0.32),
          row("independent", 1, 2, 0.1), row("plain", 1, 2, 0.125),
          row("bf16", 1, 2, 0.11),       row("accumulate4", 4, 2, 0.4),
          row("both", 4, 2, 0.36)};
}

TEST(SpeedUps, EachRecipeOnItsOwnBaseAndOn1gpu) {
  const auto all = speed_ups(whole_run());
  ASSERT_EQ(all.size(), 7u);
  // Rates by hand: 1gpu 10,000; 1gpu-accumulate4 12,500; plain 16,000; bf16 18,181.8;
  // accumulate4 20,000; both 22,222.2 tokens/s.
  EXPECT_EQ(all[3].own_base, "1gpu");
  EXPECT_NEAR(all[3].over_own.value(), 1.6, 1e-12);
  EXPECT_NEAR(all[3].over_1gpu.value(), 1.6, 1e-12);
  EXPECT_EQ(all[4].own_base, "1gpu");
  EXPECT_NEAR(all[4].over_own.value(), 2.0 / 1.1, 1e-12);
  EXPECT_EQ(all[5].own_base, "1gpu-accumulate4");
  EXPECT_NEAR(all[5].over_own.value(), 1.6, 1e-12);
  EXPECT_NEAR(all[5].over_1gpu.value(), 2.0, 1e-12);
  EXPECT_EQ(all[6].own_base, "1gpu-accumulate4");
  EXPECT_NEAR(all[6].over_own.value(), 0.64 / 0.36, 1e-12);
  EXPECT_NEAR(all[6].over_1gpu.value(), 0.8 / 0.36, 1e-12);
  // The bases themselves have none of their own.
  EXPECT_TRUE(all[0].own_base.empty() && !all[0].over_own);
  EXPECT_TRUE(all[1].own_base.empty() && !all[1].over_own);
  EXPECT_NEAR(all[1].over_1gpu.value(), 1.25, 1e-12);
}

TEST(SpeedUps, IndependentSumsOwnRatesAndHasAnEfficiency) {
  auto records = whole_run();
  series(records[2], 1, "step_seconds") = {99, 0.2, 0.2, 0.2};  // 10,000 + 5,000 tokens/s
  const auto all = speed_ups(records);
  EXPECT_TRUE(all[2].own_base.empty() && !all[2].over_own);
  EXPECT_NEAR(all[2].over_1gpu.value(), 1.5, 1e-12);
  EXPECT_NEAR(all[2].efficiency.value(), 0.75, 1e-12);
  for (std::size_t i : {0, 1, 3, 4, 5, 6}) EXPECT_FALSE(all[i].efficiency) << i;
}

TEST(SpeedUps, AMissingOrFailedBaseIsAbsent) {
  auto records = whole_run();
  records.erase(records.begin());  // no 1gpu
  const auto without = speed_ups(records);
  EXPECT_FALSE(without[1].over_1gpu || without[1].efficiency);  // independent
  EXPECT_FALSE(without[2].over_own || without[2].over_1gpu);    // plain
  EXPECT_TRUE(without[4].over_own && !without[4].over_1gpu);    // accumulate4
  auto failed = whole_run();
  failed[1].status = "oom";  // 1gpu-accumulate4, its times still there
  const auto after = speed_ups(failed);
  EXPECT_FALSE(after[5].over_own || after[6].over_own || after[1].over_1gpu);
  EXPECT_TRUE(after[5].over_1gpu && after[3].over_own);
}

TEST(SpeedUps, BasesAreOfTheSameSizeRepeatAndAccumulation) {
  std::vector<CaseRecord> records = {row("1gpu", 1, 1, 0.1, "124m"),
                                     row("plain", 1, 2, 0.1, "355m"),
                                     row("1gpu", 1, 1, 0.4, "355m")};
  EXPECT_NEAR(speed_ups(records)[1].over_own.value(), 8, 1e-12);
  records[2].repeat = 1;
  EXPECT_FALSE(speed_ups(records)[1].over_own);
  const std::vector<CaseRecord> eight = {row("1gpu-accumulate4", 4, 1, 0.4),
                                         row("1gpu-accumulate8", 8, 1, 0.4),
                                         row("both", 8, 2, 0.4)};
  EXPECT_EQ(speed_ups(eight)[2].own_base, "1gpu-accumulate8");
  EXPECT_NEAR(speed_ups(eight)[2].over_own.value(), 2, 1e-12);
}

TEST(RowFigures, SpreadOfRatesIsTheInverseSpreadOfTimes) {
  CaseRecord record = row("plain", 1, 2, 0.1);
  record.warmup = {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  for (int rank = 0; rank < 2; ++rank) {
    series(record, rank, "step_seconds") = {99,  .10, .11, .12, .13, .14,
                                            .15, .16, .17, .18, .19, .2};
  }
  const RowFigures figures = row_figures(record, {});
  EXPECT_NEAR(figures.step_seconds.value(), 0.15, 1e-12);
  EXPECT_NEAR(figures.tokens_per_second.value(), 2000 / 0.15, 1e-8);
  EXPECT_NEAR(figures.tokens_per_second_p10.value(), 2000 / 0.19, 1e-8);
  EXPECT_NEAR(figures.tokens_per_second_p90.value(), 2000 / 0.11, 1e-8);
  set(record.settings, "recipe", std::string("independent"));
  series(record, 1, "step_seconds") = {99, .2, .2, .2, .2, .2, .2, .2, .2, .2, .2, .2};
  const RowFigures own = row_figures(record, {});
  EXPECT_NEAR(own.tokens_per_second.value(), 1000 / 0.15 + 1000 / 0.2, 1e-8);
  EXPECT_NEAR(own.tokens_per_second_p10.value(), 1000 / 0.19 + 1000 / 0.2, 1e-8);
  EXPECT_NEAR(own.tokens_per_second_p90.value(), 1000 / 0.11 + 1000 / 0.2, 1e-8);
}

TEST(RowFigures, ExposedSyncIsTheMedianOfTheLongestWait) {
  CaseRecord record = row("plain", 1, 2, 0.1);
  EXPECT_FALSE(row_figures(record, {}).exposed_sync_seconds);
  series(record, 0, "exposed_sync_seconds") = {9, 0.01, 0.05, 0.02};
  series(record, 1, "exposed_sync_seconds") = {9, 0.03, 0.01, std::nan("")};
  EXPECT_NEAR(row_figures(record, {}).exposed_sync_seconds.value(), 0.03, 1e-12);
  set(record.settings, "wire", std::string("none"));  // nothing is communicated
  EXPECT_FALSE(row_figures(record, {}).exposed_sync_seconds);
}

SummaryFacts gpus(const std::vector<std::string>& uuids) {
  SummaryFacts facts;
  facts.cuda = true;
  facts.output_path = "results/x.h5";
  for (std::size_t rank = 0; rank < uuids.size(); ++rank) {
    RankIdentity identity;
    identity.rank = static_cast<int>(rank);
    identity.uuid = uuids[rank];
    facts.ranks.push_back(identity);
  }
  return facts;
}

TEST(RowFigures, MfuDividesByThePeakOfTheGpusThatTookPart) {
  CaseRecord record = row("plain", 1, 2, 0.1);  // 20,000 tokens/s
  record.results = {{"flops_per_token", 5e6}, {"flops_per_token_uncausal", 6e6}};
  EXPECT_FALSE(row_figures(record, gpus({"a", "b"})).mfu);  // no peak known
  set(record.results, "peak_flops", 1e11);
  EXPECT_NEAR(row_figures(record, gpus({"a", "b"})).mfu.value(), 0.5, 1e-12);
  EXPECT_NEAR(row_figures(record, gpus({"a", "b"})).mfu_uncausal.value(), 0.6, 1e-12);
  EXPECT_NEAR(row_figures(record, gpus({"a", "a"})).mfu.value(), 1.0, 1e-12);  // shared GPU
  record.ranks.pop_back();  // rank 0 alone: the other GPU idles
  EXPECT_NEAR(row_figures(record, gpus({"a", "b"})).mfu.value(), 1.0, 1e-12);
  EXPECT_FALSE(row_figures(record, gpus({"", ""})).mfu);
  SummaryFacts cpus = gpus({"", ""});
  cpus.cuda = false;  // the peak is a measured one, of a rank
  EXPECT_NEAR(row_figures(record, cpus).mfu.value(), 1.0, 1e-12);
}

TEST(RowFigures, AFailedRowHasNone) {
  CaseRecord record = row("plain", 1, 2, 0.1);
  record.results = {{"peak_allocated_bytes", std::int64_t{1} << 30}};
  record.status = "failed";
  const RowFigures figures = row_figures(record, gpus({"a", "b"}));
  EXPECT_FALSE(figures.tokens_per_second || figures.step_seconds || figures.peak_allocated_bytes);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string last_line(const std::string& text) {
  const std::string body = text.substr(0, text.find_last_not_of('\n') + 1);
  return body.substr(body.rfind('\n') + 1);
}

std::string line_of(const std::string& text, const std::string& start) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(start + " ")) return line;
  }
  return {};
}

TEST(SummaryText, RatesOfFineTuningLeavePaddingOut) {
  CaseRecord record = row("full-4x4", 1, 1, 0.1);
  set(record.results, "train_seconds", 2.0);
  record.ranks[0].series.push_back({"effective_tokens", "token", {100, 300, 200}});
  const std::string text = summary_text({record}, gpus({"a"}));
  EXPECT_TRUE(has(text, " 300 ") && has(text, "tokens that are no padding")) << text;
  EXPECT_FALSE(has(text, "over the measured steps")) << text;
}

TEST(Summary, ShowsRatesBasesPeaksAndThePathLast) {
  auto records = whole_run();
  for (CaseRecord& record : records) {
    record.results = {{"flops_per_token", 1e6},
                      {"flops_per_token_uncausal", 1.1e6},
                      {"peak_flops", 1e11},
                      {"peak_allocated_bytes", std::int64_t{3} << 29},
                      {"peak_reserved_bytes", std::int64_t{2} << 30}};
  }
  const std::string text = summary_text(records, gpus({"a", "b"}));
  const std::string line = line_of(text, "124m-accumulate4");
  for (const char* part : {"ok", "20,000", "400.00", "1.50 / 2.00", "1.600x 1gpu-accumulate4",
                           "2.000x", "10.0% (11.0%)"}) {
    EXPECT_TRUE(has(line, part)) << part << " is not in: " << line;
  }
  EXPECT_TRUE(has(text, "MFU = "));
  EXPECT_TRUE(has(text, "124m-independent: 100.0% of 2 x 1gpu"));
  EXPECT_FALSE(has(text, "Not comparable"));
  EXPECT_TRUE(has(last_line(text), "results/x.h5")) << text;
}

TEST(Summary, UnknownIsNeverZero) {
  std::vector<CaseRecord> records = {row("plain", 1, 2, 0.1)};
  const std::string text = summary_text(records, gpus({"a", "b"}));
  EXPECT_FALSE(has(text, "0.000x")) << text;
  EXPECT_FALSE(has(text, "0.00 /")) << text;
  EXPECT_FALSE(has(text, "nan")) << text;
  EXPECT_FALSE(has(text, "MFU = ")) << text;
  EXPECT_TRUE(has(text, "Not known here: exposed sync ms, peak GiB")) << text;
}

TEST(Summary, FailedRowsSayWhy) {
  auto records = whole_run();
  records[6].status = "oom";
  records[6].reason = "rank 1 ran out of memory";
  const std::string text = summary_text(records, gpus({"a", "b"}));
  EXPECT_TRUE(has(line_of(text, "124m-both"), "oom"));
  EXPECT_FALSE(has(line_of(text, "124m-both"), "tokens"));
  EXPECT_TRUE(has(text, "124m-both: oom: rank 1 ran out of memory"));
}

TEST(Summary, TinyAndCpuRowsAreMarked) {
  const std::vector<CaseRecord> tiny = {row("plain", 1, 2, 0.1, "tiny")};
  EXPECT_TRUE(has(summary_text(tiny, gpus({"a", "b"})), "Not comparable: size tiny"));
  EXPECT_TRUE(has(summary_text(tiny, {}), "Not comparable: CPU dry run of size tiny"));
  EXPECT_TRUE(has(summary_text({row("plain", 1, 2, 0.1)}, {}), "Not comparable: CPU dry run;"));
}

TEST(Summary, NoRowsStillNameThePath) {
  EXPECT_TRUE(has(last_line(summary_text({}, gpus({"a"}))), "results/x.h5"));
}

TEST(Summary, RepeatsAreToldApart) {
  std::vector<CaseRecord> records = {row("plain", 1, 2, 0.1), row("plain", 1, 2, 0.2)};
  records[1].repeat = 1;
  EXPECT_FALSE(line_of(summary_text(records, {}), "124m-plain #1").empty());
}

TEST(SummaryJson, IsOneLineAndLeavesTheUnknownOut) {
  auto records = whole_run();
  records[0].reason = "bad \xff byte";
  const std::string text = summary_json(records, gpus({"a", "b"}));
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  const auto all = nlohmann::json::parse(text);
  EXPECT_EQ(all.at("output"), "results/x.h5");
  EXPECT_EQ(all.at("dry_run"), false);
  const auto& both = all.at("cases").at(6);
  EXPECT_EQ(both.at("case"), "124m-both");
  EXPECT_EQ(both.at("own_base"), "1gpu-accumulate4");
  EXPECT_NEAR(both.at("tokens_per_second").get<double>(), 8000 / 0.36, 1e-6);
  EXPECT_FALSE(both.contains("mfu") || both.contains("peak_allocated_bytes"));
}

}  // namespace
}  // namespace trainsuite
