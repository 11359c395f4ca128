// The watchdogs' messages: sent without waiting, received by looking.
#include <cstring>
#include <string_view>

#include "core/check_mpi.h"
#include "core/error.h"
#include "launch/watchdog_message.h"

namespace trainsuite {
namespace {

constexpr double sign_seconds = 1;  // between signs of life
constexpr int tag = 0;

}  // namespace

std::string in_words(const Activity& activity) {
  const auto step = activity.step < 0 ? std::string() : fmt::format(", step {}", activity.step);
  return fmt::format("{}{}, for {:.0f} s", activity.phase, step, activity.seconds);
}

bool is_leaving(const Activity& activity) {
  return std::string_view(activity.phase) == leaving_phase;
}

void Watchdog::send(int to, const Message& message) {
  sending_.remove_if([](auto& sent) {
    int done = 0;
    check_mpi(MPI_Test(&sent.first, &done, MPI_STATUS_IGNORE), "the watchdog's message");
    return done != 0;
  });
  auto& [request, bytes] = sending_.emplace_back(MPI_REQUEST_NULL, sizeof message);
  std::memcpy(bytes.data(), &message, sizeof message);
  check_mpi(
      MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to, tag, comm_, &request),
      "the watchdog's message");
}

void Watchdog::send_to_all(const Message& message) {
  for (int r = 0; r < world_.size(); ++r) {
    if (r != world_.rank()) send(r, message);
  }
}

void Watchdog::receive() {
  for (;;) {
    int found = 0;
    MPI_Status status;
    MPI_Message handle_ = MPI_MESSAGE_NULL;
    check_mpi(MPI_Improbe(MPI_ANY_SOURCE, tag, comm_, &found, &handle_, &status),
              "the watchdog's messages");
    if (!found) return;
    Message message;
    check_mpi(MPI_Mrecv(&message, sizeof message, MPI_BYTE, &handle_, MPI_STATUS_IGNORE),
              "the watchdog's messages");
    handle(status.MPI_SOURCE, message);
  }
}

void Watchdog::handle(int from, const Message& message) {
  Peer& peer = peers_[static_cast<size_t>(from)];
  peer.heard = Clock::now();
  if (message.kind == Message::Kind::sign) {
    peer.epoch = message.epoch;
    peer.doing = message.text;
    peer.leaving = message.code != 0;
  } else if (message.kind == Message::Kind::stop_wanted) {
    adopt({message.code, message.text});
  } else if (message.kind == Message::Kind::stop) {
    stop_known_ = true;
  } else if (message.kind == Message::Kind::gate) {
    note_gate(from, message.epoch, message.step);
  } else if (message.kind == Message::Kind::stop_step) {
    world_.stop_gate().decide(message.epoch, message.step);
  }
}

/// To rank 0, which judges the others; from rank 0 to all, who judge it.
void Watchdog::show_life() {
  if (Clock::now() - last_sign_ < std::chrono::duration<double>(sign_seconds)) return;
  last_sign_ = Clock::now();
  const Activity mine = world_.activity();
  Message sign{.kind = Message::Kind::sign, .code = is_leaving(mine), .epoch = world_.epoch()};
  sign.set_text(in_words(mine));
  if (world_.is_root()) {
    send_to_all(sign);
  } else {
    send(0, sign);
  }
}

}  // namespace trainsuite
