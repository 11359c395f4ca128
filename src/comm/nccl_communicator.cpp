// CUDA tensors over NCCL, one GPU a rank. Set-up goes through a non-blocking communicator, polled
// with a deadline and an eye on the other ranks. Collectives go through a blocking one split from
// it: NCCL starts a thread for each call of a non-blocking one, which costs the host up to 0.5 ms a
// call. The two share resources, the abort flag too, so aborting the first frees who is blocked in
// the second.
#include <ATen/Functions.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "comm/communicator.h"
#include "core/check_cuda.h"
#include "core/check_nccl.h"
#include "core/error.h"
#include "launch/world.h"

namespace trainsuite {
namespace {

constexpr double busy_seconds = 1e-3;  // a stream is often done by then
constexpr double longest_call_seconds = 2;
constexpr double release_seconds = 10;  // for a communicator to end, in order or aborted

ncclDataType_t nccl_type(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kFloat) return ncclFloat32;
  if (tensor.scalar_type() == at::kBFloat16) return ncclBfloat16;
  return ncclInt64;
}

/// Whether `work` ended in time; it goes on in its own thread where it did not.
bool ends_within(double seconds, std::function<void()> work) {
  auto ended = std::make_shared<std::promise<void>>();
  auto future = ended->get_future();
  std::thread([work = std::move(work), ended] {
    work();
    ended->set_value();
  }).detach();
  return future.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::ready;
}

/// Shared with threads that release them, which may outlive the object.
struct Handles {
  std::timed_mutex setup_use;
  ncclComm_t setup = nullptr;  // non-blocking
  ncclComm_t split = nullptr;  // NCCL writes it when the split is done, maybe after we gave up
  std::timed_mutex use;
  ncclComm_t comm = nullptr;  // blocking, split from the other
};

/// Takes a communicator out of use and ends it. A call that blocks within NCCL must not keep the
/// watchdog from that.
void release(std::timed_mutex& use, ncclComm_t& handle, ncclResult_t (*end)(ncclComm_t)) {
  ncclComm_t comm = nullptr;
  {
    std::unique_lock lock(use, std::defer_lock);
    (void)lock.try_lock_for(std::chrono::duration<double>(longest_call_seconds));
    comm = std::exchange(handle, nullptr);
  }
  if (comm != nullptr) (void)end(comm);
}

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(World& world, const CommunicatorOptions& options) : world_(world) {
    device_ = c10::cuda::current_device();
    patience_.busy_seconds = busy_seconds;
    release_ = world_.on_failure([this] { abort(); });
    try {
      connect(options.init_seconds);
      token_ = at::ones({1}, at::TensorOptions().dtype(at::kLong).device(
                                 c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device_))));
    } catch (...) {
      world_.forget_release(release_);
      abort();
      throw;
    }
  }

  ~NcclCommunicator() override {
    world_.forget_release(release_);  // after it no other thread knows this object
    if (std::uncaught_exceptions() > 0 || failure_known() || !finalize()) abort();
  }

  std::string name() const override { return "nccl"; }
  bool asynchronous() const override { return true; }
  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }

  void broadcast(at::Tensor& tensor, int root) override {
    guarded("nccl broadcast", [&] {
      check_cuda_tensor(tensor);
      void* data = tensor.data_ptr();
      enqueue([&](ncclComm_t comm) {
        return ncclBroadcast(data, data, static_cast<size_t>(tensor.numel()), nccl_type(tensor),
                             root, comm, stream());
      });
    });
  }

  void all_reduce(at::Tensor& tensor) override {
    guarded("nccl all_reduce", [&] {
      check_cuda_tensor(tensor);
      void* data = tensor.data_ptr();
      enqueue([&](ncclComm_t comm) {
        return ncclAllReduce(data, data, static_cast<size_t>(tensor.numel()), nccl_type(tensor),
                             ncclSum, comm, stream());
      });
    });
  }

  void all_gather(const at::Tensor& mine, at::Tensor& gathered) override {
    guarded("nccl all_gather", [&] {
      check_gathered(mine, gathered, size(), call_);
      check_cuda_tensor(mine);
      enqueue([&](ncclComm_t comm) {
        return ncclAllGather(mine.data_ptr(), gathered.data_ptr(),
                             static_cast<size_t>(mine.numel()), nccl_type(mine), comm, stream());
      });
    });
  }

  void reduce_scatter(const at::Tensor& mine, at::Tensor& sum) override {
    guarded("nccl reduce_scatter", [&] {
      check_gathered(sum, mine, size(), call_);
      check_cuda_tensor(mine);
      enqueue([&](ncclComm_t comm) {
        return ncclReduceScatter(mine.data_ptr(), sum.data_ptr(), static_cast<size_t>(sum.numel()),
                                 nccl_type(mine), ncclSum, comm, stream());
      });
    });
  }

  void exchange(const at::Tensor& mine, at::Tensor& theirs, int peer) override {
    guarded("nccl exchange", [&] {
      check_cuda_tensor(mine);
      check_cuda_tensor(theirs);
      const auto count = static_cast<size_t>(mine.numel());
      enqueue([&](ncclComm_t comm) {
        check_result(ncclGroupStart(), comm);
        check_result(ncclSend(mine.data_ptr(), count, nccl_type(mine), peer, comm, stream()), comm);
        check_result(ncclRecv(theirs.data_ptr(), count, nccl_type(mine), peer, comm, stream()),
                     comm);
        return ncclGroupEnd();
      });
    });
  }

  void barrier() override {
    guarded("nccl barrier", [&] {
      void* data = token_.data_ptr();
      enqueue([&](ncclComm_t comm) {
        return ncclAllReduce(data, data, 1, ncclInt64, ncclMax, comm, stream());
      });
      wait_for_stream();
    });
  }

  void synchronize() override {
    guarded("nccl synchronize", [&] {
      wait_for_stream();
      world_.check_peers();
    });
  }

  void check() override {
    guarded("nccl check", [&] { in_progress(); });
  }

  // Called by the training thread or, to free that one from what it waits for, by the watchdog's.
  // The freeing has a thread of its own: NCCL gives no handle to poll.
  void abort() noexcept override {
    try {
      ends_within(release_seconds, [handles = handles_, device = device_] {
        (void)cudaSetDevice(device);
        // First, as it needs no lock of the other: it frees a call that is blocked there.
        release(handles->setup_use, handles->setup, ncclCommAbort);
        release(handles->use, handles->comm, ncclCommAbort);
      });
    } catch (const std::exception&) {
      // No thread could be started; the communicators stay as they are until the process ends.
    }
  }

 private:
  /// Runs a call; on any exception the communicator is aborted, which also frees the stream from
  /// collectives that other ranks never joined. An error that another rank's failure brought about
  /// is told as PeerFailed.
  void guarded(const char* call, const std::function<void()>& work) {
    if (abandoned_) fail("{}: this communicator was abandoned after a failure", call);
    call_ = call;
    try {
      work();
    } catch (...) {
      abandoned_ = true;
      abort();
      world_.check_peers();
      throw;
    }
  }

  /// NCCL is called with the communicator, which the watchdog cannot free meanwhile.
  template <class Call>
  auto with_comm(Call call) const {
    const std::lock_guard lock(handles_->use);
    if (handles_->comm == nullptr) {
      fail("{}: this communicator was abandoned after a failure", call_);
    }
    return call(handles_->comm);
  }

  template <class Call>
  void enqueue(Call call) {
    with_comm([&](ncclComm_t comm) { check_result(call(comm), comm); });
  }

  void connect(double seconds) {
    call_ = "nccl set-up";
    ncclUniqueId id = {};
    // Made by rank 0; its failure must reach the others before they wait for the id.
    ncclResult_t made = ncclSuccess;
    if (world_.is_root()) made = ncclGetUniqueId(&id);
    if (made != ncclSuccess) id = {};
    const std::string bytes =
        world_.broadcast(made == ncclSuccess ? std::string(id.internal, sizeof id.internal) : "");
    check_nccl(made, "ncclGetUniqueId");
    if (bytes.size() != sizeof id.internal) fail("nccl set-up: rank 0 could not make an id");
    bytes.copy(id.internal, sizeof id.internal);

    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    patience_.deadline_seconds = seconds;
    settle([&](ncclComm_t& setup) {
      return ncclCommInitRankConfig(&setup, size(), id, rank(), &config);
    });
    config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.splitShare = 1;
    settle([&](ncclComm_t& setup) {
      return ncclCommSplit(setup, 0, rank(), &handles_->split, &config);
    });
    patience_.deadline_seconds = 0;
    const std::lock_guard lock(handles_->use);
    handles_->comm = handles_->split;
  }

  /// Begins a part of the set-up and polls until it is done; throws its error.
  template <class Call>
  void settle(Call call) {
    const auto with_setup = [&](auto work) {
      const std::lock_guard lock(handles_->setup_use);
      return work(handles_->setup);
    };
    with_setup([&](ncclComm_t& setup) { check_result(call(setup), setup); });
    const auto done = [&] {
      return with_setup([&](ncclComm_t setup) {
        if (setup == nullptr) fail("{}: given up after a failure", call_);
        return state_of(setup) != ncclInProgress;
      });
    };
    world_.poll(done, call_, patience_);
  }

  static cudaStream_t stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

  void check_cuda_tensor(const at::Tensor& tensor) const {
    check_tensor(tensor, call_);
    if (!tensor.is_cuda() || tensor.get_device() != device_) {
      fail("{}: the tensor is on {}, the communicator on cuda:{}", call_, tensor.device().str(),
           device_);
    }
  }

  /// Of a communicator; throws its asynchronous error.
  ncclResult_t state_of(ncclComm_t comm) const {
    ncclResult_t state = ncclSuccess;
    check_result(ncclCommGetAsyncError(comm, &state), comm);
    check_result(state, comm);
    return state;
  }

  bool in_progress() const {
    return with_comm([this](ncclComm_t comm) { return state_of(comm) == ncclInProgress; });
  }

  void check_result(ncclResult_t result, ncclComm_t comm) const {
    if (result == ncclSuccess || result == ncclInProgress) return;
    const char* detail = comm == nullptr ? nullptr : ncclGetLastError(comm);
    fail("{}: {}{}{}", call_, ncclGetErrorString(result), detail && *detail ? ": " : "",
         detail ? detail : "");
  }

  void wait_for_stream() {
    const cudaStream_t current = stream();
    const auto done = [&] {
      const cudaError_t state = cudaStreamQuery(current);
      if (state == cudaErrorNotReady) {
        in_progress();  // throws what NCCL has met meanwhile
        return false;
      }
      check_cuda(state, call_);
      return !in_progress();
    };
    world_.poll(done, call_, patience_);
  }

  bool failure_known() noexcept {
    try {
      return world_.failure_known();
    } catch (const std::exception&) {
      return true;
    }
  }

  /// Ends the communicators in order; false where that takes too long or fails.
  bool finalize() noexcept {
    try {
      return ends_within(release_seconds, [handles = handles_, device = device_] {
        (void)cudaSetDevice(device);
        release(handles->use, handles->comm, ncclCommDestroy);
        release(handles->setup_use, handles->setup, ncclCommDestroy);
      });
    } catch (const std::exception&) {
      return false;
    }
  }

  World& world_;
  std::shared_ptr<Handles> handles_ = std::make_shared<Handles>();
  bool abandoned_ = false;
  int release_ = 0;
  int device_ = 0;
  at::Tensor token_;  // what barrier reduces
  Patience patience_;
  const char* call_ = "";
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(World& world,
                                                     const CommunicatorOptions& options) {
  return std::make_unique<NcclCommunicator>(world, options);
}

}  // namespace trainsuite
