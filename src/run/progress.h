#pragma once
// Progress of a run on rank 0's terminal: one updating line, or one line a case elsewhere.
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "result/record.h"
#include "run/case.h"

namespace trainsuite {

/// Seconds still to go when `done` of `total` work took `elapsed_seconds`; absent before the
/// first work is done.
std::optional<double> remaining_seconds(double done, double total, double elapsed_seconds);

/// Whether a user sees standard output as it is written, also through mpirun.
bool stdout_is_terminal();

/// Writes nothing within a measured loop: only when a case begins, changes its phase or ends.
class Progress {
 public:
  using Clock = std::function<double()>;  // seconds from some start
  /// `cases`: the plan, every repeat its own entry. `terminal`: one updating line.
  Progress(std::ostream& out, bool terminal, std::vector<Case> cases, Clock clock);
  /// On standard output, with stdout_is_terminal() and the steady clock.
  static Progress on_stdout(std::vector<Case> cases);

  /// The next case of the plan starts.
  void begin_case();
  /// "set-up", "training", "writing": shown on a terminal only.
  void phase(const std::string& name);
  /// The case ended with this row.
  void end_case(const CaseRecord& record);

 private:
  std::string head() const;
  std::string eta() const;
  void repaint(const std::string& line);

  std::ostream& out_;
  bool terminal_;
  std::vector<Case> cases_;
  Clock clock_;
  std::size_t index_ = 0;  // of the case under way
  double begin_seconds_ = 0, case_begin_seconds_ = 0, done_work_ = 0;
};

}  // namespace trainsuite
