// Repeats problems of the ceilings suite and times them.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <optional>

#include "ceilings.h"
#include "ceilings_problems.h"
#include "core/error.h"
#include "device/step_clock.h"
#include "result/ceilings.h"

namespace trainsuite {
namespace {

/// cuBLAS multiplies fp32 as tf32 only while this lives and asks for it.
class Tf32 {
 public:
  explicit Tf32(bool on) : was_on_(at::globalContext().allowTF32CuBLAS()) { set(on); }
  ~Tf32() { set(was_on_); }
  Tf32(const Tf32&) = delete;
  Tf32& operator=(const Tf32&) = delete;

 private:
  static void set(bool on) {
    at::globalContext().setFloat32MatmulPrecision(on ? "high" : "highest");
  }
  bool was_on_;
};

class Sweep {
 public:
  Sweep(const Case& work, const DeviceInfo& device, World& world, Communicator* communicator)
      : work_(work), device_(device), world_(world), communicator_(communicator) {}

  RankRecord run() {
    const auto start = std::chrono::steady_clock::now();
    const at::NoGradGuard no_grad;
    const Tf32 tf32(work_.precision == "tf32");
    std::optional<c10::cuda::CUDAStreamGuard> stream;
    if (device_.cuda) {
      stream.emplace(c10::cuda::getStreamFromPool(
          /*isHighPriority=*/false, static_cast<c10::DeviceIndex>(device_.ordinal)));
    }
    const bool pairs = *ceiling_kind(work_.recipe) == CeilingKind::pairs;
    if (pairs) {
      sweep_pairs();
    } else {
      for (const auto size : problem_sizes(work_)) {
        measure(size, make_problem(work_, size, device_.torch_device(), communicator_));
      }
    }
    RankRecord record;
    record.rank = world_.rank();
    record.series = {{"step_seconds", "s", std::move(seconds_)},
                     {"problem_size", "1", std::move(sizes_)},
                     {"wrong_values", "1", std::move(wrong_)}};
    if (pairs) {
      record.series.push_back({"pair_a", "1", std::move(first_)});
      record.series.push_back({"pair_b", "1", std::move(second_)});
    }
    record.facts.push_back(
        {"case_seconds",
         std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()});
    return record;
  }

 private:
  /// Every pair of hosts, one pair at a time; the ranks of the others wait.
  void sweep_pairs() {
    const auto groups = pair_groups(world_.all_gather(world_.host()));
    for (std::size_t a = 0; a < groups.size(); ++a) {
      for (std::size_t b = a + 1; b < groups.size(); ++b) {
        const auto peer = peer_of(world_.rank(), groups[a], groups[b]);
        for (const auto size : problem_sizes(work_)) {
          if (peer) {
            measure(size, make_exchange(size, device_.torch_device(), *communicator_, *peer));
          } else {
            look_on(size);
          }
          first_.resize(seconds_.size(), static_cast<double>(a));
          second_.resize(seconds_.size(), static_cast<double>(b));
        }
      }
    }
  }

  void look_on(std::int64_t size) {
    world_.barrier();
    const auto repetitions = static_cast<std::size_t>(work_.warmup + work_.steps);
    seconds_.insert(seconds_.end(), repetitions, NAN);
    sizes_.insert(sizes_.end(), repetitions, static_cast<double>(size));
    wrong_.insert(wrong_.end(), repetitions, NAN);
  }

  void measure(std::int64_t size, const std::unique_ptr<Problem>& problem) {
    const auto repetitions = work_.warmup + work_.steps;
    const auto clock = make_step_clock(device_.cuda, repetitions, 0, /*enabled=*/true);
    idle();
    world_.barrier();
    for (std::int64_t i = 0; i < repetitions; ++i) {
      clock->begin_step();
      problem->run();
      world_.check_time();
    }
    clock->end_loop();
    idle();
    const auto times = clock->read().step_seconds;
    seconds_.insert(seconds_.end(), times.begin(), times.end());
    sizes_.insert(sizes_.end(), times.size(), static_cast<double>(size));
    wrong_.insert(wrong_.end(), times.size() - 1, 0.0);
    wrong_.push_back(problem->wrong_values());  // of the last repetition
  }

  void idle() {
    if (communicator_) communicator_->synchronize();
    if (!device_.cuda) return;
    const auto stream = c10::cuda::getCurrentCUDAStream();
    world_.poll([&] { return stream.query(); }, "the device to finish", {.busy_seconds = 1});
  }

  Case work_;
  DeviceInfo device_;
  World& world_;
  Communicator* communicator_;
  std::vector<double> seconds_, sizes_, wrong_, first_, second_;
};

}  // namespace

RankRecord run_ceiling(const Case& work, const DeviceInfo& device, World& world,
                       Communicator* communicator) {
  try {
    return Sweep(work, device, world, communicator).run();
  } catch (const c10::OutOfMemoryError& error) {
    fail<OutOfMemory>("out of memory: {}", error.what_without_backtrace());
  } catch (const c10::Error& error) {
    fail("{}", error.what_without_backtrace());
  }
}

}  // namespace trainsuite
