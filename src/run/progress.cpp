#include "run/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>

#include "core/text.h"
#include "run/row_figures.h"

namespace trainsuite {

std::optional<double> remaining_seconds(double done, double total, double elapsed_seconds) {
  if (!(done > 0)) return std::nullopt;
  return elapsed_seconds * std::max(0.0, total - done) / done;
}

Progress::Progress(std::ostream& out, bool terminal, std::vector<Case> cases, Clock clock)
    : out_(out), terminal_(terminal), cases_(std::move(cases)), clock_(std::move(clock)) {
  begin_seconds_ = clock_();
}

bool stdout_is_terminal() {
  if (isatty(STDOUT_FILENO) != 1) return false;
  if (std::getenv("OMPI_COMM_WORLD_RANK") == nullptr) return true;
  // Open MPI gives every rank a pseudo-terminal of its own; what counts is where mpirun writes.
  const std::string link = fmt::format("/proc/{}/fd/1", getppid());
  char target[256];
  const ssize_t length = readlink(link.c_str(), target, sizeof(target));
  if (length <= 0) return false;
  const std::string path(target, static_cast<std::size_t>(length));
  return path.starts_with("/dev/pts/") || path.starts_with("/dev/tty");
}

Progress Progress::on_stdout(std::vector<Case> cases) {
  const auto seconds = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  return {std::cout, stdout_is_terminal(), std::move(cases), seconds};
}

std::string Progress::head() const {
  const std::string name = index_ < cases_.size() ? cases_[index_].name() : std::string();
  return fmt::format("[{}/{}] {}", index_ + 1, cases_.size(), name);
}

std::string Progress::eta() const {
  double total = 0;
  for (const Case& one : cases_) total += one.work;
  const auto left = remaining_seconds(done_work_, total, clock_() - begin_seconds_);
  return left ? fmt::format(", ETA {}", duration_text(*left)) : std::string();
}

void Progress::repaint(const std::string& line) {
  out_ << "\r\x1b[K" << line << std::flush;  // back to the start, clear the line
}

void Progress::begin_case() {
  case_begin_seconds_ = clock_();
  phase("set-up");
}

void Progress::phase(const std::string& name) {
  if (terminal_) repaint(fmt::format("{} {}{}", head(), name, eta()));
}

void Progress::end_case(const CaseRecord& record) {
  std::string line = fmt::format("{} {}", head(), record.status);
  const RowFigures row = row_figures(record, {});
  if (row.tokens_per_second && row.step_seconds) {
    line += fmt::format(", {} tokens/s, {:.2f} ms a step",
                        grouped(static_cast<long long>(*row.tokens_per_second + 0.5)),
                        *row.step_seconds * 1e3);
  }
  if (record.status != "ok" && !record.reason.empty()) line += ": " + record.reason;
  line += fmt::format(", {:.1f} s", clock_() - case_begin_seconds_);
  if (index_ < cases_.size()) done_work_ += cases_[index_].work;
  ++index_;
  const bool last = index_ >= cases_.size();
  if (!last) line += eta();
  if (!terminal_) {
    out_ << line << std::endl;
  } else {
    repaint(last ? std::string() : line);  // the summary follows
  }
}

}  // namespace trainsuite
