#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "core/error.h"
#include "result/durable_file.h"
#include "result/hdf5_image.h"
#include "result/result_file.h"

namespace trainsuite {
namespace {

namespace fs = std::filesystem;

/// Every test works in a folder of its own, from which relative paths start.
class ResultFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "trainsuite-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    home_ = fs::current_path();
    fs::current_path(folder_);
  }
  void TearDown() override {
    fs::current_path(home_);
    fs::permissions(folder_, fs::perms::owner_all);
    fs::remove_all(folder_);
  }
  fs::path folder_, home_;
};

RunRecord run_planning(std::vector<std::string> planned) {
  RunRecord run;
  run.created_utc = "2026-01-02T03:04:05Z";
  run.planned = std::move(planned);
  return run;
}

CaseRecord row(const std::string& name, std::int64_t repeat = 0, std::size_t steps = 3) {
  CaseRecord record;
  record.suite = "ddp";
  record.name = name;
  record.repeat = repeat;
  record.status = "ok";
  record.warmup.assign(steps, 0);
  record.ranks.push_back({0, {{"loss", "1", std::vector<double>(steps, 1.5)}}, {}});
  return record;
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const UsageError& error) {
    return std::string("usage: ") + error.what();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& path, const std::string& member) {
  bool found = false;
  read_image(read_whole(path), [&](H5::H5File& file) {
    found = H5Lexists(file.getId(), member.substr(0, member.find('/')).c_str(), H5P_DEFAULT) > 0 &&
            H5Oexists_by_name(file.getId(), member.c_str(), H5P_DEFAULT) > 0;
  });
  return found;
}

bool is_complete(const std::string& path) {
  std::uint8_t complete = 255;
  read_image(read_whole(path), [&](H5::H5File& file) {
    file.openGroup("/").openAttribute("complete").read(H5::PredType::NATIVE_UINT8, &complete);
  });
  return complete == 1;
}

TEST_F(ResultFileTest, IsReadableAfterEachStepAndCompleteAtTheEnd) {
  auto file = ResultFile::create("a.h5", run_planning({"x", "y"}));
  EXPECT_TRUE(has("a.h5", "runs/0"));
  file->append(row("x"));
  EXPECT_TRUE(has("a.h5", "ddp/x/0"));
  file->append(row("y"));
  EXPECT_FALSE(is_complete("a.h5"));
  file->finish();
  EXPECT_TRUE(is_complete("a.h5"));
  EXPECT_TRUE(has("a.h5", "ddp/y/0/loss"));
  EXPECT_EQ(std::distance(fs::directory_iterator("."), fs::directory_iterator()), 1);
}

TEST_F(ResultFileTest, StaysIncompleteWhileAPlannedNameLacksAResult) {
  auto file = ResultFile::create("a.h5", run_planning({"x", "y"}));
  file->append(row("x", 0));
  file->append(row("x", 1));
  file->finish();
  EXPECT_FALSE(is_complete("a.h5"));
}

TEST_F(ResultFileTest, NeverOverwrites) {
  std::ofstream("a.h5") << "mine";
  const std::string error = error_of([] { ResultFile::create("a.h5", run_planning({})); });
  EXPECT_NE(error.find("usage: --out a.h5: the file exists"), std::string::npos) << error;
  EXPECT_EQ(read_whole("a.h5").size(), 4u);
}

TEST_F(ResultFileTest, CreatesExclusivelyEvenAfterTheCheck) {
  ASSERT_TRUE(create_exclusively("a.h5", {1}));
  EXPECT_FALSE(create_exclusively("a.h5", {2, 2}));
  EXPECT_EQ(read_whole("a.h5"), Bytes{1});
  EXPECT_EQ(std::distance(fs::directory_iterator("."), fs::directory_iterator()), 1);
}

TEST_F(ResultFileTest, NamesTheMissingFolder) {
  const std::string error = error_of([] { ResultFile::create("no/a.h5", run_planning({})); });
  EXPECT_NE(error.find("usage: "), std::string::npos) << error;
  EXPECT_NE(error.find("'no' does not exist"), std::string::npos) << error;
  EXPECT_NE(error_of([] { ResultFile::check_creatable("no/a.h5"); }), "");
  EXPECT_EQ(error_of([] { ResultFile::check_creatable("a.h5"); }), "");
}

TEST_F(ResultFileTest, RefusesAFolderThatIsAFile) {
  std::ofstream("no") << "file";
  EXPECT_NE(error_of([] { ResultFile::check_creatable("no/a.h5"); }).find("'no'"),
            std::string::npos);
  EXPECT_NE(error_of([] { ResultFile::check_creatable(""); }).find("names no file"),
            std::string::npos);
}

TEST_F(ResultFileTest, RefusesAFolderThatIsNotWritable) {
  fs::create_directory("locked");
  fs::permissions("locked", fs::perms::owner_read | fs::perms::owner_exec);
  // Root may write anywhere, so a child without privileges looks.
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && (chmod(".", 0755) != 0 || setuid(65534) != 0)) _exit(9);
    const std::string error = error_of([] { ResultFile::check_creatable("locked/a.h5"); });
    _exit(error.find("usage: ") == 0 && error.find("not writable") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(ResultFileTest, RefusesANameWithoutRoomForItsTemporary) {
  const std::string longest(200, 'n');
  ResultFile::create(longest, run_planning({"x"}))->append(row("x"));
  const std::string longer(250, 'n');  // a name of 250 bytes could itself be made
  const std::string error = error_of([&] { ResultFile::check_creatable(longer); });
  EXPECT_EQ(error.find("usage: --out nnn"), 0u) << error;
  EXPECT_NE(error.find("too long"), std::string::npos) << error;
  EXPECT_NE(error.find("shorter"), std::string::npos) << error;
  EXPECT_EQ(std::distance(fs::directory_iterator("."), fs::directory_iterator()), 1);
}

TEST_F(ResultFileTest, SaysThatNothingIsRecordedWhenItCannotBeCreated) {
  const std::string error = error_of([] { create_exclusively("no/a.h5", {1}); });
  EXPECT_EQ(error.find("cannot create no/a.h5: "), 0u) << error;
  EXPECT_NE(error.find("nothing is recorded"), std::string::npos) << error;
  EXPECT_EQ(error.find("kept"), std::string::npos) << error;
  EXPECT_NE(error_of([] { replace_durably("no/a.h5", {1}); }).find("kept"), std::string::npos);
}

TEST_F(ResultFileTest, RefusesPartsOfAnEarlierRun) {
  fs::create_directory("a.h5.parts");
  EXPECT_NE(error_of([] { ResultFile::check_creatable("a.h5"); }).find("a.h5.parts"),
            std::string::npos);
}

TEST_F(ResultFileTest, KeepsEarlierRowsWhenTheDiskIsFull) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);  // writes then fail instead of ending the process
    auto file = ResultFile::create("a.h5", run_planning({"x", "y"}));
    file->append(row("x"));
    const rlimit limit{200'000, 200'000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string error = error_of([&] { file->append(row("y", 0, 100'000)); });
    if (error.find("cannot write a.h5: ") != 0) _exit(1);
    file->append(row("y"));  // what fits is still taken
    file->finish();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(has("a.h5", "ddp/x/0/loss"));
  EXPECT_TRUE(has("a.h5", "ddp/y/0/loss"));
  EXPECT_TRUE(is_complete("a.h5"));
  EXPECT_EQ(std::distance(fs::directory_iterator("."), fs::directory_iterator()), 1);
}

TEST_F(ResultFileTest, LeavesAnotherRunsFileAlone) {
  auto first = ResultFile::create("a.h5", run_planning({}));
  first->append(row("x"));
  fs::remove("a.h5");
  auto second = ResultFile::create("a.h5", run_planning({}));
  second->append(row("y"));
  EXPECT_NE(error_of([&] { first->append(row("z")); }).find("replaced by another program"),
            std::string::npos);
  EXPECT_TRUE(has("a.h5", "ddp/y/0"));
  EXPECT_FALSE(has("a.h5", "ddp/z"));
}

TEST_F(ResultFileTest, RefusesARowTwiceAndNamesThatCannotBe) {
  auto file = ResultFile::create("a.h5", run_planning({}));
  file->append(row("x"));
  EXPECT_NE(error_of([&] { file->append(row("x")); }).find("ddp/x/0 is already"),
            std::string::npos);
  EXPECT_NE(error_of([&] { file->append(row("x/y")); }).find("'x/y' cannot name"),
            std::string::npos);
  CaseRecord odd = row("q");
  odd.status = "fine";
  EXPECT_NE(error_of([&] { file->append(odd); }).find("'fine'"), std::string::npos);
  file->append(row("z"));  // and goes on
  EXPECT_TRUE(has("a.h5", "ddp/z/0"));
}

TEST_F(ResultFileTest, WritesPartsBeyondTheSmallSizeAndJoinsThemGeometrically) {
  auto file = ResultFile::create("a.h5", run_planning({"x"}), 30'000);
  std::uintmax_t main_bytes = 0, rewritten_bytes = 0;
  std::size_t most_parts = 0;
  for (int repeat = 0; repeat < 100; ++repeat) {
    file->append(row("x", repeat, 1000));
    if (fs::exists("a.h5.parts"))
      most_parts = std::max<std::size_t>(
          most_parts, static_cast<std::size_t>(std::distance(fs::directory_iterator("a.h5.parts"),
                                                             fs::directory_iterator())));
    if (fs::file_size("a.h5") != main_bytes) rewritten_bytes += main_bytes = fs::file_size("a.h5");
  }
  file->finish();
  EXPECT_GT(most_parts, 5u);
  EXPECT_LT(rewritten_bytes, 5 * fs::file_size("a.h5"));  // not about 50 times
  EXPECT_FALSE(fs::exists("a.h5.parts"));
  for (int repeat = 0; repeat < 100; ++repeat)
    EXPECT_TRUE(has("a.h5", fmt::format("ddp/x/{}/loss", repeat)));
  EXPECT_TRUE(is_complete("a.h5"));
}

TEST_F(ResultFileTest, KeepsPartsWhenThereIsNoRoomToJoinThem) {
  auto file = ResultFile::create("a.h5", run_planning({"x"}), 30'000);
  int repeat = 0;
  while (repeat < 100 && !fs::exists("a.h5.parts")) file->append(row("x", repeat++, 2000));
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlim_t free = limit.rlim_cur;
  limit.rlim_cur = fs::file_size("a.h5") - 1;
  const auto signalled = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &limit);
  const int last = repeat + 10;
  while (repeat < last) file->append(row("x", repeat++, 2000));
  const std::string error = error_of([&] { file->finish(); });
  limit.rlim_cur = free;
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, signalled);
  EXPECT_NE(error.find("trainsuite-results join a.h5"), std::string::npos) << error;
  EXPECT_NE(error_of([&] { file->append(row("x", 5)); }).find("already"), std::string::npos);
  file->finish();
  for (int number = 0; number < last; ++number)
    EXPECT_TRUE(has("a.h5", fmt::format("ddp/x/{}/loss", number)));
  EXPECT_EQ(std::distance(fs::directory_iterator("."), fs::directory_iterator()), 1);
}

TEST_F(ResultFileTest, DefaultPathsCarrySlurmIdsAndNeverCollide) {
  setenv("SLURM_JOB_ID", "77", 1);
  const std::string job = ResultFile::default_path("ddp");
  EXPECT_EQ(job.find("results/ddp-"), 0u);
  EXPECT_NE(job.find("Z-77.h5"), std::string::npos) << job;
  setenv("SLURM_ARRAY_JOB_ID", "70", 1);
  setenv("SLURM_ARRAY_TASK_ID", "4", 1);
  EXPECT_NE(ResultFile::default_path("ddp").find("Z-70_4.h5"), std::string::npos);
  setenv("SLURM_ARRAY_JOB_ID", "../a b/\n7", 1);
  setenv("SLURM_ARRAY_TASK_ID", "é/4_.-Z", 1);
  const std::string odd = ResultFile::default_path("ddp");
  EXPECT_NE(odd.find("Z-..ab7_4_.-Z.h5"), std::string::npos) << odd;
  unsetenv("SLURM_ARRAY_TASK_ID");
  unsetenv("SLURM_ARRAY_JOB_ID");
  unsetenv("SLURM_JOB_ID");
  std::set<std::string> paths;
  for (int count = 0; count < 5; ++count)
    paths.insert(ResultFile::create_default("ddp", run_planning({}))->path());
  EXPECT_EQ(paths.size(), 5u);
}

}  // namespace
}  // namespace trainsuite
