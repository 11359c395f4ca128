#pragma once
// The MPI session: who is here, and talking among ranks outside the measured path.
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/stop_gate.h"

namespace trainsuite {

/// How a wait polls. It yields the core for `busy_seconds`, then sleeps between polls, as long as
/// it has waited so far, 5 ms at most.
struct Patience {
  double busy_seconds = 50e-6;
  double deadline_seconds = 0;             // 0: World::deadline()
  std::function<std::string()> awaited{};  // for the Timeout's text: which ranks are missing
};

/// The phase of a rank that has ended a case, or given it up, and comes to the others.
inline constexpr const char* leaving_phase = "leaving the case";

/// What a rank is doing, for words about one that is late.
struct Activity {
  const char* phase = "set-up";
  std::int64_t step = -1;  // -1: outside the loop
  double seconds = 0;      // since it began that
};

/// Throws Error in words unless `provided` is MPI_THREAD_MULTIPLE.
void require_thread_multiple(int provided);

/// One MPI session. Every wait polls and ends at a deadline with Timeout, or with PeerFailed when
/// another rank has reported a failure. After either, all ranks must call clear_failures() before
/// they talk again: what was under way is abandoned, its buffers stay alive.
class World {
 public:
  /// Initialises MPI with MPI_THREAD_MULTIPLE; throws Error in words where it gets less.
  World(int* argc, char*** argv);
  /// Waits until all ranks leave, then finalises MPI; where one does not come (deadline(), or 10 s
  /// after a failure that was not cleared), says so and ends all ranks.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  const std::string& host() const { return host_; }
  bool is_root() const { return rank_ == 0; }
  int thread_level() const { return thread_level_; }

  /// A communicator for one case's collectives; abandoned, not freed, after a failure. Collective.
  MPI_Comm duplicate();

  void barrier();
  std::string broadcast(std::string text, int root = 0);
  /// On rank 0 every rank's text in rank order; empty elsewhere. Together below 2 GiB.
  std::vector<std::string> gather(const std::string& text);
  std::vector<std::string> all_gather(const std::string& text);
  /// True when every rank says true. The guard before each collective that a branch decides.
  bool agree(bool mine);

  /// Completes `request`, polling. Throws Timeout after the deadline; the request is then
  /// abandoned and its buffers must stay alive.
  void wait(MPI_Request& request, const char* what, const Patience& patience = {});
  /// Polls `done` in the same manner.
  void poll(const std::function<bool()>& done, const char* what, const Patience& patience = {});

  void set_deadline(double seconds) { deadline_seconds_ = seconds; }
  double deadline() const { return deadline_seconds_; }

  /// Tells all other ranks that this one failed; their waits throw PeerFailed(reason). Does not
  /// wait. Only the first report since the last clear is sent. Not to be called for a PeerFailed.
  void report_failure(const std::string& reason);
  /// Throws PeerFailed ("rank 2 failed: ...") if another rank has reported a failure since the
  /// last clear. Cheap.
  void check_peers();
  /// This rank reported a failure, or heard of one, since the last clear.
  bool failure_known();
  /// Every rank calls it at the start of each case, without communication: a failure belongs to the
  /// case in which it is reported, so a rank that is ahead cannot disturb one that still finishes
  /// the case before. From now on check_peers() and waits throw Timeout once the case has taken
  /// `limit_seconds` (0: no limit).
  /// `trains`: this rank passes the stop gate before each of its steps.
  void begin_case(double limit_seconds = 0, bool trains = false);
  /// A rank whose work is done waits longer, so that the late rank speaks first.
  void extend_case(double seconds) { case_limit_seconds_ = case_limit_seconds_ + seconds; }
  /// The case's limit alone, without talking: cheap enough for every step.
  void check_time() const;
  /// Collective: waits for all ranks, forgets their failures and makes a fresh communicator for
  /// barrier, broadcast and gather. Throws Timeout naming the ranks that did not come.
  void clear_failures();

  /// What this rank does from now on; `phase` is a literal. Cheap enough for every step.
  void enter(const char* phase, std::int64_t step = -1);
  Activity activity() const;
  /// Before step `index`: throws Stopped where all ranks agreed to stop there.
  void pass_gate(std::int64_t index);
  StopGate& stop_gate() { return stop_gate_; }

  /// For the watchdog, from its own thread. The case that begin_case() began last, counted.
  std::int64_t epoch();
  /// Whether a failure of that case is known, this rank's own included.
  bool failed_in(std::int64_t epoch);
  /// Seconds by which the case is over its limit; 0 where it is not.
  double overdue_seconds() const;
  /// As report_failure, if the case is still `epoch`; this rank's own waits end too.
  void report_for_case(std::int64_t epoch, const std::string& reason);
  /// A failure of the present case is known: calls what on_failure() was given before it.
  void free_blocked();
  /// `release` frees this rank's thread from calls that wait for other ranks within a library. It
  /// is called from another thread, perhaps often. Returns what forget_release() takes.
  int on_failure(std::function<void()> release);
  void forget_release(int number);

  /// Prints one line and ends all ranks. Never returns.
  [[noreturn]] void abort(int code, const std::string& message);

 private:
  enum class Watch { peers, nothing };
  void poll_watching(Watch watch, const std::function<bool()>& done, const char* what,
                     const Patience& patience);
  void rendezvous(MPI_Comm comm, int tag, Watch watch, const char* what, double deadline_seconds);
  std::vector<std::string> gather_texts(const std::string& text, bool everywhere);
  void wait_keeping(MPI_Request& request, const char* what, std::shared_ptr<void> buffers);
  void collect_notices();
  void send_notice(const std::string& reason);
  MPI_Comm duplicate_base();

  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1, thread_level_ = 0;
  std::string host_;
  double deadline_seconds_ = 1800;
  std::atomic<double> case_limit_seconds_ = 0;  // 0: none
  std::atomic<std::chrono::steady_clock::time_point> case_start_ = std::chrono::steady_clock::now();
  std::atomic<const char*> phase_ = Activity().phase;
  std::atomic<std::int64_t> step_ = -1;
  std::atomic<std::chrono::steady_clock::time_point> entered_ = std::chrono::steady_clock::now();
  StopGate stop_gate_;
  MPI_Comm base_ = MPI_COMM_NULL;      // only duplicated, so its duplications always match
  MPI_Comm control_ = MPI_COMM_NULL;   // barrier, broadcast, gather; replaced after a failure
  MPI_Comm failures_ = MPI_COMM_NULL;  // point-to-point failure notices

  std::mutex notices_mutex_;
  std::int64_t epoch_ = 0;  // counts cases and clears; a notice of an earlier epoch is stale
  bool reported_ = false;   // this rank failed in this epoch
  std::map<std::int64_t, std::pair<int, std::string>> notices_;  // epoch -> first rank, reason
  std::list<std::string> sent_notices_;                          // alive until MPI has sent them
  struct Release {
    std::int64_t epoch;
    std::function<void()> call;
  };
  std::mutex releases_mutex_;
  std::map<int, Release> releases_;
  int next_release_ = 0;
  std::vector<std::shared_ptr<void>> abandoned_;  // buffers of operations that never completed
};

}  // namespace trainsuite
