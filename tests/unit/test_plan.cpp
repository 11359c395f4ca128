#include <gtest/gtest.h>

#include <sstream>

#include "../../suites/ddp.h"
#include "run/plan.h"

namespace trainsuite {
namespace {

using Names = std::vector<std::string>;

Names names_of(const std::vector<Case>& cases) {
  Names names;
  for (const Case& one : cases) names.push_back(one.name());
  return names;
}

Names selected(const Options& options, bool cuda = true) {
  const auto all = ddp_cases(options, cuda, 2);
  return names_of(select_cases(all, options, ddp_default_sizes(options, cuda)));
}

Names with_globs(const Names& globs, bool cuda = true) {
  Options options;
  options.case_globs = globs;
  return selected(options, cuda);
}

std::string refusal(const Options& options) {
  try {
    selected(options);
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  ADD_FAILURE() << "taken without complaint";
  return {};
}

const Case& named(const std::vector<Case>& cases, const std::string& name) {
  for (const Case& one : cases) {
    if (one.name() == name) return one;
  }
  throw std::out_of_range(name);
}

TEST(Select, DefaultSizesFollowTheDevice) {
  EXPECT_EQ(selected({}, true).size(), 14u);
  const Names dry = selected({}, false);
  EXPECT_EQ(dry, (Names{"tiny-1gpu", "tiny-1gpu-accumulate4", "tiny-independent", "tiny-plain",
                        "tiny-bf16", "tiny-accumulate4", "tiny-both"}));
}

TEST(Select, SizesAskedFor) {
  Options options;
  options.sizes = {"355m", "355m"};
  EXPECT_EQ(selected(options).size(), 7u);
  options.sizes = {"tiny", "124m"};
  const Names both = selected(options);
  EXPECT_EQ(both.size(), 14u);
  EXPECT_EQ(both.front(), "124m-1gpu");  // the table's order, not the command line's
}

TEST(Select, UnknownSize) {
  Options options;
  options.sizes = {"999m"};
  EXPECT_NE(refusal(options).find("unknown size '999m'"), std::string::npos);
  EXPECT_NE(refusal(options).find("124m, 355m, tiny"), std::string::npos);
  options.sizes = {"124m", "355"};
  EXPECT_NE(refusal(options).find("did you mean '355m'"), std::string::npos);
}

TEST(Select, GlobsMatchWholeNameOrRecipe) {
  EXPECT_EQ(with_globs({"plain"}), (Names{"124m-plain", "355m-plain"}));
  EXPECT_EQ(with_globs({"124m-plain"}), (Names{"124m-plain"}));
  EXPECT_EQ(with_globs({"*1gpu*"}),
            (Names{"124m-1gpu", "124m-1gpu-accumulate4", "355m-1gpu", "355m-1gpu-accumulate4"}));
}

TEST(Select, GlobsJoinInPlanOrderEachCaseOnce) {
  EXPECT_EQ(with_globs({"both", "1gpu", "124m-*1gpu", "both"}),
            (Names{"124m-1gpu", "124m-both", "355m-1gpu", "355m-both"}));
}

TEST(Select, WholeNamesReachOtherSizesUnlessSizesAreGiven) {
  EXPECT_EQ(with_globs({"355m-both"}, false), (Names{"355m-both"}));
  EXPECT_EQ(with_globs({"tiny-b*"}, true), (Names{"tiny-bf16", "tiny-both"}));
  EXPECT_EQ(with_globs({"*-plain"}, false), (Names{"tiny-plain"}));
  Options options;
  options.case_globs = {"355m-both"};
  options.sizes = {"124m"};
  EXPECT_NE(refusal(options).find("no case matches '355m-both'"), std::string::npos);
}

TEST(Select, ACaseThatSizeLeavesOutIsSaidToBe) {
  Options options;
  options.case_globs = {"124m-plain"};
  options.sizes = {"tiny"};
  std::string text = refusal(options);
  EXPECT_NE(text.find("no case matches '124m-plain' within --size tiny"), std::string::npos)
      << text;
  EXPECT_NE(text.find("add --size 124m, or leave --size out"), std::string::npos) << text;
  EXPECT_EQ(text.find("did you mean"), std::string::npos) << text;
  options.case_globs = {"[13]*-plain"};
  text = refusal(options);
  EXPECT_NE(text.find("size 124m, 355m; add --size 124m --size 355m"), std::string::npos) << text;
  options.case_globs = {"124m-plian"};  // names no case of any size
  EXPECT_EQ(refusal(options).find("leave --size out"), std::string::npos);
}

TEST(Select, EveryGlobMustMatch) {
  Options options;
  options.case_globs = {"plain", "nothing"};
  const std::string text = refusal(options);
  EXPECT_NE(text.find("no case matches 'nothing'"), std::string::npos) << text;
  EXPECT_NE(text.find("accumulate4"), std::string::npos) << text;  // names what there is
  options.case_globs = {"palin"};
  EXPECT_NE(refusal(options).find("did you mean 'plain'"), std::string::npos);
  options.case_globs = {"124m-plian"};
  EXPECT_NE(refusal(options).find("did you mean '124m-plain'"), std::string::npos);
}

TEST(List, HoldsEverySizeUnlessAskedForLess) {
  Options options;
  const auto all = ddp_cases(options, false, 1);
  std::ostringstream out;
  print_list(out, all, options);
  std::string expected;
  for (const Case& one : all) expected += one.name() + "\n";
  EXPECT_EQ(out.str(), expected);
  options.case_globs = {"both"};
  std::ostringstream fewer;
  print_list(fewer, all, options);
  EXPECT_EQ(fewer.str(), "124m-both\n355m-both\ntiny-both\n");
}

/// "plain" of "plain", "plain-compile" and "plain-graph".
std::string eager_recipe(const Case& one) {
  const std::string suffix = "-" + one.execution;
  return one.recipe.ends_with(suffix) ? one.recipe.substr(0, one.recipe.size() - suffix.size())
                                      : one.recipe;
}

TEST(DdpCases, RanksAndCommunication) {
  const auto all = ddp_cases({}, true, 4);
  for (const Case& one : all) {
    const std::string recipe = eager_recipe(one);
    const bool alone = recipe.starts_with("1gpu");
    EXPECT_EQ(one.one_rank, alone) << one.name();
    EXPECT_EQ(one.ranks, alone ? 1 : 4) << one.name();
    EXPECT_EQ(one.communicates, !alone && recipe != "independent") << one.name();
    const bool narrow = recipe == "bf16" || recipe == "both";
    EXPECT_EQ(one.wire, narrow ? "bf16" : "fp32") << one.name();
    const bool accumulates = recipe == "both" || recipe.ends_with("accumulate4");
    EXPECT_EQ(one.accumulate, accumulates ? 4 : 1) << one.name();
  }
  for (const Case& one : ddp_cases({}, true, 1)) {
    const std::string recipe = eager_recipe(one);
    const bool communicates = !recipe.starts_with("1gpu") && recipe != "independent";
    EXPECT_EQ(one.communicates, communicates) << one.name();  // also on one rank
  }
}

TEST(DdpCases, DefaultsOfTheDesign) {
  const auto all = ddp_cases({}, true, 2);
  for (const char* size : {"124m", "355m"}) {
    const Case& one = named(all, std::string(size) + "-plain");
    EXPECT_EQ(one.micro_batch, 8);
    EXPECT_EQ(one.sequence, 1024);
    EXPECT_EQ(one.vocabulary, 50304);
    EXPECT_EQ(one.warmup, 10);
    EXPECT_EQ(one.steps, 40);
    EXPECT_EQ(one.precision, "bf16");
    EXPECT_EQ(one.tokens_per_step(), 2 * 8 * 1024);
  }
  EXPECT_EQ(named(all, "124m-both").tokens_per_step(), 2 * 4 * 8 * 1024);
  EXPECT_EQ(named(all, "124m-1gpu-accumulate4").tokens_per_step(), 4 * 8 * 1024);
  EXPECT_EQ(named(ddp_cases({}, false, 2), "tiny-plain").precision, "fp32");
}

TEST(DdpCases, FlagsOverride) {
  Options options;
  options.micro_batch = 3;
  options.sequence = 17;
  options.vocabulary = 99;
  options.steps = 5;
  options.warmup = 0;
  options.accumulate = 6;
  options.learning_rate = 0.25;
  options.precision = "fp32";
  options.seed = 7;
  const auto all = ddp_cases(options, true, 2);
  const Case& one = named(all, "355m-1gpu-accumulate6");
  EXPECT_EQ(one.tokens_per_step(), 3 * 17 * 6);
  EXPECT_EQ(one.vocabulary, 99);
  EXPECT_EQ(one.steps, 5);
  EXPECT_EQ(one.warmup, 0);
  EXPECT_EQ(one.learning_rate, 0.25);
  EXPECT_EQ(one.precision, "fp32");
  EXPECT_EQ(one.seed, 7);
  EXPECT_EQ(named(all, "124m-accumulate6").accumulate, 6);
  EXPECT_EQ(named(all, "124m-both").accumulate, 6);
  EXPECT_EQ(named(all, "124m-plain").accumulate, 1);
}

TEST(DdpCases, LongerWorkWeighsMore) {
  const auto all = ddp_cases({}, true, 2);
  EXPECT_GT(named(all, "355m-plain").work, named(all, "124m-plain").work);
  EXPECT_DOUBLE_EQ(named(all, "124m-both").work, 4 * named(all, "124m-plain").work);
}

TEST(Plan, SaysWhatEachCaseDoesAndThatACpuIsADryRun) {
  PlanFacts facts;
  facts.device_name = "some processor";
  facts.ranks = 2;
  facts.communicator = "mpi";
  facts.output_path = "results/x.h5";
  Options options;
  auto cases =
      select_cases(ddp_cases(options, false, 2), options, ddp_default_sizes(options, false));
  std::ostringstream out;
  print_plan(out, cases, facts);
  const std::string text = out.str();
  for (const char* part : {"tiny-1gpu", "tiny-both", "2 ranks", "Dry run", "some processor",
                           "results/x.h5", "1,024", "2 x 4", "10+40"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
  EXPECT_EQ(text.find("GiB"), std::string::npos);  // nothing predicted: no column
  cases[1].predicted_bytes = std::int64_t{3} << 30;
  std::ostringstream predicted;
  print_plan(predicted, cases, facts);
  EXPECT_NE(predicted.str().find("predicted GiB"), std::string::npos);
  EXPECT_NE(predicted.str().find("3.00"), std::string::npos);
}

TEST(Plan, OnAGpuIsNoDryRun) {
  PlanFacts facts;
  facts.cuda = true;
  facts.communicator = "nccl";
  std::ostringstream out;
  print_plan(out, ddp_cases({}, true, 1), facts);
  EXPECT_EQ(out.str().find("Dry run"), std::string::npos);
  EXPECT_NE(out.str().find("nccl"), std::string::npos);
}

TEST(Plan, SaysWhyPeaksOrMinutesAreMissing) {
  auto cases = ddp_cases({}, true, 1);
  const auto text = [&](bool cuda) {
    PlanFacts facts;
    facts.cuda = cuda;
    std::ostringstream out;
    print_plan(out, cases, facts);
    return out.str();
  };
  EXPECT_NE(text(false).find("of GPUs alone"), std::string::npos);
  EXPECT_NE(text(true).find("No peak is foretold"), std::string::npos);
  EXPECT_NE(text(true).find("--ceilings FILE"), std::string::npos);
  for (Case& one : cases) {
    one.predicted_bytes = 1;
    one.expected_seconds = 1;
  }
  EXPECT_EQ(text(true).find("foretold"), std::string::npos);
  EXPECT_EQ(text(true).find("--ceilings FILE"), std::string::npos);
}

TEST(CaseSettings, DescribeTheCase) {
  const auto all = ddp_cases({}, true, 4);
  const auto value = [](const Settings& settings, const std::string& name) {
    for (const Setting& setting : settings) {
      if (setting.name == name) return setting.value;
    }
    throw std::out_of_range(name);
  };
  const Settings both = case_settings(named(all, "124m-both"));
  EXPECT_EQ(value(both, "size"), Value(std::string("124m")));
  EXPECT_EQ(value(both, "recipe"), Value(std::string("both")));
  EXPECT_EQ(value(both, "ranks"), Value(std::int64_t{4}));
  EXPECT_EQ(value(both, "tokens_per_step"), Value(std::int64_t{8 * 4 * 1024 * 4}));
  EXPECT_EQ(value(both, "global_batch"), Value(std::int64_t{8 * 4 * 4}));
  EXPECT_EQ(value(both, "wire"), Value(std::string("bf16")));
  EXPECT_EQ(value(case_settings(named(all, "124m-1gpu")), "wire"), Value(std::string("none")));
}

TEST(MergedSettings, LaterValuesReplaceEarlierOnes) {
  const Settings merged =
      merged_settings({{"steps", std::int64_t{5}}, {"link", std::string("shm")}},
                      {{"steps", std::int64_t{40}}, {"size", std::string("x")}});
  ASSERT_EQ(merged.size(), 3u);
  EXPECT_EQ(merged[0].value, Value(std::int64_t{40}));
  EXPECT_EQ(merged[1].value, Value(std::string("shm")));
  EXPECT_EQ(merged[2].name, "size");
}

}  // namespace
}  // namespace trainsuite
