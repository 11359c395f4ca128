// Any tensor over MPI. CUDA tensors travel through pinned host memory, since no CUDA-aware MPI is
// assumed; bfloat16 is widened to fp32, summed, and rounded once.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>

#include "comm/communicator.h"
#include "core/check_cuda.h"
#include "core/check_mpi.h"
#include "core/error.h"
#include "launch/world.h"

namespace trainsuite {
namespace {

// Bounds staging memory and the ints in MPI's calls; each piece is a short wait of its own.
constexpr std::int64_t piece_bytes = std::int64_t{8} << 20;
// Within a collective a sleeping rank delays all others, so it yields first.
constexpr double busy_seconds = 20e-3;

constexpr int everywhere = -1;  // in place of a root

/// What must be alike on all ranks of a call.
struct Signature {
  enum Field { kind, dtype, numel, root, field_count };
  std::array<std::int64_t, 2 * field_count> values;  // each and its negative: one MAX gives both
};

enum class Kind { broadcast, all_reduce, all_gather, reduce_scatter, barrier };

class MpiCommunicator : public Communicator {
 public:
  explicit MpiCommunicator(World& world) : world_(world), comm_(world.duplicate()) {
    patience_.busy_seconds = busy_seconds;
  }
  // comm_ is not freed: a peer may still hold operations on it, and its id must not be reused.

  std::string name() const override { return "mpi"; }
  bool asynchronous() const override { return false; }
  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }

  void broadcast(at::Tensor& tensor, int root) override {
    guarded("mpi broadcast", [&] {
      check_tensor(tensor, "mpi broadcast");
      check_alike(Kind::broadcast, "mpi broadcast", tensor, root);
      broadcast_pieces(tensor, root);
    });
  }

  void all_reduce(at::Tensor& tensor) override {
    guarded("mpi all_reduce", [&] {
      check_tensor(tensor, "mpi all_reduce");
      check_alike(Kind::all_reduce, "mpi all_reduce", tensor, 0);
      for_pieces(tensor, [&](const at::Tensor& piece) { reduce_piece(piece, everywhere); });
    });
  }

  void all_gather(const at::Tensor& mine, at::Tensor& gathered) override {
    guarded("mpi all_gather", [&] {
      check_gathered(mine, gathered, size(), "mpi all_gather");
      check_alike(Kind::all_gather, "mpi all_gather", mine, 0);
      for (int root = 0; root < size(); ++root) {
        at::Tensor row = gathered.select(0, root);
        if (root == rank()) row.copy_(mine);
        broadcast_pieces(row, root);
      }
    });
  }

  void reduce_scatter(const at::Tensor& mine, at::Tensor& result) override {
    guarded("mpi reduce_scatter", [&] {
      check_gathered(result, mine, size(), "mpi reduce_scatter");
      check_alike(Kind::reduce_scatter, "mpi reduce_scatter", result, 0);
      for (int root = 0; root < size(); ++root) {
        at::Tensor row = mine.select(0, root).clone();  // the reduction works in place
        for_pieces(row, [&](const at::Tensor& piece) { reduce_piece(piece, root); });
        if (root == rank()) result.copy_(row);
      }
    });
  }

  void exchange(const at::Tensor& mine, at::Tensor& theirs, int peer) override {
    guarded("mpi exchange", [&] {
      check_tensor(mine, "mpi exchange");
      check_tensor(theirs, "mpi exchange");
      if (mine.is_cuda() || theirs.is_cuda()) return exchange_staged(mine, theirs, peer);
      exchange_bytes(mine, theirs, peer);
    });
  }

  void barrier() override {
    guarded("mpi barrier", [&] { check_alike(Kind::barrier, "mpi barrier", at::Tensor(), 0); });
  }

  void synchronize() override {
    guarded("mpi synchronize", [&] {
      if (used_cuda_) wait_for_stream();
      world_.check_peers();
    });
  }

  void abort() noexcept override { abandoned_ = true; }

 private:
  /// Through ordinary host copies of the whole: a piece at a time would wait for the slower side.
  void exchange_staged(const at::Tensor& mine, at::Tensor& theirs, int peer) {
    used_cuda_ = true;
    const at::Tensor sent = mine.cpu();
    at::Tensor received = at::empty_like(sent);
    exchange_bytes(sent, received, peer);
    theirs.copy_(received);
  }

  void exchange_bytes(const at::Tensor& mine, at::Tensor& theirs, int peer) {
    constexpr int tag = 1;  // the communicator's collectives use none
    buffers_->in_flight = mine;
    buffers_->received = theirs;
    const auto bytes = static_cast<std::int64_t>(mine.nbytes());
    auto* from = static_cast<char*>(mine.data_ptr());
    auto* to = static_cast<char*>(theirs.data_ptr());
    for (std::int64_t first = 0; first < bytes; first += piece_bytes) {
      const auto count = static_cast<int>(std::min(piece_bytes, bytes - first));
      MPI_Request receive = MPI_REQUEST_NULL, send = MPI_REQUEST_NULL;
      check_mpi(MPI_Irecv(to + first, count, MPI_BYTE, peer, tag, comm_, &receive), call_);
      check_mpi(MPI_Isend(from + first, count, MPI_BYTE, peer, tag, comm_, &send), call_);
      wait(receive);
      wait(send);
    }
    buffers_->received = at::Tensor();
  }

  /// Runs a call; on any exception the communicator is abandoned and what MPI may still touch
  /// stays alive until the process ends.
  void guarded(const char* call, const std::function<void()>& work) {
    if (abandoned_) fail("{}: this communicator was abandoned after a failure", call);
    const at::NoGradGuard no_grad;
    call_ = call;
    try {
      work();
    } catch (...) {
      abandoned_ = true;
      static auto* kept = new std::vector<std::shared_ptr<Buffers>>;
      kept->push_back(buffers_);
      throw;
    }
    buffers_->in_flight = at::Tensor();
  }

  void wait(MPI_Request& request) { world_.wait(request, call_, patience_); }

  void wait_for_stream() {
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    const auto done = [&] {
      const cudaError_t state = cudaStreamQuery(stream);
      if (state == cudaErrorNotReady) return false;
      check_cuda(state, call_);
      return true;
    };
    world_.poll(done, call_, patience_);
  }

  void check_alike(Kind kind, const char* call, const at::Tensor& tensor, int root) {
    const std::array<std::int64_t, Signature::field_count> mine = {
        static_cast<std::int64_t>(kind),
        tensor.defined() ? static_cast<std::int64_t>(tensor.scalar_type()) : 0,
        tensor.defined() ? tensor.numel() : 0, root};
    auto& values = buffers_->signature.values;
    for (size_t i = 0; i < mine.size(); ++i) {
      values[i] = mine[i];
      values[i + mine.size()] = -mine[i];
    }
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Iallreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()),
                             MPI_INT64_T, MPI_MAX, comm_, &request),
              call);
    wait(request);
    static constexpr std::array names = {"the kind of call", "dtype", "numel", "root"};
    for (size_t i = 0; i < mine.size(); ++i) {
      const std::int64_t most = values[i], least = -values[i + mine.size()];
      if (most == least) continue;
      fail("{}: {} differs between ranks: {} to {}, here {}", call, names[i], least, most, mine[i]);
    }
  }

  void for_pieces(const at::Tensor& tensor, const std::function<void(const at::Tensor&)>& work) {
    const at::Tensor flat = tensor.view({-1});
    const std::int64_t step = piece_bytes / static_cast<std::int64_t>(flat.element_size());
    std::optional<c10::DeviceGuard> guard;
    if (flat.is_cuda()) {
      guard.emplace(flat.device());
      used_cuda_ = true;
    }
    buffers_->in_flight = tensor;
    for (std::int64_t first = 0; first < flat.numel(); first += step) {
      work(flat.narrow(0, first, std::min(step, flat.numel() - first)));
    }
  }

  /// The piece's bytes on the host: itself, or pinned memory that holds a copy where `filled`.
  at::Tensor to_host(const at::Tensor& piece, bool filled) {
    if (!piece.is_cuda()) return piece;
    if (!buffers_->pinned.defined()) {
      buffers_->pinned =
          at::empty({piece_bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
    }
    const auto bytes = piece.numel() * static_cast<std::int64_t>(piece.element_size());
    at::Tensor host = buffers_->pinned.narrow(0, 0, bytes).view(piece.scalar_type());
    if (filled) {
      host.copy_(piece, /*non_blocking=*/true);
      wait_for_stream();
    }
    return host;
  }

  void to_device(const at::Tensor& host, const at::Tensor& piece) {
    if (!piece.is_cuda()) return;
    piece.copy_(host, /*non_blocking=*/true);
    wait_for_stream();  // the pinned memory serves the next piece
  }

  /// The sum goes to rank `root`, or everywhere; elsewhere the piece is of no further use.
  void reduce_piece(const at::Tensor& piece, int root) {
    at::Tensor host = to_host(piece, true);
    if (piece.scalar_type() == at::kBFloat16) {
      if (!buffers_->wide.defined()) buffers_->wide = at::empty({piece_bytes / 2}, at::kFloat);
      at::Tensor wide = buffers_->wide.narrow(0, 0, host.numel());
      wide.copy_(host);
      sum(wide, MPI_FLOAT, root);
      host.copy_(wide);
    } else {
      sum(host, piece.scalar_type() == at::kFloat ? MPI_FLOAT : MPI_INT64_T, root);
    }
    to_device(host, piece);
  }

  void sum(const at::Tensor& host, MPI_Datatype type, int root) {
    MPI_Request request = MPI_REQUEST_NULL;
    void* data = host.data_ptr();
    const auto count = static_cast<int>(host.numel());
    if (root == everywhere) {
      check_mpi(MPI_Iallreduce(MPI_IN_PLACE, data, count, type, MPI_SUM, comm_, &request), call_);
    } else {
      check_mpi(MPI_Ireduce(rank() == root ? MPI_IN_PLACE : data, data, count, type, MPI_SUM, root,
                            comm_, &request),
                call_);
    }
    wait(request);
  }

  void broadcast_pieces(const at::Tensor& tensor, int root) {
    for_pieces(tensor, [&](const at::Tensor& piece) {
      const at::Tensor host = to_host(piece, rank() == root);
      MPI_Request request = MPI_REQUEST_NULL;
      check_mpi(MPI_Ibcast(host.data_ptr(), static_cast<int>(host.nbytes()), MPI_BYTE, root, comm_,
                           &request),
                call_);
      wait(request);
      if (rank() != root) to_device(host, piece);
    });
  }

  struct Buffers {
    Signature signature;
    at::Tensor pinned;     // bytes, on the way to or from a CUDA tensor
    at::Tensor wide;       // fp32 sums of bfloat16
    at::Tensor in_flight;  // the tensor of the call under way
    at::Tensor received;   // what an exchange writes
  };

  World& world_;
  MPI_Comm comm_;
  Patience patience_;
  const char* call_ = "";
  bool abandoned_ = false, used_cuda_ = false;
  std::shared_ptr<Buffers> buffers_ = std::make_shared<Buffers>();
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(World& world, const CommunicatorOptions&) {
  return std::make_unique<MpiCommunicator>(world);
}

}  // namespace trainsuite
