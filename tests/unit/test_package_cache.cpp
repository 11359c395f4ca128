// The cache of compiled packages, with a stand-in for capture.py that writes what it is asked for.
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "compile/held_folder.h"
#include "compile/package_cache.h"
#include "compile/remove_tree.h"
#include "core/error.h"

namespace trainsuite {
namespace {

namespace fs = std::filesystem;

// Appends a line to "runs" beside itself at each start; packages hold the request's text.
constexpr const char* stand_in = R"(#!/bin/sh
here=$(dirname "$0")
echo run >> "$here/runs"
[ -e "$here/fails" ] && { echo "the reason of it"; exit 3; }
[ -e "$here/sleeps" ] && sleep 60
for block in one two; do
  mkdir -p "$2/$block"
  cat "$1" > "$2/$block/forward.pt2"
  echo backward > "$2/$block/backward.pt2"
  echo '{"outputs": [0, 1]}' > "$2/$block/backward.json"
done
echo '{"import": 1.5, "trace": 0.5}' > "$2/timing.json"
)";

class PackageCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "trainsuite-cache-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    std::ofstream(folder_ / "capture.py") << stand_in;
    std::ofstream(folder_ / "ops.so") << "operators";
    tools_ = {"/bin/sh", folder_ / "capture.py", folder_ / "ops.so", "2.0"};
    one_ = {"one", "op", {{{2, 3}, at::kFloat, true}}, {TensorAt{0}}};
    two_ = {"two", "op", {{{2, 3}, at::kBFloat16, true}}, {TensorAt{0}, std::int64_t{4}}};
  }
  void TearDown() override { remove_tree(folder_); }

  PackageCache cache(double lock_seconds = 30) const {
    return PackageCache(folder_ / "cache", tools_, {}, lock_seconds);
  }
  int runs() const {
    std::ifstream file(folder_ / "runs");
    int count = 0;
    for (std::string line; std::getline(file, line);) ++count;
    return count;
  }
  /// Names in the cache that are no entry, lock, log or work folder.
  int leftovers() const {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(folder_ / "cache")) {
      const auto name = entry.path().filename().string();
      count += name.starts_with("making") || name.starts_with("old");
    }
    return count;
  }

  fs::path folder_;
  CompileTools tools_;
  BlockRequest one_, two_;
  CompileTarget target_;
};

void nothing() {}

TEST_F(PackageCacheTest, MakesWhatIsMissingOnceAndFindsIt) {
  const auto first = cache().ensure(target_, {one_, two_}, nothing);
  EXPECT_TRUE(first.compiled);
  EXPECT_EQ(first.seconds.at("import"), 1.5);
  const auto second = cache().ensure(target_, {one_, two_}, nothing);
  EXPECT_FALSE(second.compiled);
  EXPECT_TRUE(second.seconds.empty());
  EXPECT_EQ(runs(), 1);
  const auto packages = cache().find(target_, two_);
  EXPECT_TRUE(fs::exists(packages.forward));
  EXPECT_EQ(packages.gradients, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(leftovers(), 0);
}

TEST_F(PackageCacheTest, KeyHoldsAllThatThePackagesDependOn) {
  const auto base = cache().key(target_, one_);
  auto other = one_;
  other.tensors[0].shape = {3, 2};
  EXPECT_NE(cache().key(target_, other), base);
  other = one_;
  other.tensors[0].dtype = at::kBFloat16;
  EXPECT_NE(cache().key(target_, other), base);
  other = one_;
  other.arguments.push_back(true);
  EXPECT_NE(cache().key(target_, other), base);
  auto target = target_;
  target.architecture = "sm_90";
  EXPECT_NE(cache().key(target, one_), base);
  target = target_;
  target.attention = "flash";
  EXPECT_NE(cache().key(target, one_), base);
  target = target_;
  target.ordinal = 3;
  EXPECT_EQ(cache().key(target, one_), base) << "packages run on any GPU of the architecture";

  auto without_attention = one_;
  without_attention.attention = false;
  target = target_, target.attention = "another";
  EXPECT_NE(cache().key(target, one_), base);
  EXPECT_EQ(cache().key(target, without_attention), cache().key(target_, without_attention));
  tools_.torch_version = "2.1";
  EXPECT_NE(cache().key(target_, one_), base);
  tools_.torch_version = "2.0";
  EXPECT_EQ(cache().key(target_, one_), base);
  std::ofstream(folder_ / "ops.so") << "other operators";
  EXPECT_NE(cache().key(target_, one_), base);
}

TEST_F(PackageCacheTest, DamagedPackagesAreRebuiltAndSaidSo) {
  cache().ensure(target_, {one_, two_}, nothing);
  const auto damaged = cache().find(target_, one_).forward;
  std::ofstream(damaged, std::ios::app) << "x";
  EXPECT_FALSE(cache().has(target_, one_));
  const auto report = cache().ensure(target_, {one_, two_}, nothing);
  EXPECT_TRUE(report.compiled);
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_NE(report.notes[0].find("forward.pt2 differs from its checksum"), std::string::npos);
  EXPECT_TRUE(cache().has(target_, one_));
  EXPECT_EQ(leftovers(), 0);
}

TEST_F(PackageCacheTest, JobsAtTheSameTimeCompileOnce) {
  std::vector<std::thread> jobs;
  for (int i = 0; i < 4; ++i) {
    jobs.emplace_back([&] { cache().ensure(target_, {one_, two_}, nothing); });
  }
  for (auto& job : jobs) job.join();
  EXPECT_EQ(runs(), 1);
}

TEST_F(PackageCacheTest, AWaitForAnotherJobIsToldFromAHit) {
  fs::create_directories(folder_ / "cache");
  const auto lock = folder_ / "cache" / (cache().key(target_, one_) + ".lock");
  FILE* other = fopen(lock.c_str(), "w");
  ASSERT_EQ(flock(fileno(other), LOCK_EX), 0);
  const auto report = cache().ensure(target_, {one_}, [&] {
    if (other == nullptr) return;
    cache(/*lock_seconds=*/0).ensure(target_, {one_}, nothing);  // the other job's work
    fclose(std::exchange(other, nullptr));
  });
  EXPECT_EQ(runs(), 1);
  EXPECT_FALSE(report.compiled);
  EXPECT_TRUE(report.waited);
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_FALSE(cache().ensure(target_, {one_}, nothing).waited);
}

TEST_F(PackageCacheTest, ALockThatStaysTakenDoesNotStopTheRun) {
  fs::create_directories(folder_ / "cache");
  const auto lock = folder_ / "cache" / (cache().key(target_, one_) + ".lock");
  std::ofstream(lock) << "";
  FILE* other = fopen(lock.c_str(), "r+");
  ASSERT_EQ(flock(fileno(other), LOCK_EX), 0);
  const auto report = cache(/*lock_seconds=*/0.1).ensure(target_, {one_}, nothing);
  fclose(other);
  EXPECT_TRUE(report.compiled);
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_NE(report.notes[0].find("compiled without waiting for others"), std::string::npos);
}

TEST_F(PackageCacheTest, AFailureNamesTheBlockTheReasonAndTheLog) {
  std::ofstream(folder_ / "fails") << "";
  try {
    cache().ensure(target_, {one_}, nothing);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("compiling one failed (exit status 3): the reason of it"),
              std::string::npos)
        << text;
    const auto log = text.substr(text.rfind(' ') + 1);
    EXPECT_TRUE(fs::exists(log)) << log;
  }
  EXPECT_FALSE(cache().has(target_, one_));
  EXPECT_EQ(leftovers(), 0);
}

TEST_F(PackageCacheTest, AWaitThatIsGivenUpEndsTheCompilation) {
  std::ofstream(folder_ / "sleeps") << "";
  const auto started = std::chrono::steady_clock::now();
  EXPECT_THROW(cache().ensure(target_, {one_},
                              [&] {
                                if (runs() == 1) fail("enough");
                              }),
               Error);
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(50));
  EXPECT_EQ(leftovers(), 0);
}

/// A process that holds a folder and is killed.
void make_abandoned(const fs::path& parent, const std::string& name) {
  const pid_t child = fork();
  if (child == 0) {
    const HeldFolder held(parent, name);
    fs::create_directories(held.path() / "made");
    std::ofstream(held.path() / "made" / "forward.pt2") << "half of it";
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
}

TEST_F(PackageCacheTest, WhatAKilledProcessLeftIsRemovedAndNothingElse) {
  const auto parent = folder_ / "cache";
  cache().ensure(target_, {one_, two_}, nothing);
  for (const char* name : {"making-1", "cold-2", "old-3"}) make_abandoned(parent, name);
  ASSERT_TRUE(fs::exists(parent / "making-1" / "made" / "forward.pt2"));
  fs::create_directories(parent / "making-4");  // of a version that knew no locks
  {
    const HeldFolder first(parent, "cold-5"), second(parent, "cold-5");  // two hosts' processes
    fs::create_directories(first.path() / "logs");
    remove_abandoned(parent);
    EXPECT_TRUE(fs::exists(first.path() / "logs"));
    for (const char* name : {"making-1", "cold-2", "old-3", "making-4"}) {
      EXPECT_FALSE(fs::exists(parent / name)) << name;
      EXPECT_FALSE(fs::exists(parent / (std::string(name) + ".lock"))) << name;
    }
  }
  EXPECT_FALSE(fs::exists(parent / "cold-5"));
  EXPECT_FALSE(fs::exists(parent / "cold-5.lock"));
  EXPECT_TRUE(cache().has(target_, one_)) << "packages stay";
  EXPECT_TRUE(fs::exists(parent / (cache().key(target_, one_) + ".lock")));
}

TEST_F(PackageCacheTest, LogsCanBeKeptElsewhere) {
  std::ofstream(folder_ / "fails") << "";
  const PackageCache cold(folder_ / "cache" / "cold-1", tools_, folder_ / "logs", 30);
  EXPECT_THROW(cold.ensure(target_, {one_}, nothing), Error);
  EXPECT_TRUE(fs::exists(folder_ / "logs" / (cold.key(target_, one_) + ".log")));
}

}  // namespace
}  // namespace trainsuite
