#pragma once
// Sums gradients over ranks, overlapped with backward.
#include <c10/core/Stream.h>

#include <functional>
#include <optional>

#include "comm/communicator.h"
#include "train/gradients.h"

namespace trainsuite {

struct GradientSyncOptions {
  at::ScalarType wire = at::kFloat;      // kFloat, or kBFloat16: half the bytes
  std::int64_t bucket_bytes = 25 << 20;  // on the wire; 25 MiB as DistributedDataParallel
  std::vector<size_t> sparse_uses;       // uses whose gradient comes as touched rows
  bool find_unused = false;  // a parameter unused on all ranks keeps no gradient (one more
                             // reduction, and a host wait on ranks that miss one); otherwise a
                             // missing gradient counts as zero
};

/// Buckets in order of readiness. Each gradient is copied once: from autograd's tensor into its
/// bucket, cast to the wire's dtype on the way, and stays there for the optimizer. A full bucket is
/// summed on a side stream while backward goes on, in the same order on all ranks; nothing is sent
/// before the last micro-batch. It sums: the mean's factor is in the loss. A blocking communicator
/// reduces after backward.
///
/// A sparse gradient (an embedding's touched rows) is gathered as rows and added, in rank order,
/// to the sum of the parameter's dense gradients. So a tied embedding's head part travels early.
/// Every rank must then bring the same number of rows.
class GradientSync final : public Gradients {
 public:
  GradientSync(WorkingWeights& weights, Communicator& communicator, GradientSyncOptions options);

  void begin_backward(bool first, bool last) override;
  void finish() override;
  void release() override;

  std::int64_t bucket_count() const { return static_cast<std::int64_t>(buckets_.size()); }
  /// Bytes that this rank put into all-reduces and gathers since construction.
  std::int64_t wire_bytes() const { return wire_bytes_; }

 private:
  struct Slot {
    size_t parameter, bucket;
    std::int64_t dense_uses;
    at::Tensor value, wire;    // fp32 sum; what is sent (the same where the wire is fp32)
    std::int64_t pending = 0;  // dense uses to come in this backward
    bool has_value = false;    // holds earlier micro-batches or uses
    bool touched = false;      // this rank had a gradient in this step
    bool rows = false;         // has sparse uses, so ends in value; else in wire
  };
  struct Bucket {
    at::Tensor wire;
    std::vector<size_t> slots;
    size_t pending = 0;
  };
  struct Rows {
    size_t slot;
    at::Tensor ids, values;
  };

  void receive(size_t use, const at::Tensor& gradient) override;
  void receive_rows(size_t slot, const at::Tensor& gradient);
  void receive_last(Slot& slot, const at::Tensor& gradient);
  void accumulate(Slot& slot, const at::Tensor& gradient);
  void settle(Slot& slot);
  void slot_ready(Slot& slot);
  void issue(Bucket& bucket);
  void gather_rows();
  void reduce_used();
  void on_side_stream(const std::function<void()>& work);
  void lay_out();

  Communicator& communicator_;
  GradientSyncOptions options_;
  std::vector<Slot> slots_;
  std::vector<size_t> slot_of_parameter_;
  std::vector<Bucket> buckets_;
  std::vector<Rows> rows_;
  std::vector<at::Tensor> views_;  // per parameter, into the buckets
  at::Tensor used_;
  std::optional<c10::Stream> side_stream_;
  size_t next_bucket_ = 0;
  bool last_ = false;
  std::int64_t wire_bytes_ = 0;
};

}  // namespace trainsuite
