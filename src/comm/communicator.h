#pragma once
// The collectives that training needs. A backend is one file; both pass one conformance test.
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

namespace trainsuite {

class World;

/// A collective call acts on contiguous tensors of float, bfloat16 or int64, in place where it
/// can. The result is ordered on the calling thread's current stream: an asynchronous backend
/// (NCCL) enqueues and returns; a blocking one (MPI) returns when the result is there.
/// Errors: Error naming the backend and the call; Timeout; PeerFailed. After any of these the
/// communicator is abandoned: every later call throws, and a new one is made after
/// World::clear_failures(). Ranks must call alike (kind, dtype, numel, root): the MPI backend
/// reports a difference on every rank, with NCCL it ends in wrong data or at the deadline.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual std::string name() const = 0;   // "nccl" or "mpi"
  virtual bool asynchronous() const = 0;  // work enqueued on a stream can overlap compute
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void broadcast(at::Tensor& tensor, int root) = 0;
  virtual void all_reduce(at::Tensor& tensor) = 0;  // sum; bf16 may be summed in fp32
  /// `gathered` has shape [size, ...]; row r is rank r's `mine`.
  virtual void all_gather(const at::Tensor& mine, at::Tensor& gathered) = 0;
  /// `mine` has shape [size, ...]: row r is what this rank adds to rank r's `sum`.
  virtual void reduce_scatter(const at::Tensor& mine, at::Tensor& sum) = 0;
  /// Sends `mine` to rank `peer` and receives its tensor, of the same numel and dtype, into `theirs`.
  /// Only the two ranks call.
  virtual void exchange(const at::Tensor& mine, at::Tensor& theirs, int peer) = 0;
  virtual void barrier() = 0;  // on return every rank has entered; host side, polled
  /// Host: waits, polled, until work already issued on the current stream is done; reports
  /// asynchronous errors and failed peers.
  virtual void synchronize() = 0;
  /// Throws what the backend has met since it enqueued its work. Does not wait.
  virtual void check() {}
  /// Releases the backend without waiting for other ranks. Every later call throws.
  virtual void abort() noexcept = 0;
};

struct CommunicatorOptions {
  std::string link = "auto";  // auto|shm|socket: which NCCL transports stay on
  std::string interface;      // network interface, empty: library's choice
  double init_seconds = 120;  // deadline of the set-up
};

/// Sets NCCL's environment for --link and --interface; before any communicator is made. The flag
/// wins over the user's environment; returns a sentence for each variable that it overruled.
/// Throws UsageError for an unknown link or an interface that this host does not have.
std::vector<std::string> apply_link(const CommunicatorOptions& options);

/// Throws Error naming `call` unless the tensor is contiguous and float, bfloat16 or int64.
void check_tensor(const at::Tensor& tensor, const char* call);
/// Throws Error unless `gathered` has shape [size, ...mine] and mine's dtype and device.
void check_gathered(const at::Tensor& mine, const at::Tensor& gathered, int size, const char* call);

/// kind: "nccl" (CUDA tensors, one GPU a rank) or "mpi" (any tensor, host staging). Collective.
std::unique_ptr<Communicator> make_communicator(const std::string& kind, World& world,
                                                const CommunicatorOptions& options);

std::unique_ptr<Communicator> make_mpi_communicator(World& world, const CommunicatorOptions&);
std::unique_ptr<Communicator> make_nccl_communicator(World& world, const CommunicatorOptions&);

}  // namespace trainsuite
