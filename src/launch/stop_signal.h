#pragma once
// Signals that ask the run to stop: the watchdog looks for them.

namespace trainsuite {

/// From now on SIGTERM, SIGINT and SIGUSR1 are noted instead of ending the process. A second
/// SIGINT, a second or more after the first, ends it at once.
void note_stop_signals();
/// The first of them that came, 0: none.
int stop_signal();

}  // namespace trainsuite
