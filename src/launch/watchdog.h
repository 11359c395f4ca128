#pragma once
// A thread beside the training thread: it frees that thread from blocked calls when a rank fails,
// lets ranks agree to stop, and ends the job where a rank can do neither.
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "launch/world.h"

namespace trainsuite {

/// Why a run ends before its plan does.
struct Stop {
  int exit_code = 1;
  std::string reason;      // "SIGTERM", "--total-time-limit 60 s"
  bool time_over = false;  // a limit, no signal
};

struct WatchdogOptions {
  double leave_seconds = 30;         // after a failure or a case's limit, for all to leave the case
  double lost_seconds = 60;          // without a sign of life a rank counts as lost
  double stop_seconds = 15;          // after a stop was asked for, for all to reach its step
  std::function<int()> signal = {};  // the signal that this process was sent, 0: none
  std::function<std::optional<Stop>()> time_over = {};  // asked on rank 0
};

/// Ranks send each other signs of life, point to point on a communicator of their own. The thread
/// polls; it computes nothing and calls no CUDA but to abort a communicator.
class Watchdog {
 public:
  /// Collective.
  Watchdog(World& world, WatchdogOptions options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// On rank 0, where ranks do not leave a case: writes its row (the argument names the ranks and
  /// what they were doing) and returns the last words before all ranks are ended.
  using GiveUp = std::function<std::string(const std::string& late)>;
  /// The case that World::begin_case() began.
  void begin_case(GiveUp give_up);
  /// The case is settled on this rank. Does not return where the watchdog is giving it up.
  void end_case();

  /// On rank 0: a stop was asked for.
  std::optional<Stop> stop();

 private:
  using Clock = std::chrono::steady_clock;
  struct Message;
  struct Peer {
    Clock::time_point heard = Clock::now();
    std::int64_t epoch = 0;
    std::string doing;  // in words
    bool leaving = false;
  };
  enum class CaseState { none, open, given_up };

  void run();
  void tick();
  void send(int to, const Message& message);
  void send_to_all(const Message& message);
  void receive();
  void handle(int from, const Message& message);
  void show_life();
  void follow_signal();
  void adopt(const Stop& stop);
  void agree_on_step();
  void note_gate(int rank, std::int64_t epoch, std::int64_t next);
  void look_at_case();
  void look_at_root();
  std::string late_ranks(std::int64_t epoch) const;
  void give_up(std::int64_t epoch);

  World& world_;
  const WatchdogOptions options_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::list<std::pair<MPI_Request, std::vector<char>>> sending_;
  std::vector<Peer> peers_;
  Clock::time_point last_tick_ = Clock::now(), last_sign_{};
  bool signal_sent_ = false;
  bool stop_known_ = false;
  Clock::time_point stop_time_{};
  std::int64_t gate_told_ = -1;                                // the epoch whose gate was told
  std::map<std::int64_t, std::map<int, std::int64_t>> gates_;  // on rank 0: epoch, rank -> next
  std::int64_t failed_epoch_ = -1;
  Clock::time_point failed_time_{};

  std::mutex mutex_;  // of what follows
  CaseState state_ = CaseState::none;
  GiveUp give_up_;
  std::optional<Stop> stop_;
  bool ending_ = false;
  std::condition_variable end_;
  std::thread thread_;
};

}  // namespace trainsuite
