// What the ceilings suite repeats, and how its results are checked.
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
#include "core/error.h"
#include "device/step_clock.h"
#include "result/ceilings.h"

namespace trainsuite {
namespace {

/// One problem: what is repeated, and how many of its results are wrong.
class Problem {
 public:
  virtual ~Problem() = default;
  virtual void run() = 0;
  virtual double wrong_values() = 0;
};

/// Random data: multiplying zeros takes less power, so clocks and rates would be too high.
class Product final : public Problem {
 public:
  Product(const Case& work, std::int64_t rows, at::Device device)
      : tf32_(work.precision == "tf32"), bf16_(work.precision == "bf16") {
    const auto options =
        at::TensorOptions().device(device).dtype(bf16_ ? at::kBFloat16 : at::kFloat);
    auto generator = at::globalContext().defaultGenerator(device).clone();
    generator.set_current_seed(static_cast<std::uint64_t>(work.seed));
    a_ = at::empty({rows, rows}, options).normal_(0, 1, generator);
    b_ = at::empty({rows, rows}, options).normal_(0, 1, generator);
    product_ = at::empty({rows, rows}, options);
  }

  void run() override { at::mm_out(product_, a_, b_); }

  /// The first rows against fp64. Each product's rounding is at most the dtype's; their sum grows
  /// with the root of the length, and a result that belongs to other data is off by the root
  /// itself.
  double wrong_values() override {
    constexpr std::int64_t checked_rows = 4;
    const auto exact = at::mm(a_.narrow(0, 0, checked_rows).to(at::kDouble), b_.to(at::kDouble));
    const double scale = std::sqrt(static_cast<double>(a_.size(0)));
    const double tolerance = (bf16_ ? 0.05 : tf32_ ? 0.01 : 1e-4) * scale;
    const auto error = (product_.narrow(0, 0, checked_rows).to(at::kDouble) - exact).abs();
    return error.le(tolerance).logical_not().sum().item<double>();  // NaN is wrong
  }

 private:
  bool tf32_, bf16_;
  at::Tensor a_, b_, product_;
};

class Copy final : public Problem {
 public:
  Copy(const std::string& recipe, std::int64_t bytes, at::Device device)
      : pinned_(recipe.ends_with("-pinned")) {
    const bool from_host = recipe.starts_with("copy-host"),
               to_host = recipe.find("to-host") != std::string::npos;
    const auto place = [&](bool host) {
      const auto options = at::TensorOptions(at::kLong).device(host ? at::kCPU : device);
      return options.pinned_memory(host && pinned_);
    };
    from_ = at::empty({bytes / 8}, place(from_host));
    to_ = at::zeros({bytes / 8}, place(to_host));
    at::arange_out(from_, bytes / 8);
  }
  void run() override { to_.copy_(from_, /*non_blocking=*/pinned_); }
  double wrong_values() override { return to_.ne(from_.to(to_.device())).sum().item<double>(); }

 private:
  bool pinned_;
  at::Tensor from_, to_;
};

/// Small whole numbers that differ by rank and place: sums are exact, and a value in another's
/// place is seen.
at::Tensor numbers(int rank, std::int64_t elements, at::Device device) {
  const auto index = at::arange(elements, at::TensorOptions(at::kLong).device(device));
  return index.add(rank).remainder(7).add(rank).to(at::kFloat);
}

at::Tensor sum_of_numbers(int ranks, std::int64_t elements, at::Device device) {
  auto sum = numbers(0, elements, device);
  for (int rank = 1; rank < ranks; ++rank) sum += numbers(rank, elements, device);
  return sum;
}

class Collective final : public Problem {
 public:
  Collective(CeilingKind kind, std::int64_t bytes, at::Device device, Communicator& communicator)
      : kind_(kind), device_(device), comm_(communicator), elements_(bytes / 4) {
    const std::int64_t ranks = comm_.size(), part = elements_ / ranks;
    if (kind_ == CeilingKind::all_gather) {
      mine_ = numbers(comm_.rank(), part, device);
      result_ = at::zeros({ranks, part}, mine_.options());
    } else {
      mine_ = numbers(comm_.rank(), elements_, device).view({ranks, part});
      result_ = at::zeros({part}, mine_.options());
    }
  }

  void run() override {
    if (kind_ == CeilingKind::all_gather) return comm_.all_gather(mine_, result_);
    if (kind_ == CeilingKind::reduce_scatter) return comm_.reduce_scatter(mine_, result_);
    comm_.all_reduce(mine_);
  }

  /// Repeating an all-reduce in place multiplies it: the check runs one more from fresh numbers.
  double wrong_values() override {
    const int ranks = comm_.size();
    if (kind_ == CeilingKind::all_reduce) {
      mine_.copy_(numbers(comm_.rank(), elements_, device_).view_as(mine_));
      comm_.all_reduce(mine_);
      comm_.synchronize();
      return differing(mine_, sum_of_numbers(ranks, elements_, device_).view_as(mine_));
    }
    comm_.synchronize();
    if (kind_ == CeilingKind::reduce_scatter) {
      return differing(
          result_,
          sum_of_numbers(ranks, elements_, device_).view_as(mine_).select(0, comm_.rank()));
    }
    double wrong = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      wrong += differing(result_.select(0, rank), numbers(rank, elements_ / ranks, device_));
    }
    return wrong;
  }

 private:
  static double differing(const at::Tensor& a, const at::Tensor& b) {
    return a.ne(b).sum().item<double>();
  }
  CeilingKind kind_;
  at::Device device_;
  Communicator& comm_;
  std::int64_t elements_;
  at::Tensor mine_, result_;
};

std::unique_ptr<Problem> make_problem(const Case& work, std::int64_t size, at::Device device,
                                      Communicator* communicator) {
  const auto kind = *ceiling_kind(work.recipe);
  if (kind == CeilingKind::matmul) return std::make_unique<Product>(work, size, device);
  if (is_collective(kind)) {
    return std::make_unique<Collective>(kind, size, device, *communicator);
  }
  return std::make_unique<Copy>(work.recipe, size, device);
}

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
    for (const auto size : problem_sizes(work_)) measure(size);
    RankRecord record;
    record.rank = world_.rank();
    record.series = {{"step_seconds", "s", std::move(seconds_)},
                     {"problem_size", "1", std::move(sizes_)},
                     {"wrong_values", "1", std::move(wrong_)}};
    record.facts.push_back(
        {"case_seconds",
         std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()});
    return record;
  }

 private:
  void measure(std::int64_t size) {
    const auto problem = make_problem(work_, size, device_.torch_device(), communicator_);
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
  std::vector<double> seconds_, sizes_, wrong_;
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
