// World under mpirun with any number of ranks: texts, agreement, failures, deadlines.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "core/error.h"
#include "launch/same_everywhere.h"
#include "launch/world.h"

namespace {

using namespace trainsuite;

World* world = nullptr;

constexpr double patient_seconds = 60;  // far above what any step takes
constexpr double short_seconds = 0.3;

/// A rank that fails where the others wait; on one rank it is the same one.
int last() { return world->size() - 1; }

std::string long_text(int rank) {
  return std::string(3'000'000 + static_cast<size_t>(rank), static_cast<char>('a' + rank % 26));
}

/// The text of the PeerFailed that `work` throws, empty where it throws none.
template <class Work>
std::string peer_failure(Work work) {
  try {
    work();
  } catch (const PeerFailed& error) {
    return error.what();
  }
  return "";
}

TEST(World, LocalRanksCountTheRanksOfAHost) {
  const auto hosts = world->all_gather(world->host());
  int before = 0, all = 0;
  for (int r = 0; r < world->size(); ++r) {
    if (hosts[static_cast<size_t>(r)] != world->host()) continue;
    before += r < world->rank() ? 1 : 0;
    ++all;
  }
  EXPECT_EQ(world->local_rank(), before);
  EXPECT_EQ(world->local_size(), all);
  EXPECT_EQ(world->thread_level(), MPI_THREAD_MULTIPLE);
}

TEST(World, LessThanMultipleThreadsIsRefused) {
  EXPECT_NO_THROW(require_thread_multiple(MPI_THREAD_MULTIPLE));
  try {
    require_thread_multiple(MPI_THREAD_SERIALIZED);
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("only MPI_THREAD_SERIALIZED"), std::string::npos);
  }
}

TEST(World, BroadcastsTextsOfAnyLength) {
  const int root = last();
  for (const std::string& text : {std::string(), std::string("a\0b", 3), long_text(root)}) {
    const std::string mine = world->rank() == root ? text : "what the others had";
    EXPECT_EQ(world->broadcast(mine, root), text);
  }
}

TEST(World, GathersInRankOrderAlsoEmptyTexts) {
  const std::string mine = world->rank() % 2 == 0 ? "" : long_text(world->rank());
  const auto everywhere = world->all_gather(mine);
  const auto on_root = world->gather(mine);
  ASSERT_EQ(everywhere.size(), static_cast<size_t>(world->size()));
  ASSERT_EQ(on_root.size(), world->is_root() ? everywhere.size() : 0u);
  for (int r = 0; r < world->size(); ++r) {
    const std::string expected = r % 2 == 0 ? "" : long_text(r);
    EXPECT_TRUE(everywhere[static_cast<size_t>(r)] == expected) << "rank " << r;
    if (world->is_root()) {
      EXPECT_TRUE(on_root[static_cast<size_t>(r)] == expected) << "rank " << r;
    }
  }
}

TEST(World, AgreesOnlyWhenAllSayYes) {
  EXPECT_TRUE(world->agree(true));
  EXPECT_FALSE(world->agree(world->rank() != last()));
  EXPECT_FALSE(world->agree(false));
}

TEST(World, DuplicatesAreApart) {
  const MPI_Comm first = world->duplicate(), second = world->duplicate();
  int relation = MPI_IDENT;
  MPI_Comm_compare(first, second, &relation);
  EXPECT_EQ(relation, MPI_CONGRUENT);
}

/// The last rank fails while the others wait in `waiting`; all clear; then all talk again.
template <class Waiting>
void expect_all_leave(Waiting waiting, const std::string& reason) {
  world->begin_case();
  if (world->rank() == last()) {
    world->report_failure(reason);
    EXPECT_NO_THROW(world->check_peers()) << "its own failure is no peer's";
    EXPECT_TRUE(world->failure_known());
  } else {
    EXPECT_EQ(peer_failure(waiting), fmt::format("rank {} failed: {}", last(), reason));
    EXPECT_EQ(peer_failure([] { world->check_peers(); }).empty(), false) << "known until cleared";
  }
  world->clear_failures();
  EXPECT_FALSE(world->failure_known());
  EXPECT_NO_THROW(world->check_peers());
  EXPECT_EQ(world->broadcast(world->is_root() ? "again" : ""), "again");
  EXPECT_TRUE(world->agree(true));
  const MPI_Comm fresh = world->duplicate();
  int ranks = 1;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(MPI_IN_PLACE, &ranks, 1, MPI_INT, MPI_SUM, fresh, &request);
  world->wait(request, "a sum on the fresh communicator");
  EXPECT_EQ(ranks, world->size());
}

TEST(World, AFailingRankEndsTheOthersWaits) {
  expect_all_leave([] { world->barrier(); }, "out of memory");
  expect_all_leave([] { world->agree(true); }, "second failure");
  expect_all_leave([] { world->all_gather("text"); }, "");
  expect_all_leave([] { world->broadcast("text", last()); }, std::string(900, 'x'));
  expect_all_leave([] { world->duplicate(); }, "while the others duplicate");
}

TEST(World, AFailingRankEndsAnyPolledWait) {
  const auto never = [] { world->poll([] { return false; }, "what never comes"); };
  expect_all_leave(never, "bad data");
}

TEST(World, AFailureOfTheNextCaseDoesNotDisturbThisOne) {
  if (world->size() == 1) return;
  world->begin_case();
  if (world->rank() == last()) {  // has finished this case and fails in the next
    world->begin_case();
    world->report_failure("too early");
    // Only a barrier of this case tells the others that the notice is out: they are in it.
    world->clear_failures();
    return;
  }
  const auto patient = [] {
    world->poll(
        [started = std::chrono::steady_clock::now()] {
          return std::chrono::steady_clock::now() - started > std::chrono::milliseconds(200);
        },
        "the notice to arrive");
  };
  EXPECT_NO_THROW(patient());
  world->begin_case();
  EXPECT_THROW(world->check_peers(), PeerFailed);
  world->clear_failures();
}

TEST(World, ACaseThatTakesTooLongIsGivenUp) {
  world->begin_case(short_seconds);
  EXPECT_NO_THROW(world->check_time());
  EXPECT_THROW(world->poll([] { return false; }, "what never comes"), Timeout);
  EXPECT_THROW(world->check_time(), Timeout);
  EXPECT_THROW(world->check_peers(), Timeout);
  world->extend_case(patient_seconds);
  EXPECT_NO_THROW(world->check_time());
  world->begin_case();
  EXPECT_NO_THROW(world->check_time());
  world->clear_failures();
}

TEST(World, StaleNoticesAreIgnored) {
  // Reported, but nobody looks before all have cleared: the notice must not meet the next case.
  for (int i = 0; i < 20; ++i) {
    world->report_failure("everybody's own failure");
    world->clear_failures();
    EXPECT_NO_THROW(world->check_peers());
    EXPECT_TRUE(world->agree(true));
    EXPECT_NO_THROW(world->barrier());
  }
}

TEST(World, ADeadlineIsATimeoutThatNamesTheMissing) {
  if (world->size() == 1 || world->rank() != last()) {
    world->set_deadline(short_seconds);
    try {
      world->size() > 1 ? world->barrier() : world->poll([] { return false; }, "a barrier");
      ADD_FAILURE() << "no Timeout";
    } catch (const Timeout& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("a barrier"), std::string::npos) << text;
      const std::string missing = world->size() == 1 ? "" : fmt::format("rank {}", last());
      if (world->is_root()) {
        EXPECT_NE(text.find(missing), std::string::npos) << text;
      }
    }
    world->set_deadline(patient_seconds);
  }
  world->clear_failures();
  EXPECT_TRUE(world->agree(true));
}

TEST(World, DifferentSettingsAreNamedOnEveryRank) {
  const Settings alike = {{"steps", std::int64_t{50}}, {"learning_rate", 1e-4}, {"json", false}};
  EXPECT_NO_THROW(check_same_everywhere(*world, alike));
  Settings mine = alike;
  if (world->rank() == last()) mine[1].value = 3e-4;
  if (world->size() == 1) return check_same_everywhere(*world, mine);
  try {
    check_same_everywhere(*world, mine);
    ADD_FAILURE() << "not noticed";
  } catch (const UsageError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("learning_rate differs: 0.0001 on rank"), std::string::npos) << text;
    EXPECT_NE(text.find(fmt::format("0.0003 on rank {}", last())), std::string::npos) << text;
  }
  EXPECT_TRUE(world->agree(true));
}

TEST(World, ASettingThatOneRankLacksIsNamed) {
  const Settings full = {{"steps", std::int64_t{50}}, {"torch", std::string("2.11.0")}};
  const Settings less = {{"steps", std::int64_t{50}}};
  EXPECT_EQ(first_difference({settings_text(less), settings_text(full), settings_text(less)}),
            "torch differs: absent on ranks 0, 2; 2.11.0 on rank 1");
  EXPECT_EQ(first_difference({settings_text(full), settings_text(full)}), "");
}

// Last: leaves operations that never complete; the program must end all the same.
TEST(World, ZAbandonedOperationsDoNotHoldUpTheEnd) {
  static int value = 1, sum = 0;  // MPI may still touch them
  const MPI_Comm comm = world->duplicate();
  if (world->rank() != last()) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
    Patience patience;
    patience.deadline_seconds = short_seconds;
    EXPECT_THROW(world->wait(request, "the last rank", patience), Timeout);
  }
  world->clear_failures();
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  World session(&argc, &argv);
  world = &session;
  world->set_deadline(patient_seconds);
  const bool passed = RUN_ALL_TESTS() == 0;
  return world->agree(passed) ? 0 : 1;
}
