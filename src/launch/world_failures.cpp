// Failure notices, the rendezvous that survives them, and what is made anew after one.
#include <algorithm>
#include <cstring>

#include "core/check_mpi.h"
#include "core/error.h"
#include "core/text.h"
#include "launch/tags.h"
#include "launch/world.h"

namespace trainsuite {
namespace {

constexpr size_t longest_reason_bytes = 1000;  // small messages leave without their receiver

void send_empty(int to, int tag, MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Isend(nullptr, 0, MPI_BYTE, to, tag, comm, &request), "MPI_Isend");
  check_mpi(MPI_Request_free(&request), "MPI_Request_free");
}

bool is_complete(MPI_Request& request) {
  int complete = 0;
  check_mpi(MPI_Test(&request, &complete, MPI_STATUS_IGNORE), "MPI_Test");
  return complete != 0;
}

std::string pending_ranks(const std::vector<MPI_Request>& requests) {
  std::vector<std::string> ranks;
  for (size_t r = 0; r < requests.size(); ++r) {
    if (requests[r] != MPI_REQUEST_NULL) ranks.push_back(fmt::format("rank {}", r));
  }
  return join(ranks, ", ");
}

}  // namespace

// Point to point through rank 0, so that a rank that does not come can be named.
void World::rendezvous(MPI_Comm comm, int tag, Watch watch, const char* what,
                       double deadline_seconds) {
  std::vector<MPI_Request> arrivals(static_cast<size_t>(size_), MPI_REQUEST_NULL);
  const auto receive_from = [&](int rank) {
    MPI_Request& request = arrivals[static_cast<size_t>(rank)];
    check_mpi(MPI_Irecv(nullptr, 0, MPI_BYTE, rank, tag, comm, &request), "MPI_Irecv");
  };
  const auto all_arrived = [&] {
    bool all = true;
    for (MPI_Request& request : arrivals) all = is_complete(request) && all;
    return all;
  };
  Patience patience;
  patience.deadline_seconds = deadline_seconds;
  patience.awaited = [&] { return pending_ranks(arrivals); };
  if (is_root()) {
    for (int r = 1; r < size_; ++r) receive_from(r);
    poll_watching(watch, all_arrived, what, patience);
    for (int r = 1; r < size_; ++r) send_empty(r, tag, comm);
  } else {
    send_empty(0, tag, comm);
    receive_from(0);
    patience.awaited = [] { return "rank 0 or a rank that it waits for"; };
    poll_watching(watch, all_arrived, what, patience);
  }
}

void World::barrier() {
  rendezvous(control_, tag_of(Tag::barrier), Watch::peers, "a barrier", deadline());
}

// Not given up when a peer fails: all ranks are here, and an abandoned duplication would be
// matched by the next one.
MPI_Comm World::duplicate_base() {
  auto fresh = std::make_shared<MPI_Comm>(MPI_COMM_NULL);
  abandoned_.push_back(fresh);  // MPI writes to it even after a Timeout
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Comm_idup(base_, fresh.get(), &request), "MPI_Comm_idup");
  poll_watching(Watch::nothing, [&] { return is_complete(request); }, "a new communicator", {});
  return *fresh;
}

MPI_Comm World::duplicate() {
  barrier();
  return duplicate_base();
}

void World::report_failure(const std::string& reason) {
  const std::lock_guard lock(notices_mutex_);
  if (!reported_) send_notice(reason);
}

void World::report_for_case(std::int64_t epoch, const std::string& reason) {
  const std::lock_guard lock(notices_mutex_);
  if (epoch != epoch_ || reported_) return;
  send_notice(reason);
  notices_.try_emplace(epoch_, rank_, reason);
}

void World::send_notice(const std::string& reason) {
  reported_ = true;
  std::string notice(sizeof epoch_, '\0');
  std::memcpy(notice.data(), &epoch_, sizeof epoch_);
  notice += reason.substr(0, longest_reason_bytes);
  sent_notices_.push_back(std::move(notice));
  const std::string& text = sent_notices_.back();
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(text.data(), static_cast<int>(text.size()), MPI_BYTE, r,
                        tag_of(Tag::failure), failures_, &request),
              "sending a failure notice");
    check_mpi(MPI_Request_free(&request), "MPI_Request_free");
  }
}

void World::collect_notices() {
  for (;;) {
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    check_mpi(
        MPI_Improbe(MPI_ANY_SOURCE, tag_of(Tag::failure), failures_, &found, &message, &status),
        "looking for failure notices");
    if (!found) return;
    int bytes = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    std::string notice(static_cast<size_t>(bytes), '\0');
    check_mpi(MPI_Mrecv(notice.data(), bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE),
              "receiving a failure notice");
    std::int64_t epoch = 0;
    std::memcpy(&epoch, notice.data(), sizeof epoch);
    // A rank that has cleared already may be one epoch ahead; its notice is kept for then.
    if (epoch >= epoch_) {
      notices_.try_emplace(epoch, status.MPI_SOURCE, notice.substr(sizeof epoch));
    }
  }
}

void World::check_peers() {
  check_time();
  const std::lock_guard lock(notices_mutex_);
  collect_notices();
  const auto notice = notices_.find(epoch_);
  if (notice == notices_.end()) return;
  fail<PeerFailed>("rank {} failed: {}", notice->second.first, notice->second.second);
}

bool World::failure_known() {
  const std::lock_guard lock(notices_mutex_);
  collect_notices();
  return reported_ || notices_.contains(epoch_);
}

void World::begin_case(double limit_seconds, bool trains) {
  const std::lock_guard lock(notices_mutex_);
  notices_.erase(notices_.begin(), notices_.upper_bound(epoch_));
  ++epoch_;
  reported_ = false;
  case_limit_seconds_ = limit_seconds;
  case_start_ = std::chrono::steady_clock::now();
  stop_gate_.begin_case(epoch_, trains);
}

std::int64_t World::epoch() {
  const std::lock_guard lock(notices_mutex_);
  return epoch_;
}

bool World::failed_in(std::int64_t epoch) {
  const std::lock_guard lock(notices_mutex_);
  return epoch == epoch_ && (reported_ || notices_.contains(epoch_));
}

double World::overdue_seconds() const {
  const double limit = case_limit_seconds_;
  if (limit <= 0) return 0;
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - case_start_.load();
  return std::max(0.0, taken.count() - limit);
}

void World::check_time() const {
  if (overdue_seconds() <= 0) return;
  fail<Timeout>("the case took longer than {:.4g} s", case_limit_seconds_.load());
}

void World::clear_failures() {
  rendezvous(failures_, tag_of(Tag::clear), Watch::nothing, "all ranks to leave the failed case",
             deadline());
  control_ = duplicate_base();  // the old one may hold abandoned operations, so it is not freed
  begin_case();
}

void World::free_blocked() {
  std::int64_t failed = 0;
  {
    const std::lock_guard lock(notices_mutex_);
    collect_notices();
    if (!reported_ && !notices_.contains(epoch_)) return;
    failed = epoch_;
  }
  // What was registered since belongs to a later case.
  const std::lock_guard lock(releases_mutex_);
  for (auto& [number, release] : releases_) {
    if (release.epoch <= failed) release.call();
  }
}

int World::on_failure(std::function<void()> release) {
  const std::int64_t now = epoch();
  const std::lock_guard lock(releases_mutex_);
  releases_[next_release_] = {now, std::move(release)};
  return next_release_++;
}

void World::forget_release(int number) {
  const std::lock_guard lock(releases_mutex_);
  releases_.erase(number);
}

}  // namespace trainsuite
