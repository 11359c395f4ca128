#include "launch/watchdog.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "core/error.h"
#include "core/text.h"
#include "launch/watchdog_message.h"

namespace trainsuite {
namespace {

constexpr auto tick_time = std::chrono::milliseconds(50);
constexpr double silent_seconds = 5;  // without one, a late rank is said to be silent
constexpr double frozen_seconds = 5;  // a thread that slept longer itself judges nobody by time
constexpr double slack_seconds = 1;   // beyond a limit that the training thread itself looks at
constexpr double hurried_leave_seconds = 10;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number) : std::string("SIG") + name;
}

}  // namespace

Watchdog::Watchdog(World& world, WatchdogOptions options)
    : world_(world),
      options_(std::move(options)),
      comm_(world.duplicate()),
      peers_(static_cast<size_t>(world.size())) {
  thread_ = std::thread([this] { run(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  end_.notify_all();
  thread_.join();
  // comm_ is not freed: signs of life may still be under way on it.
}

void Watchdog::begin_case(GiveUp give_up) {
  const std::lock_guard lock(mutex_);
  state_ = CaseState::open;
  give_up_ = std::move(give_up);
}

void Watchdog::end_case() {
  std::unique_lock lock(mutex_);
  while (state_ == CaseState::given_up) end_.wait(lock);  // the watchdog ends this process
  state_ = CaseState::none;
}

std::optional<Stop> Watchdog::stop() {
  const std::lock_guard lock(mutex_);
  return stop_;
}

void Watchdog::run() {
  try {
    for (std::unique_lock lock(mutex_); !ending_; end_.wait_for(lock, tick_time)) {
      lock.unlock();
      tick();
      lock.lock();
    }
  } catch (const std::exception& error) {
    world_.abort(1, fmt::format("the watchdog failed: {}", error.what()));
  }
}

void Watchdog::tick() {
  receive();
  if (seconds_since(last_tick_) > frozen_seconds) {  // stopped, or the machine slept
    for (Peer& peer : peers_) peer.heard = Clock::now();
  }
  last_tick_ = Clock::now();
  show_life();
  follow_signal();
  agree_on_step();
  world_.free_blocked();
  look_at_case();
  look_at_root();
}

void Watchdog::follow_signal() {
  const int number = signal_sent_ || !options_.signal ? 0 : options_.signal();
  if (number != 0) {
    signal_sent_ = true;
    const Stop stop{128 + number, signal_name(number)};
    if (world_.is_root()) {
      adopt(stop);
    } else {
      Message wanted{.kind = Message::Kind::stop_wanted, .code = stop.exit_code};
      wanted.set_text(stop.reason);
      send(0, wanted);
    }
  }
  if (!world_.is_root() || stop_known_ || !options_.time_over) return;
  if (const auto stop = options_.time_over()) adopt(*stop);
}

void Watchdog::adopt(const Stop& stop) {
  if (stop_known_) return;
  stop_known_ = true;
  stop_time_ = Clock::now();
  {
    const std::lock_guard lock(mutex_);
    stop_ = stop;
  }
  std::fputs(fmt::format("trainsuite: {}: stopping\n", stop.reason).c_str(), stderr);
  send_to_all({.kind = Message::Kind::stop, .code = stop.exit_code});
}

void Watchdog::agree_on_step() {
  if (!stop_known_ || gate_told_ == world_.epoch()) return;
  const auto frozen = world_.stop_gate().freeze();
  gate_told_ = frozen.epoch;
  if (world_.is_root()) {
    note_gate(0, frozen.epoch, frozen.next);
  } else {
    send(0, {.kind = Message::Kind::gate, .epoch = frozen.epoch, .step = frozen.next});
  }
}

void Watchdog::note_gate(int rank, std::int64_t epoch, std::int64_t next) {
  auto& told = gates_[epoch];
  told[rank] = next;
  if (static_cast<int>(told.size()) < world_.size()) return;
  const auto last = std::max_element(
      told.begin(), told.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  send_to_all({.kind = Message::Kind::stop_step, .epoch = epoch, .step = last->second});
  world_.stop_gate().decide(epoch, last->second);
}

/// Limits that the training thread cannot see while it is blocked.
void Watchdog::look_at_case() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != CaseState::open) return;
  }
  const std::int64_t epoch = world_.epoch();
  if (world_.overdue_seconds() > slack_seconds) {
    world_.report_for_case(
        epoch, fmt::format("the case is over its time limit: {}", in_words(world_.activity())));
  }
  if (!world_.is_root()) return;
  for (size_t r = 1; r < peers_.size(); ++r) {
    const double silence = seconds_since(peers_[r].heard);
    if (silence < options_.lost_seconds) continue;
    world_.report_for_case(epoch, fmt::format("rank {} gave no sign of life for {:.0f} s; last: {}",
                                              r, silence, peers_[r].doing));
  }
  if (stop_known_ && seconds_since(stop_time_) > options_.stop_seconds) {
    world_.report_for_case(epoch, "not all ranks reached the step to stop before");
  }
  if (!world_.failed_in(epoch)) return;
  if (failed_epoch_ != epoch) {
    failed_epoch_ = epoch;
    failed_time_ = Clock::now();
  }
  // Who asked for a stop does not wait long either: Slurm kills 30 s after its SIGTERM.
  const double patience = stop_known_ ? std::min(options_.leave_seconds, hurried_leave_seconds)
                                      : options_.leave_seconds;
  if (seconds_since(failed_time_) > patience) give_up(epoch);
}

/// "rank 1 (training, step 4, for 14 s), rank 3 (silent for 9 s; last: set-up, for 2 s)".
std::string Watchdog::late_ranks(std::int64_t epoch) const {
  std::vector<std::string> late;
  const Activity mine = world_.activity();
  if (!is_leaving(mine)) late.push_back(fmt::format("rank 0 ({})", in_words(mine)));
  for (size_t r = 1; r < peers_.size(); ++r) {
    const Peer& peer = peers_[r];
    const double silence = seconds_since(peer.heard);
    if (silence > silent_seconds) {
      late.push_back(fmt::format("rank {} (silent for {:.0f} s; last: {})", r, silence,
                                 peer.doing.empty() ? "nothing" : peer.doing));
    } else if (peer.epoch < epoch || (peer.epoch == epoch && !peer.leaving)) {
      late.push_back(fmt::format("rank {} ({})", r, peer.doing));
    }
  }
  return join(late, ", ");
}

void Watchdog::give_up(std::int64_t epoch) {
  auto late = late_ranks(epoch);
  if (late.empty()) {  // all leave, slowly
    if (seconds_since(failed_time_) < 3 * options_.leave_seconds) return;
    late = "the ranks do not come together";
  } else {
    late += " did not leave the case";
  }
  GiveUp last_words;
  int code = 1;
  {
    const std::lock_guard lock(mutex_);
    if (state_ != CaseState::open) return;
    state_ = CaseState::given_up;
    last_words = give_up_;
    if (stop_) code = stop_->exit_code;
  }
  std::string line;
  try {
    line = last_words(late);
  } catch (const std::exception& error) {
    line = fmt::format("{}; {}", late, error.what());
  }
  world_.abort(code, line);
}

void Watchdog::look_at_root() {
  if (world_.is_root()) return;
  const double silence = seconds_since(peers_[0].heard);
  if (silence < options_.lost_seconds) return;
  world_.abort(1, fmt::format("rank 0 gave no sign of life for {:.0f} s; all ranks end", silence));
}

}  // namespace trainsuite
