// Going on with a file: what is left to run, what is refused, what stays.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "core/error.h"
#include "result/durable_file.h"
#include "result/result_file.h"
#include "run/plan.h"
#include "run/resume.h"

namespace {

using namespace trainsuite;

class Resume : public testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/trainsuite-resume-XXXXXX";
    folder_ = mkdtemp(folder);
    path_ = folder_ + "/a.h5";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_, path_;
};

Case work(const std::string& recipe) {
  Case one;
  one.suite = "ddp";
  one.size = "tiny";
  one.recipe = recipe;
  return one;
}

RunRecord run_of(std::vector<std::string> planned) {
  RunRecord run;
  run.created_utc = "2026-01-02T03:04:05Z";
  run.planned = std::move(planned);
  run.attributes = {{"torch_version", std::string("2.11.0")},
                    {"ranks_total", std::int64_t{2}},
                    {"env_NCCL_ALGO", std::string("Ring")},
                    {"slurm_job_id", std::string("1")}};
  run.ranks = {{0, 0, "n1", "GPU A", "uuid-1", "", 80, "0-3"},
               {1, 1, "n1", "GPU A", "uuid-2", "", 80, "4-7"}};
  run.hosts = {{"n1", "CPU", "6.1", "", 2, 8, 1000}};
  return run;
}

CaseRecord row_of(const std::string& recipe, std::int64_t repeat, const std::string& status) {
  CaseRecord row;
  row.suite = "ddp";
  row.name = "tiny-" + recipe;
  row.repeat = repeat;
  row.status = status;
  row.settings = case_settings(work(recipe));
  row.settings.push_back({"link", std::string("auto")});
  row.ranks = {{0, {{"loss", "1", {1.5, 2.5}}}, {}}};
  return row;
}

template <class Work>
std::string refusal(Work body) {
  try {
    body();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST_F(Resume, KeepsTheRowsAndAddsARun) {
  {
    auto file = ResultFile::create(path_, run_of({"tiny-x", "tiny-y"}));
    file->append(row_of("x", 0, "ok"));
    file->finish();
  }
  {
    auto file = ResultFile::resume(path_, run_of({"tiny-x", "tiny-y", "tiny-z"}));
    EXPECT_THROW(file->append(row_of("x", 0, "ok")), Error);
    file->append(row_of("y", 0, "failed"));
    file->finish();
  }
  const EarlierFile earlier = read_earlier(path_);
  ASSERT_EQ(earlier.runs.size(), 2U);
  EXPECT_EQ(earlier.runs[1].planned.size(), 3U);
  EXPECT_EQ(earlier.runs[1].devices[1], "GPU A, 80 bytes");
  ASSERT_EQ(earlier.rows.size(), 2U);
  EXPECT_EQ(std::get<std::int64_t>(*find_value(earlier.rows[0].attributes, "run")), 0);
  EXPECT_EQ(std::get<std::int64_t>(*find_value(earlier.rows[1].attributes, "run")), 1);
  EXPECT_EQ(text_of(earlier.rows[1].attributes, "status"), "failed");
}

TEST_F(Resume, JoinsThePartsOfAKilledRun) {
  constexpr std::size_t always_parts = 1;
  {
    auto file = ResultFile::create(path_, run_of({"tiny-x"}), always_parts);
    for (int i = 0; i < 3; ++i) file->append(row_of("x", i, "ok"));
  }  // no finish(): as after a kill
  const auto parts = part_files(path_).size();
  EXPECT_EQ(read_earlier(path_).rows.size(), 3U);
  ResultFile::resume(path_, run_of({"tiny-x"}), always_parts)->append(row_of("x", 3, "ok"));
  EXPECT_EQ(read_earlier(path_).rows.size(), 4U);
  EXPECT_GT(parts + part_files(path_).size(), 0U) << "the test met no part file";
}

TEST_F(Resume, ACaseThatWasStoppedStillLacksItsResult) {
  const auto complete = [&] {
    ResultFile::resume(path_, run_of({"tiny-x"}))->finish();
    return read_earlier(path_).runs.size();
  };
  auto stopped = row_of("x", 0, "skipped");
  stopped.results.push_back({"stopped", true});
  {
    auto file = ResultFile::create(path_, run_of({"tiny-x"}));
    file->append(stopped);
    file->finish();
  }
  EXPECT_EQ(complete(), 2U);
  const auto cases = earlier_cases(read_earlier(path_), "ddp", false);
  EXPECT_EQ(cases.at("tiny-x").have, 0);
  EXPECT_EQ(repeat_to_run(cases, "tiny-x", 0), 1);
}

TEST_F(Resume, AFileInUseIsRefused) {
  auto file = ResultFile::create(path_, run_of({"tiny-x"}));
  file->append(row_of("x", 0, "ok"));
  const auto resume = [&] { ResultFile::resume(path_, run_of({"tiny-x"})); };
  EXPECT_NE(refusal(resume).find("another run is writing"), std::string::npos);
  file.reset();
  EXPECT_EQ(refusal(resume), "accepted");
}

TEST_F(Resume, WhatIsNoResultFileIsRefused) {
  replace_durably(path_, {'n', 'o'});
  EXPECT_NE(refusal([&] { read_earlier(path_); }).find("cannot be read"), std::string::npos);
}

TEST_F(Resume, APartThatCannotBeReadIsNamed) {
  ResultFile::create(path_, run_of({"tiny-x"}))->append(row_of("x", 0, "ok"));
  const std::string part = path_ + ".parts/3.h5";
  make_folder(path_ + ".parts");
  replace_durably(part, {'n', 'o'});
  const auto said = refusal([&] { read_earlier(path_); });
  EXPECT_NE(said.find(part + " cannot be read"), std::string::npos) << said;
}

TEST(EarlierCases, CountWhatNeedNotRunAgain) {
  EarlierFile file;
  const auto add = [&](const std::string& name, std::int64_t repeat, const std::string& status) {
    file.rows.push_back({"ddp", name, repeat, {{"status", status}}});
  };
  add("a", 0, "ok");
  add("a", 1, "failed");
  add("a", 2, "timeout");
  add("b", 0, "oom");
  file.rows.push_back({"other", "b", 0, {{"status", std::string("ok")}}});
  const auto kept = earlier_cases(file, "ddp", false), retried = earlier_cases(file, "ddp", true);
  EXPECT_EQ(kept.at("a").have, 3);
  EXPECT_EQ(retried.at("a").have, 1);
  EXPECT_EQ(retried.at("b").have, 1);
  EXPECT_EQ(repeat_to_run(kept, "a", 2), std::nullopt);
  EXPECT_EQ(repeat_to_run(kept, "a", 3), 3);
  EXPECT_EQ(repeat_to_run(retried, "a", 0), std::nullopt);
  EXPECT_EQ(repeat_to_run(retried, "a", 1), 3);
  EXPECT_EQ(repeat_to_run(retried, "a", 2), 4);
  EXPECT_EQ(repeat_to_run(retried, "new", 2), 2);
  const auto again = earlier_cases_from_text(to_text(retried));
  EXPECT_EQ(again.at("a").next, 3);
  EXPECT_EQ(again.at("b").have, 1);
}

class Resumable : public Resume {
 protected:
  void SetUp() override {
    Resume::SetUp();
    auto file = ResultFile::create(path_, run_of({"tiny-x"}));
    file->append(row_of("x", 0, "ok"));
  }
  std::string answer(const RunRecord& run, const Case& one) {
    const Settings flags = {{"link", std::string("auto")}, {"time_limit_seconds", 5.0}};
    return refusal([&] { check_resumable(read_earlier(path_), run, {one}, flags); });
  }
};

TEST_F(Resumable, TheSameRunOnAnotherHostOfItsKind) {
  auto run = run_of({"tiny-x"});
  run.ranks[0].uuid = "uuid-9";
  run.ranks[0].host = run.hosts[0].host = "n2";
  run.attributes[3].value = std::string("2");
  EXPECT_EQ(answer(run, work("x")), "accepted");
  auto other = work("other");  // a case that the file does not have
  other.seed = 9;
  EXPECT_EQ(answer(run, other), "accepted");
}

TEST_F(Resumable, OtherSettingsAreNamed) {
  auto one = work("x");
  one.seed = 2;
  EXPECT_NE(answer(run_of({}), one).find("tiny-x seed was 1, is 2"), std::string::npos);
}

TEST_F(Resumable, AnotherMachineOrProgramIsNamed) {
  auto run = run_of({});
  run.attributes[0].value = std::string("2.12.0");
  EXPECT_NE(answer(run, work("x")).find("torch_version was 2.11.0, is 2.12.0"), std::string::npos);
  run = run_of({});
  run.attributes.erase(run.attributes.begin() + 2);
  EXPECT_NE(answer(run, work("x")).find("env_NCCL_ALGO was Ring, is absent"), std::string::npos);
  run = run_of({});
  run.ranks[1].device_name = "GPU B";
  EXPECT_NE(answer(run, work("x")).find("device of rank 1 was GPU A, 80 bytes, is GPU B"),
            std::string::npos);
  run = run_of({});
  run.hosts[0].cpu_model = "other CPU";
  EXPECT_NE(answer(run, work("x")).find("host 0 was CPU"), std::string::npos);
}

}  // namespace
