#include "train/training_case.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <chrono>
#include <cmath>
#include <optional>

#include "core/check_cuda.h"
#include "core/fault.h"
#include "device/memory_gauge.h"
#include "model/attention.h"
#include "result/statistics.h"

namespace trainsuite {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Everything of a case runs on one stream that is not the default one.
class TrainingStream {
 public:
  explicit TrainingStream(const DeviceInfo& device) {
    if (!device.cuda) return;
    guard_.emplace(c10::cuda::getStreamFromPool(/*isHighPriority=*/false,
                                                static_cast<c10::DeviceIndex>(device.ordinal)));
  }

 private:
  std::optional<c10::cuda::CUDAStreamGuard> guard_;
};

/// Telemetry of a case, ended also where the case throws.
class Sampled {
 public:
  explicit Sampled(Telemetry* telemetry) : telemetry_(telemetry) {
    if (telemetry_) telemetry_->start();
  }
  ~Sampled() {
    if (telemetry_) telemetry_->stop();
  }
  Sampled(const Sampled&) = delete;
  Sampled& operator=(const Sampled&) = delete;

 private:
  Telemetry* telemetry_;
};

class TrainingCase {
 public:
  TrainingCase(const Case& work, const DeviceInfo& device, World& world,
               const std::function<Communicator*()>& connect, const MakeTask& make_task,
               bool instrumented, Telemetry* telemetry, const CompileChoice& compile)
      : work_(work),
        device_(device),
        world_(world),
        connect_(connect),
        make_task_(make_task),
        instrumented_(instrumented),
        telemetry_(telemetry),
        gauge_(device) {
    if (work.execution != "eager" && !block_requests(work).empty()) {
      packages_.emplace(work, device, world, compile);
    }
  }

  RankRecord run() {
    const auto start = Clock::now();
    const Sampled sampled(telemetry_);
    const TrainingStream stream(device_);
    use_attention(attention_kernel(work_.attention));
    gauge_.clean();
    gauge_.take();
    if (device_.cuda) fact("start_allocated_bytes", gauge_.allocated_now());
    in("set-up", [&] { set_up(); });
    fact("setup_seconds", since(start));
    in("evaluation before training", [&] { add_facts(task_->before_steps()); });
    gauge_.take();
    in("training", [&] { loop(); });
    in("evaluation of the run", [&] { read_back(); });
    in("evaluation after training", [&] { add_facts(task_->after_steps()); });
    in("launch measurement", [&] { measure_launch(); });
    task_.reset();
    if (packages_) add_facts(packages_->facts());
    packages_.reset();
    losses_.reset();
    gauge_.clean();
    record_.rank = world_.rank();
    fact("case_seconds", since(start));
    if (telemetry_) telemetry_->stop(record_);
    return std::move(record_);
  }

 private:
  /// Names the phase in what is thrown, and tells memory exhaustion from other failures.
  template <class Body>
  void in(const char* phase, Body body) {
    world_.enter(phase);
    try {
      body();
    } catch (const c10::OutOfMemoryError& error) {
      out_of_memory(phase, error.what_without_backtrace());
    } catch (const std::bad_alloc&) {
      out_of_memory(phase, "no host memory left");
    } catch (const c10::Error& error) {
      const std::string text = error.what_without_backtrace();
      if (text.find("not enough memory") != std::string::npos) out_of_memory(phase, text);
      fail("{}: {}", phase, text);
    }
  }

  /// The allocator's own words end in advice and addresses; its request and our count are enough.
  [[noreturn]] void out_of_memory(const std::string& phase, const std::string& text) {
    const bool stepping = phase == "training" && clock_;
    const auto request = text.substr(0, text.find(". GPU"));
    const auto peak = gauge_.take();
    const auto held = peak ? fmt::format(" beside {} bytes allocated and {} reserved",
                                         peak->allocated_bytes, peak->reserved_bytes)
                           : "";
    fail<OutOfMemory>("out of memory in {}{}: {}", stepping ? clock_->issuing() : phase, held,
                      request);
  }

  /// The autograd thread has no CUDA context of its own until a kernel ran in it, which cuBLAS
  /// would warn of.
  void wake_autograd() const {
    const auto x = at::ones({1}, at::TensorOptions().device(device_.torch_device()));
    (x.detach().requires_grad_() * 2).sum().backward();
  }

  void set_up() {
    communicator_ = connect_();
    wake_autograd();
    losses_ = at::zeros({total_steps()}, at::TensorOptions().device(device_.torch_device()));
    prepare();
    add_facts(task_->facts());
    idle();
    if (const auto peak = gauge_.take()) set_up_peak_ = *peak;
    if (!work_.one_rank) world_.barrier();
  }

  void prepare() {
    const auto place = work_.one_rank ? Placement{} : Placement{world_.rank(), world_.size()};
    task_.reset();
    task_ = make_task_(work_, device_, place, communicator_);
    // data, forward, backward a micro-batch; sync, optimizer a step
    clock_ = make_step_clock(device_.cuda, total_steps(), 3 * work_.accumulate + 2, instrumented_);
    losses_->zero_();
  }

  /// From asking for packages to the end of the first step. True where they had to be compiled.
  bool first_step(double& seconds) {
    begin(0);
    const auto start = Clock::now();
    const bool compiled = packages_ && packages_->load();
    task_->use_parts(packages_ ? packages_->parts() : nullptr);
    step(0);
    idle();
    seconds = since(start);
    return compiled;
  }

  /// Where packages had to be compiled the case then begins anew, with packages from the cache: so
  /// the row knows both first steps, and what follows had the same beginning as without compiling.
  void first_steps() {
    double seconds = 0;
    const bool cold = first_step(seconds);
    fact("first_step_seconds", seconds);
    if (!packages_) return;
    if (cold) {
      fact("first_step_seconds_cold", seconds);
      for (const auto& peak : peaks_) set_up_peak_ = larger(set_up_peak_, peak);
      peaks_.clear();
      prepare();
      idle();
      first_step(seconds);
    }
    fact("first_step_seconds_warm", seconds);
  }

  void loop() {
    first_steps();
    // Ranks that are warm start the rest together, also where they train without each other: what
    // they share (a host, a link, a GPU) is then shared while it is timed.
    if (!work_.one_rank && work_.warmup > 0) world_.barrier();
    if (telemetry_) telemetry_->begin_loop();
    task_->use_graph(graph());
    const auto loop_start = Clock::now();
    for (std::int64_t i = 1; i < total_steps(); ++i) {
      begin(i);
      step(i);
      look_around();
    }
    clock_->end_loop();
    idle();
    fact("loop_seconds", since(loop_start));
    if (telemetry_) telemetry_->end_loop();
    fact("loop_steps", total_steps() - 1);
  }

  void begin(std::int64_t index) {
    world_.pass_gate(index);
    world_.enter("training", index);
    if (!fault_ || fault_->rank != world_.rank() || fault_->step != index) return;
    if (!fault_->case_name.empty() && fault_->case_name != work_.name() &&
        fault_->case_name != work_.recipe) {
      return;
    }
    if (fault_->kind == "oom" && device_.cuda) {  // the allocator's own failure
      at::empty({2 * device_.memory_bytes}, losses_->options().dtype(at::kByte));
    }
    commit(*fault_);
    if (fault_->kind == "nan") losses_->select(0, index).fill_(NAN);
    if (fault_->kind == "assert") at::_assert_async(at::zeros({1}, losses_->options()));
  }

  /// Looking for failed peers polls MPI, which may give the core away: not in every short step.
  void look_around() {
    world_.check_time();
    if (work_.one_rank || since(last_look_) < 0.1) return;
    world_.check_peers();
    last_look_ = Clock::now();
  }

  void step(std::int64_t index) {
    task_->step(index, *clock_, losses_->select(0, index));
    if (!instrumented_) return;
    if (const auto peak = gauge_.take()) peaks_.push_back(*peak);
  }

  void read_back() {
    const auto times = clock_->read();
    static constexpr const char* phase_names[phase_count] = {
        "data_seconds", "forward_seconds", "backward_seconds", "exposed_sync_seconds",
        "optimizer_seconds"};
    if (instrumented_) {
      series("step_seconds", "s", times.step_seconds);
      series("host_seconds", "s", times.host_seconds);
      for (size_t i = 0; i < phase_count && !graph(); ++i)
        series(phase_names[i], "s", times.phase_seconds[i]);
    }
    const auto losses = losses_->to(at::kCPU, at::kDouble).contiguous();
    const auto* begin = losses.const_data_ptr<double>();
    series("loss", "1", {begin, begin + losses.numel()});
    std::vector<double> computed, effective;
    for (std::int64_t i = 0; i < total_steps(); ++i) {
      const StepTokens tokens = task_->tokens(i);
      computed.push_back(tokens.computed), effective.push_back(tokens.effective);
    }
    series("tokens", "token", std::move(computed));
    series("effective_tokens", "token", std::move(effective));
    memory_series();
    fact("final_weights_hash", task_->weights_hash());
    for (std::int64_t i = 0; i < total_steps(); ++i) {
      if (task_->has_loss(i) && !std::isfinite(begin[i]))
        fail("the loss of step {} is not finite ({})", i, begin[i]);
    }
  }

  void memory_series() {
    if (peaks_.empty()) return;
    std::vector<double> allocated, reserved;
    MemoryPeak measured, whole = set_up_peak_;
    for (size_t i = 0; i < peaks_.size(); ++i) {
      allocated.push_back(static_cast<double>(peaks_[i].allocated_bytes));
      reserved.push_back(static_cast<double>(peaks_[i].reserved_bytes));
      whole = larger(whole, peaks_[i]);
      // A graph's memory is what capturing it took: replays ask the allocator for nothing.
      const std::int64_t first = graph() ? 1 : work_.warmup;
      if (static_cast<std::int64_t>(i) >= first) measured = larger(measured, peaks_[i]);
    }
    series("allocated_peak_bytes", "byte", std::move(allocated));
    series("reserved_peak_bytes", "byte", std::move(reserved));
    fact("peak_allocated_bytes", measured.allocated_bytes);
    fact("peak_reserved_bytes", measured.reserved_bytes);
    fact("case_peak_allocated_bytes", whole.allocated_bytes);
    fact("case_peak_reserved_bytes", whole.reserved_bytes);
  }

  static MemoryPeak larger(MemoryPeak a, MemoryPeak b) {
    return {std::max(a.allocated_bytes, b.allocated_bytes),
            std::max(a.reserved_bytes, b.reserved_bytes)};
  }

  /// What launching a step costs the host: the same operations on next to no data, each step begun
  /// on an idle device, so that the queue cannot hide it. Not where a blocking communicator would
  /// put its whole work into it.
  void measure_launch() {
    if (communicator_ && !communicator_->asynchronous()) return;
    if (!task_->has_small_step()) return;
    constexpr int repeats = 20;
    const auto no_clock = make_step_clock(false, 0, 0, /*enabled=*/false);
    auto loss = at::zeros({}, losses_->options());
    std::vector<double> seconds;
    for (int i = 0; i < repeats; ++i) {
      idle();
      const auto start = Clock::now();
      task_->small_step(total_steps() + i, *no_clock, loss);
      seconds.push_back(since(start));
    }
    idle();
    fact("host_launch_seconds", quantile(std::move(seconds), 0.5));
  }

  /// Waits, polled, until the device has done what was issued.
  void idle() {
    if (device_.cuda) {
      const auto stream = c10::cuda::getCurrentCUDAStream();
      // Yields instead of sleeping, so that wall times end when the device does.
      const auto done = [&] {
        if (communicator_) communicator_->check();
        return stream.query();
      };
      world_.poll(done, "the device to finish its steps", {.busy_seconds = 5});
    }
    if (communicator_) communicator_->synchronize();
  }

  bool graph() const { return work_.execution == "graph"; }
  std::int64_t total_steps() const { return work_.warmup + work_.steps; }
  void fact(const char* name, Value value) { record_.facts.push_back({name, std::move(value)}); }
  void add_facts(Settings facts) {
    for (auto& one : facts) record_.facts.push_back(std::move(one));
  }
  void series(const char* name, const char* unit, std::vector<double> values) {
    record_.series.push_back({name, unit, std::move(values)});
  }

  Case work_;
  DeviceInfo device_;
  World& world_;
  std::function<Communicator*()> connect_;
  MakeTask make_task_;
  Communicator* communicator_ = nullptr;
  bool instrumented_;
  Telemetry* telemetry_;
  std::optional<Fault> fault_ = fault_of_environment();
  Clock::time_point last_look_ = Clock::now();
  MemoryGauge gauge_;
  MemoryPeak set_up_peak_;
  RankRecord record_;
  std::optional<CasePackages> packages_;
  std::unique_ptr<TrainingTask> task_;  // uses the packages
  std::optional<at::Tensor> losses_;
  std::unique_ptr<StepClock> clock_;
  std::vector<MemoryPeak> peaks_;
};

}  // namespace

RankRecord run_training_case(const Case& work, const DeviceInfo& device, World& world,
                             const std::function<Communicator*()>& connect,
                             const MakeTask& make_task, bool instrumented, Telemetry* telemetry,
                             const CompileChoice& compile) {
  return TrainingCase(work, device, world, connect, make_task, instrumented, telemetry, compile)
      .run();
}

}  // namespace trainsuite
