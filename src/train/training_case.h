#pragma once
// Runs one case on this rank: set-up, the timed loop, and what it found.
#include <functional>

#include "comm/communicator.h"
#include "device/device.h"
#include "launch/world.h"
#include "result/record.h"
#include "run/case.h"
#include "train/training_task.h"

namespace trainsuite {

/// Trains `work` for its warm-up and measured steps and returns this rank's series and facts.
/// `connect` gives the communicator, or null where the case does not communicate; what it takes is
/// part of the set-up. `make_task` makes what is trained. `instrumented` false: only the loop as a
/// whole is timed. Throws OutOfMemory naming the phase; Error on a loss that is not finite; Timeout
/// and PeerFailed from waits.
RankRecord run_training_case(const Case& work, const DeviceInfo& device, World& world,
                             const std::function<Communicator*()>& connect,
                             const MakeTask& make_task, bool instrumented);

}  // namespace trainsuite
