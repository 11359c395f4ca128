#pragma once
// The collectives that training needs. A backend is one file; both pass one conformance test.
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

namespace trainsuite {

class World;

/// A collective call acts on contiguous tensors of float, bfloat16 or int64, in place where it
/// can. The result is ordered on the calling thread's current stream: an asynchronous backend
/// (NCCL) enqueues and returns; a blocking one (MPI) returns when the result is there.
/// Errors: Error naming the backend and the call; Timeout; PeerFailed.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual std::string name() const = 0;    // "nccl" or "mpi"
  virtual bool asynchronous() const = 0;   // work enqueued on a stream can overlap compute
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void broadcast(at::Tensor& tensor, int root) = 0;
  virtual void all_reduce(at::Tensor& tensor) = 0;  // sum; bf16 may be summed in fp32
  /// `gathered` has shape [size, ...]; row r is rank r's `mine`.
  virtual void all_gather(const at::Tensor& mine, at::Tensor& gathered) = 0;
  virtual void barrier() = 0;  // on return every rank has entered; host side, polled
  /// Host: waits, polled, until work already issued on the current stream is done; reports
  /// asynchronous errors and failed peers.
  virtual void synchronize() = 0;
  /// Releases the backend without waiting for other ranks. Every later call throws.
  virtual void abort() noexcept = 0;
};

struct CommunicatorOptions {
  std::string link = "auto";      // auto|shm|socket: which NCCL transports stay on
  std::string interface;          // network interface, empty: library's choice
  double init_seconds = 120;      // deadline of the set-up
};

/// Sets NCCL's environment for --link and --interface; before any communicator is made.
void apply_link(const CommunicatorOptions& options);

/// kind: "nccl" (CUDA tensors, one GPU a rank) or "mpi" (any tensor, host staging). Collective.
std::unique_ptr<Communicator> make_communicator(const std::string& kind, World& world,
                                                const CommunicatorOptions& options);

std::unique_ptr<Communicator> make_mpi_communicator(World& world, const CommunicatorOptions&);
std::unique_ptr<Communicator> make_nccl_communicator(World& world, const CommunicatorOptions&);

}  // namespace trainsuite
