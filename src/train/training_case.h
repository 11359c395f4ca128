#pragma once
// Runs one case on this rank: set-up, the timed loop, and what it found.
#include <functional>

#include "comm/communicator.h"
#include "device/device.h"
#include "device/telemetry.h"
#include "launch/world.h"
#include "result/record.h"
#include "run/case.h"
#include "train/case_packages.h"
#include "train/training_task.h"

namespace trainsuite {

/// Trains `work` for its warm-up and measured steps and returns this rank's series and facts.
/// `connect` gives the communicator, or null where the case does not communicate; what it takes is
/// part of the set-up. `make_task` makes what is trained. `instrumented` false: only the loop as a
/// whole is timed. `telemetry` (or null) samples the whole case and is told when the timed loop
/// runs. Throws OutOfMemory naming the phase; Error where packages cannot be had, and on a loss
/// that is not finite; Timeout and PeerFailed from waits.
RankRecord run_training_case(const Case& work, const DeviceInfo& device, World& world,
                             const std::function<Communicator*()>& connect,
                             const MakeTask& make_task, bool instrumented,
                             Telemetry* telemetry = nullptr, const CompileChoice& compile = {});

}  // namespace trainsuite
