#pragma once
// The MPI session: who is here, and talking among ranks outside the measured path.
#include <mpi.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace trainsuite {

/// One MPI session. Every wait polls (5 ms sleeps once it lasts) and ends at a deadline with
/// Timeout, or with PeerFailed when another rank has reported a failure.
class World {
 public:
  /// Initialises MPI with MPI_THREAD_MULTIPLE; throws Error in words where it gets less.
  World(int* argc, char*** argv);
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

  /// A communicator for one case's collectives; abandoned, not freed, after a failure.
  MPI_Comm duplicate();

  void barrier();
  std::string broadcast(std::string text, int root = 0);
  /// On rank 0 every rank's text in rank order; empty elsewhere.
  std::vector<std::string> gather(const std::string& text);
  std::vector<std::string> all_gather(const std::string& text);
  /// True when every rank says true. The guard before each collective that a branch decides.
  bool agree(bool mine);

  /// Completes `request`, polling. Throws Timeout after `deadline()` seconds.
  void wait(MPI_Request& request, const char* what);
  /// Polls `done` in the same manner.
  void poll(const std::function<bool()>& done, const char* what);

  void set_deadline(double seconds) { deadline_seconds_ = seconds; }
  double deadline() const { return deadline_seconds_; }

  /// Tells all other ranks that this one failed; their waits throw PeerFailed(reason).
  void report_failure(const std::string& reason);
  /// Throws PeerFailed if another rank has reported a failure since the last clear. Cheap.
  void check_peers();
  /// Collective: all ranks have seen the case's failures; forget them.
  void clear_failures();

  /// Prints one line and ends all ranks. Never returns.
  [[noreturn]] void abort(int code, const std::string& message);

 private:
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1, thread_level_ = 0;
  std::string host_;
  double deadline_seconds_ = 1800;
  MPI_Comm control_ = MPI_COMM_NULL;   // barrier, broadcast, gather
  MPI_Comm failures_ = MPI_COMM_NULL;  // point-to-point failure notices
};

}  // namespace trainsuite
