#include "launch/world.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "core/check_mpi.h"
#include "core/error.h"
#include "launch/tags.h"

namespace trainsuite {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double longest_sleep_seconds = 5e-3;
constexpr double leave_after_failure_seconds = 10;
constexpr unsigned longest_abort_seconds = 10;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

MPI_Comm duplicate_of_world(const char* what) {
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), what);
  return comm;
}

}  // namespace

void require_thread_multiple(int provided) {
  if (provided >= MPI_THREAD_MULTIPLE) return;
  const char* level = provided == MPI_THREAD_SERIALIZED ? "MPI_THREAD_SERIALIZED"
                      : provided == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED"
                                                        : "MPI_THREAD_SINGLE";
  fail(
      "this MPI library gives only {}; trainsuite needs MPI_THREAD_MULTIPLE: use an MPI that "
      "was built with thread support",
      level);
}

World::World(int* argc, char*** argv) {
  check_mpi(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &thread_level_), "MPI_Init_thread");
  if (thread_level_ < MPI_THREAD_MULTIPLE) MPI_Finalize();  // the destructor will not run
  require_thread_multiple(thread_level_);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);  // duplicates inherit it
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");

  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  check_mpi(MPI_Comm_rank(node, &local_rank_), "MPI_Comm_rank of the host");
  check_mpi(MPI_Comm_size(node, &local_size_), "MPI_Comm_size of the host");
  check_mpi(MPI_Comm_free(&node), "MPI_Comm_free");

  char name[MPI_MAX_PROCESSOR_NAME];
  int length = 0;
  check_mpi(MPI_Get_processor_name(name, &length), "MPI_Get_processor_name");
  host_.assign(name, static_cast<size_t>(length));

  base_ = duplicate_of_world("MPI_Comm_dup");
  control_ = duplicate_of_world("MPI_Comm_dup");
  failures_ = duplicate_of_world("MPI_Comm_dup");
}

World::~World() {
  try {
    const double limit = failure_known() ? std::min(deadline_seconds_, leave_after_failure_seconds)
                                         : deadline_seconds_;
    // Not on control_, where an abandoned barrier may still wait for its ranks.
    rendezvous(failures_, tag_of(Tag::leave), Watch::nothing, "all ranks to leave", limit);
  } catch (const std::exception& error) {
    abort(1, error.what());
  }
  MPI_Finalize();
}

void World::poll_watching(Watch watch, const std::function<bool()>& done, const char* what,
                          const Patience& patience) {
  const auto start = Clock::now();
  const double limit = patience.deadline_seconds > 0 ? patience.deadline_seconds : deadline();
  while (!done()) {
    const double waited = seconds_since(start);
    if (watch == Watch::peers) {
      try {
        check_peers();
      } catch (const Timeout& error) {
        if (waited < 0.1) throw;  // the wait itself was not the reason
        const std::string awaited = patience.awaited ? "; missing: " + patience.awaited() : "";
        fail<Timeout>("{} (rank {} waited {:.3g} s for {}{})", error.what(), rank_, waited, what,
                      awaited);
      }
    }
    if (waited >= limit) {
      const std::string awaited = patience.awaited ? "; missing: " + patience.awaited() : "";
      fail<Timeout>("rank {} waited {:.3g} s for {}{}", rank_, waited, what, awaited);
    }
    if (waited < patience.busy_seconds) {
      sched_yield();
    } else {
      const double pause = std::clamp(waited, 20e-6, longest_sleep_seconds);
      std::this_thread::sleep_for(std::chrono::duration<double>(pause));
    }
  }
}

void World::poll(const std::function<bool()>& done, const char* what, const Patience& patience) {
  poll_watching(Watch::peers, done, what, patience);
}

void World::wait(MPI_Request& request, const char* what, const Patience& patience) {
  const auto done = [&] {
    int complete = 0;
    check_mpi(MPI_Test(&request, &complete, MPI_STATUS_IGNORE), what);
    return complete != 0;
  };
  poll(done, what, patience);
}

void World::enter(const char* phase, std::int64_t step) {
  phase_ = phase;
  step_ = step;
  entered_ = Clock::now();
}

Activity World::activity() const {
  return {phase_.load(), step_.load(), seconds_since(entered_.load())};
}

void World::pass_gate(std::int64_t index) {
  const auto wait = [this](const std::function<bool()>& decided) {
    poll(decided, "the ranks to agree on the step to stop before");
  };
  if (!stop_gate_.stops_before(index, wait)) return;
  fail<Stopped>("stopped before step {}", index);
}

void World::abort(int code, const std::string& message) {
  // One write, so that lines of several ranks do not mix.
  const std::string line = fmt::format("trainsuite: rank {} on {}: {}\n", rank_, host_, message);
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  std::signal(SIGALRM, SIG_DFL);
  alarm(longest_abort_seconds);                    // ends this rank where MPI_Abort itself hangs
  if (size_ > 1) MPI_Abort(MPI_COMM_WORLD, code);  // alone it would only add lines of its own
  _exit(code);
}

}  // namespace trainsuite
