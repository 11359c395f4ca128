#include <gtest/gtest.h>

#include <cmath>

#include "result/ceilings.h"
#include "result/ceilings_file.h"

namespace trainsuite {
namespace {

TEST(BusFactor, IsThatOfNcclTests) {
  // doc/PERFORMANCE.md of nccl-tests: all-reduce 2 (n-1)/n, all-gather and reduce-scatter (n-1)/n.
  EXPECT_DOUBLE_EQ(bus_factor(CeilingKind::all_reduce, 2).value(), 1);
  EXPECT_DOUBLE_EQ(bus_factor(CeilingKind::all_reduce, 4).value(), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(CeilingKind::all_gather, 4).value(), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(CeilingKind::reduce_scatter, 8).value(), 0.875);
}

TEST(BusFactor, OneRankHasNoBus) {
  for (const auto kind :
       {CeilingKind::all_reduce, CeilingKind::all_gather, CeilingKind::reduce_scatter}) {
    EXPECT_FALSE(bus_factor(kind, 1));
  }
  EXPECT_FALSE(bus_factor(CeilingKind::matmul, 4));
  EXPECT_FALSE(bus_factor(CeilingKind::device_copy, 4));
}

TEST(ProductCeiling, IsTheMedianOfTheRepeatsOfTheFasterSize) {
  const std::vector<MeasuredCeiling> all = {
      {"H200", "bf16", 700, "full-matmul-bf16"}, {"H200", "bf16", 790, "full-matmul-bf16"},
      {"H200", "bf16", 780, "full-matmul-bf16"}, {"H200", "bf16", 5, "tiny-matmul-bf16"},
      {"H200", "fp32", 50, "full-matmul-fp32"},  {"A100", "bf16", 300, "full-matmul-bf16"}};
  EXPECT_EQ(product_ceiling(all, "H200", "bf16"), 780);
  EXPECT_EQ(product_ceiling(all, "H200", "fp32"), 50);
  EXPECT_FALSE(product_ceiling(all, "H200", "tf32"));
  EXPECT_FALSE(product_ceiling(all, "B200", "bf16"));
}

TEST(Work, OfProductsAndCopies) {
  EXPECT_DOUBLE_EQ(work_of(CeilingKind::matmul, 10), 2000);
  EXPECT_DOUBLE_EQ(work_of(CeilingKind::device_copy, 10), 20);
  EXPECT_DOUBLE_EQ(work_of(CeilingKind::host_copy, 10), 10);
  EXPECT_DOUBLE_EQ(work_of(CeilingKind::all_reduce, 10), 10);
}

TEST(Kind, ByTheStartOfTheRecipe) {
  EXPECT_EQ(ceiling_kind("matmul-tf32"), CeilingKind::matmul);
  EXPECT_EQ(ceiling_kind("copy-device"), CeilingKind::device_copy);
  EXPECT_EQ(ceiling_kind("copy-host-to-device-pinned"), CeilingKind::host_copy);
  EXPECT_EQ(ceiling_kind("copy-device-to-host-pinned"), CeilingKind::host_copy);
  EXPECT_EQ(ceiling_kind("reduce-scatter"), CeilingKind::reduce_scatter);
  EXPECT_FALSE(ceiling_kind("plain"));
}

RankRecord rank(int number, std::vector<double> seconds, std::vector<double> wrong) {
  return {number,
          {{"step_seconds", "s", std::move(seconds)},
           {"problem_size", "1", {100, 100, 100, 100, 400, 400, 400, 400}},
           {"wrong_values", "1", std::move(wrong)}},
          {}};
}

CaseRecord two_sizes(const std::string& recipe) {
  CaseRecord record;
  record.status = "ok";
  record.settings = {{"recipe", std::string("plain")}, {"recipe", recipe}};
  record.warmup = {1, 0, 0, 0, 1, 0, 0, 0};
  record.ranks = {rank(0, {90, 1, 5, 2, 90, 8, 8, 8}, {0, 0, 0, 0, 0, 0, 0, 2}),
                  rank(1, {80, 2, 1, 3, 80, 4, 10, 4}, {7, 0, 0, 0, 0, 0, 0, 1})};
  return record;
}

TEST(Points, AreMediansOfTheSlowestRank) {
  const auto points = ceiling_points(two_sizes("all-reduce"));
  ASSERT_EQ(points.size(), 2u);
  EXPECT_DOUBLE_EQ(points[0].size, 100);
  EXPECT_DOUBLE_EQ(points[0].seconds, 3);  // of 2, 5, 3
  EXPECT_DOUBLE_EQ(points[0].rate, 100.0 / 3);
  EXPECT_DOUBLE_EQ(points[0].bus_rate.value(), 100.0 / 3);
  EXPECT_DOUBLE_EQ(points[0].wrong_values, 0);  // the warm-up's are not counted
  EXPECT_DOUBLE_EQ(points[1].seconds, 8);
  EXPECT_DOUBLE_EQ(points[1].wrong_values, 3);
  EXPECT_DOUBLE_EQ(best_point(two_sizes("all-reduce"))->rate, 50);
  EXPECT_DOUBLE_EQ(best_point(two_sizes("matmul-bf16"))->rate, 2 * 400.0 * 400 * 400 / 8);
  EXPECT_FALSE(best_point(two_sizes("matmul-bf16"))->bus_rate);
}

TEST(Points, OfOneRankHaveNoBusRate) {
  auto alone = two_sizes("all-gather");
  alone.ranks.resize(1);
  ASSERT_EQ(ceiling_points(alone).size(), 2u);
  EXPECT_FALSE(ceiling_points(alone)[0].bus_rate);
}

TEST(Points, AreAbsentForOtherRowsAndFailures) {
  EXPECT_TRUE(ceiling_points(two_sizes("plain")).empty());
  auto failed = two_sizes("all-reduce");
  failed.status = "failed";
  EXPECT_TRUE(ceiling_points(failed).empty());
  EXPECT_FALSE(best_point(failed));
}

TEST(Pairs, AreOfHostsOrOfRanksOnOneHost) {
  using Groups = std::vector<std::vector<int>>;
  EXPECT_EQ(pair_groups({"a", "b", "a", "c"}), (Groups{{0, 2}, {1}, {3}}));
  EXPECT_EQ(pair_groups({"a", "a", "a"}), (Groups{{0}, {1}, {2}}));
}

TEST(Pairs, RanksMeetThoseOfTheirPlace) {
  EXPECT_EQ(peer_of(2, {0, 2}, {1, 3}), 3);
  EXPECT_EQ(peer_of(1, {0, 2}, {1, 3}), 0);
  EXPECT_FALSE(peer_of(2, {0, 2}, {1}));  // the other host has fewer ranks
  EXPECT_FALSE(peer_of(5, {0, 2}, {1, 3}));
}

TEST(Pairs, RatesAreOfAllRanksOfANode) {
  // Two hosts of two ranks and a third of one: pair 0-1 takes 2 s at its slower rank, size 100.
  CaseRecord record;
  record.status = "ok";
  record.warmup = {1, 0, 1, 0, 1, 0};
  const auto add = [&](int number, std::vector<double> seconds, double wrong) {
    std::vector<double> wrongs;
    for (const double one : seconds) wrongs.push_back(std::isnan(one) ? NAN : wrong);
    record.ranks.push_back({number,
                            {{"step_seconds", "s", std::move(seconds)},
                             {"problem_size", "1", {100, 100, 400, 400, 100, 100}},
                             {"wrong_values", "1", std::move(wrongs)},
                             {"pair_a", "1", {0, 0, 0, 0, 0, 0}},
                             {"pair_b", "1", {1, 1, 1, 1, 2, 2}}},
                            {}});
  };
  add(0, {9, 1, 9, 5, 9, 4}, 0);
  add(1, {9, 2, 9, 5, NAN, NAN}, 0);
  add(2, {9, 1, 9, 5, NAN, NAN}, 0);
  add(3, {9, 1, 9, 5, NAN, NAN}, 0);
  add(4, {NAN, NAN, NAN, NAN, 9, 4}, 1);
  const auto points = pair_points(record);
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].b, 1);
  EXPECT_DOUBLE_EQ(points[0].size, 400);  // 800 / 5 is more than 200 / 2
  EXPECT_DOUBLE_EQ(points[0].rate, 2 * 400.0 / 5);
  EXPECT_DOUBLE_EQ(points[0].wrong_values, 0);
  EXPECT_EQ(points[1].b, 2);
  EXPECT_DOUBLE_EQ(points[1].rate, 100.0 / 4);
  EXPECT_DOUBLE_EQ(points[1].wrong_values, 1);
}

}  // namespace
}  // namespace trainsuite
