#pragma once
// What every test program under mpirun starts with: a session, a device, one exit code for all.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <optional>
#include <string>

#include "device/device.h"
#include "launch/world.h"

namespace trainsuite::testing_mpi {

inline const char* option(int argc, char** argv, const char* name, const char* otherwise) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], name) == 0) return argv[i + 1];
  }
  return otherwise;
}

/// Runs all tests between `begin(world, device)` and `end()`; 0 where every rank passed.
inline int run_all(int argc, char** argv,
                   const std::function<void(World&, const DeviceInfo&)>& begin,
                   const std::function<void()>& end) {
  testing::InitGoogleTest(&argc, argv);
  World world(&argc, &argv);
  world.set_deadline(120);
  try {
    const auto device = choose_device(option(argc, argv, "--device", "cpu"), world.local_rank(),
                                      world.local_size(), /*oversubscribe=*/true);
    activate_device(device, std::nullopt);
    apply_affinity(device, world.local_rank(), world.local_size());
    begin(world, device);
    const bool passed = RUN_ALL_TESTS() == 0;
    end();  // what talks over MPI goes before MPI does
    return world.agree(passed) ? 0 : 1;
  } catch (const std::exception& error) {
    world.abort(1, error.what());
  }
}

}  // namespace trainsuite::testing_mpi
