#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "cli/flag_table.h"
#include "cli/options.h"

namespace trainsuite {
namespace {

const std::vector<std::string> suites = {"ddp", "finetune"};

Options parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "trainsuite");
  return parse_options(static_cast<int>(arguments.size()), arguments.data(), suites);
}

/// The one line of a refusal; fails the test where the arguments are taken.
std::string refusal(const std::vector<const char*>& arguments) {
  try {
    parse(arguments);
  } catch (const UsageError& error) {
    const std::string text = error.what();
    EXPECT_FALSE(text.empty());
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  }
  std::string all;
  for (const char* argument : arguments) all += std::string(argument) + " ";
  ADD_FAILURE() << "taken without complaint: " << all;
  return {};
}

void expect_refusal(const std::vector<const char*>& arguments,
                    const std::vector<std::string>& parts) {
  const std::string text = refusal(arguments);
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "no \"" << part << "\" in: " << text;
  }
}

TEST(Options, DefaultsLeaveTheSuiteItsOwn) {
  const Options options = parse({"ddp"});
  EXPECT_EQ(options.suite, "ddp");
  EXPECT_FALSE(options.steps || options.warmup || options.micro_batch || options.memory_limit_gib);
  EXPECT_EQ(options.repeats, 1);
  EXPECT_EQ(options.device, "auto");
}

TEST(Options, EachKindOfValueArrives) {
  const Options options =
      parse({"--steps=3", "ddp", "--case", "*1gpu*", "--case", "plain", "--memory-limit", "0.5",
             "--link", "socket", "--json", "--seed", "0", "--time-limit", "1e2", "--warmup", "0"});
  EXPECT_EQ(options.suite, "ddp");
  EXPECT_EQ(options.steps, 3);
  EXPECT_EQ(options.warmup, 0);
  EXPECT_EQ(options.case_globs, (std::vector<std::string>{"*1gpu*", "plain"}));
  EXPECT_EQ(options.memory_limit_gib, 0.5);
  EXPECT_EQ(options.link, "socket");
  EXPECT_TRUE(options.json);
  EXPECT_FALSE(options.oversubscribe);
  EXPECT_EQ(options.seed, 0);
  EXPECT_EQ(options.time_limit_seconds, 100);
}

TEST(Options, SuiteNames) {
  expect_refusal({"dpd"}, {"unknown suite 'dpd'", "did you mean 'ddp'", "ddp, finetune"});
  expect_refusal({"zzzzz"}, {"unknown suite 'zzzzz'", "Suites: ddp, finetune"});
  expect_refusal({}, {"no suite", "Suites: ddp, finetune"});
  expect_refusal({"--list"}, {"no suite"});
  expect_refusal({""}, {"unknown suite ''"});
  expect_refusal({"ddp", "finetune"}, {"unexpected 'finetune'", "after suite 'ddp'"});
  expect_refusal({"ddp", "124m-plain", "124m-both"}, {"unexpected '124m-plain'", "quote"});
  expect_refusal({"ddp", "--", "--steps"}, {"unexpected '--steps'"});
}

TEST(Options, HelpAndVersionNeedNoSuite) {
  EXPECT_TRUE(parse({"--help"}).help);
  EXPECT_TRUE(parse({"-h"}).help);
  EXPECT_TRUE(parse({"--version"}).version);
}

TEST(Options, UnknownFlagsGetTheNearestName) {
  expect_refusal({"ddp", "--stepz", "3"}, {"unknown flag '--stepz'", "did you mean '--steps'"});
  expect_refusal({"ddp", "--micro-bach=3"}, {"'--micro-bach'", "'--micro-batch'"});
  expect_refusal({"ddp", "-steps", "3"}, {"'-steps'", "'--steps'"});
  expect_refusal({"ddp", "--pipeline-stages", "8"}, {"unknown flag '--pipeline-stages'", "--help"});
  expect_refusal({"ddp", "-x"}, {"unknown flag '-x'"});
  expect_refusal({"ddp", "--st\neps", "3"}, {"unknown flag"});
}

TEST(Options, PrefixesAreNotGuessed) {
  expect_refusal({"ddp", "--step", "3"}, {"unknown flag '--step'", "'--steps'"});
  expect_refusal({"ddp", "--accum", "3"}, {"unknown flag '--accum'"});
  expect_refusal({"ddp", "--STEPS", "3"}, {"unknown flag '--STEPS'"});
}

TEST(Options, WholeNumbers) {
  for (const char* text : {"0", "-5", "3x", "x", "", " 3", "3.5", "1e3", "nan", "0x10", "+3",
                           "9223372036854775808", "99999999999999999999999", "1000001"}) {
    const std::string steps = std::string("--steps=") + text;
    const std::vector<const char*> arguments = *text == '\0'
                                                   ? std::vector<const char*>{"ddp", "--steps", ""}
                                                   : std::vector<const char*>{"ddp", steps.c_str()};
    expect_refusal(arguments, {"--steps", "a whole number from 1 to 1000000"});
  }
  EXPECT_EQ(parse({"ddp", "--steps", "1000000"}).steps, 1000000);
  expect_refusal({"ddp", "--steps", "-5"}, {"--steps '-5'"});
  expect_refusal({"ddp", "--warmup", "-1"}, {"--warmup '-1'", "from 0"});
  expect_refusal({"ddp", "--seed", "9007199254740992"}, {"--seed"});  // 2^53
  for (const char* flag :
       {"--micro-batch", "--accumulate", "--sequence", "--vocabulary", "--repeats"}) {
    expect_refusal({"ddp", flag, "0"}, {flag, "from 1 to"});
    expect_refusal({"ddp", flag, "9223372036854775807"}, {flag, "from 1 to"});
  }
}

TEST(Options, RealNumbers) {
  for (const char* flag : {"--memory-limit", "--time-limit", "--learning-rate"}) {
    for (const char* text :
         {"0", "-1", "nan", "inf", "-inf", "1e400", "4GiB", "1,5", "0.0", ".", "1e99"}) {
      expect_refusal({"ddp", flag, text}, {flag, text, "above 0"});
    }
  }
  EXPECT_EQ(parse({"ddp", "--learning-rate", "1e-5"}).learning_rate, 1e-5);
}

TEST(Options, ChoicesListTheirValues) {
  expect_refusal({"ddp", "--link", "smh"}, {"'smh'", "did you mean 'shm'", "auto, shm, socket"});
  expect_refusal({"ddp", "--device", "gpu"}, {"did you mean 'cuda'"});
  expect_refusal({"ddp", "--attention", "CUDNN"}, {"'CUDNN'", "cudnn"});
  expect_refusal({"ddp", "--comm", ""}, {"--comm has an empty value", "nccl"});
  for (const char* flag : {"--case", "--size", "--out", "--interface"}) {
    expect_refusal({"ddp", flag, ""}, {flag, "empty"});
  }
}

TEST(Options, MissingAndSurplusValues) {
  expect_refusal({"ddp", "--steps"}, {"--steps needs a value", "whole number"});
  expect_refusal({"ddp", "--out"}, {"--out needs a value", "FILE"});
  expect_refusal({"ddp", "--steps", "--repeats", "3"}, {"--steps"});
  expect_refusal({"ddp", "--list=yes"}, {"--list is a switch"});
}

TEST(Options, OnlyListsMayBeRepeated) {
  expect_refusal({"ddp", "--steps", "3", "--steps", "4"}, {"--steps is given twice"});
  expect_refusal({"ddp", "--json", "--json"}, {"--json is given twice"});
  expect_refusal({"ddp", "-h", "--help"}, {"--help is given twice"});
  EXPECT_EQ(parse({"ddp", "--size", "tiny", "--size", "124m"}).sizes.size(), 2u);
}

TEST(Options, ContradictionsThatFlagsAloneShow) {
  expect_refusal({"ddp", "--device", "cpu", "--link", "shm"}, {"--link shm", "CPU"});
  expect_refusal({"ddp", "--device", "cpu", "--comm", "nccl"}, {"--comm nccl", "--comm mpi"});
  expect_refusal({"ddp", "--comm", "mpi", "--link", "socket"}, {"--link socket", "MPI"});
  expect_refusal({"ddp", "--comm", "nccl", "--oversubscribe"}, {"--oversubscribe", "--comm mpi"});
  expect_refusal({"ddp", "--json", "--plan"}, {"--plan", "leave --json out"});
  EXPECT_NO_THROW(parse({"ddp", "--comm", "nccl", "--interface", "eth0"}));
  EXPECT_NO_THROW(parse({"ddp", "--device", "cpu", "--interface", "eth0"}));
  EXPECT_NO_THROW(parse({"ddp", "--plan"}));
  EXPECT_NO_THROW(parse({"ddp", "--comm", "mpi", "--oversubscribe"}));
  EXPECT_NO_THROW(parse({"ddp", "--device", "cpu", "--comm", "mpi", "--link", "auto"}));
}

TEST(Consistency, FlagsOfAnotherSuite) {
  Options options;
  options.suite = "ddp";
  options.self_check = true;
  options.ceilings = "peak.h5";
  EXPECT_NO_THROW(check_consistency(options, false, "mpi"));
  options.pairs = true;
  EXPECT_THROW(check_consistency(options, false, "mpi"), UsageError);
  options.suite = "ceilings";
  EXPECT_THROW(check_consistency(options, false, "mpi"), UsageError);
  options.self_check = false;
  EXPECT_THROW(check_consistency(options, false, "mpi"), UsageError);
  options.ceilings.clear();
  EXPECT_NO_THROW(check_consistency(options, false, "mpi"));
}

TEST(Consistency, WhatTheDeviceContradicts) {
  const Options link = parse({"ddp", "--link", "shm"});
  EXPECT_THROW(check_consistency(link, false, "mpi"), UsageError);
  EXPECT_THROW(check_consistency(link, true, "mpi"), UsageError);
  EXPECT_NO_THROW(check_consistency(link, true, "nccl"));
  const Options interface = parse({"ddp", "--interface", "eth0"});
  EXPECT_NO_THROW(check_consistency(interface, false, "mpi"));  // MPI's interface, too
  EXPECT_NO_THROW(check_consistency(interface, true, "mpi"));
  EXPECT_NO_THROW(check_consistency(interface, true, "nccl"));
  const Options capped = parse({"ddp", "--memory-limit", "32"});
  EXPECT_THROW(check_consistency(capped, false, "mpi"), UsageError);
  EXPECT_NO_THROW(check_consistency(capped, true, "nccl"));
  const Options kernel = parse({"ddp", "--attention", "cudnn"});
  EXPECT_THROW(check_consistency(kernel, false, "mpi"), UsageError);
  EXPECT_NO_THROW(check_consistency(kernel, true, "nccl"));
  const Options shared = parse({"ddp", "--oversubscribe"});
  EXPECT_THROW(check_consistency(shared, true, "nccl"), UsageError);
  EXPECT_NO_THROW(check_consistency(shared, true, "mpi"));
  EXPECT_NO_THROW(check_consistency(parse({"ddp"}), false, "mpi"));
}

TEST(FlagTable, NamesAreUniqueAndHelpHoldsAll) {
  const std::string help = help_text(suites);
  std::map<std::string, int> names, recorded;
  for (const Flag& flag : flag_table()) {
    EXPECT_EQ(++names[flag.name], 1) << flag.name;
    if (!flag.recorded.empty()) {
      EXPECT_EQ(++recorded[flag.recorded], 1) << flag.recorded;
    }
    EXPECT_NE(help.find("--" + flag.name + " "), std::string::npos) << flag.name;
    EXPECT_NE(help.find(flag.help), std::string::npos) << flag.name;
  }
  std::size_t start = 0;
  for (std::size_t end; (end = help.find('\n', start)) != std::string::npos; start = end + 1) {
    EXPECT_LE(end - start, 100u) << help.substr(start, end - start);
  }
}

/// What docs/schema.md says of the flags.
TEST(FlagTable, RecordedNamesAreTheFlagsOwnSaveForUnits) {
  std::set<std::string> not_recorded;
  std::map<std::string, std::string> renamed;
  for (const Flag& flag : flag_table()) {
    std::string own = flag.name;
    std::replace(own.begin(), own.end(), '-', '_');
    if (flag.recorded.empty()) {
      not_recorded.insert(own);
    } else if (flag.recorded != own) {
      renamed[own] = flag.recorded;
    }
  }
  EXPECT_EQ(not_recorded, (std::set<std::string>{"case", "size", "list", "plan", "version", "help",
                                                 "out", "resume", "retry", "json", "execution",
                                                 "compile_cache"}));
  EXPECT_EQ(renamed,
            (std::map<std::string, std::string>{{"loss_chunk", "loss_chunk_mib"},
                                                {"memory_limit", "memory_limit_gib"},
                                                {"recipe", "recipe_flags"},
                                                {"time_limit", "time_limit_seconds"},
                                                {"total_time_limit", "total_time_limit_seconds"},
                                                {"until", "until_percent"}}));
}

TEST(FlagTable, DefaultsPassTheirOwnChecks) {
  const Options options;
  for (const Flag& flag : flag_table()) {
    const auto* member = std::get_if<std::string Options::*>(&flag.target);
    if (member == nullptr || flag.allowed.empty()) continue;
    const auto& allowed = flag.allowed;
    EXPECT_NE(std::find(allowed.begin(), allowed.end(), options.**member), allowed.end())
        << flag.name;
  }
}

TEST(RecordedSettings, HoldValuesUnderTheirNamesAndLeaveUnsetOut) {
  std::map<std::string, Value> values;
  const Options options = parse({"ddp", "--memory-limit", "32", "--link", "shm", "--micro-batch",
                                 "3", "--deterministic", "--out", "x.h5", "--case", "plain"});
  for (const Setting& setting : recorded_settings(options)) values[setting.name] = setting.value;
  EXPECT_EQ(values.at("memory_limit_gib"), Value(32.0));
  EXPECT_EQ(values.at("link"), Value(std::string("shm")));
  EXPECT_EQ(values.at("micro_batch"), Value(std::int64_t{3}));
  EXPECT_EQ(values.at("deterministic"), Value(true));
  EXPECT_EQ(values.at("comm"), Value(std::string("auto")));
  EXPECT_EQ(values.at("time_limit_seconds"), Value(1800.0));
  EXPECT_EQ(values.at("oversubscribe"), Value(false));
  EXPECT_EQ(values.at("seed"), Value(std::int64_t{1}));
  for (const char* absent : {"steps", "accumulate", "interface", "out", "case", "list", ""}) {
    EXPECT_EQ(values.count(absent), 0u) << absent;
  }
}

}  // namespace
}  // namespace trainsuite
