#include "train/gradient_sync.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace trainsuite {
namespace {

std::int64_t bytes(const at::Tensor& tensor) { return static_cast<std::int64_t>(tensor.nbytes()); }

/// Parameters in the order in which backward finishes their dense gradients: by their earliest
/// dense use, from the end of the forward pass to its start.
std::vector<size_t> readiness_order(const WorkingWeights& weights,
                                    const std::vector<bool>& sparse_use) {
  const auto& uses = weights.uses();
  const size_t parameters = weights.parameters().size();
  std::vector<size_t> first_use(parameters, uses.size());
  for (size_t use = uses.size(); use-- > 0;) {
    if (!sparse_use[use]) first_use[uses[use].parameter] = use;
  }
  std::vector<size_t> order(parameters);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return first_use[a] > first_use[b]; });
  return order;
}

}  // namespace

GradientSync::GradientSync(WorkingWeights& weights, Communicator& communicator,
                           GradientSyncOptions options)
    : Gradients(weights), communicator_(communicator), options_(std::move(options)) {
  const auto device = weights.parameters().front().device();
  if (communicator.asynchronous()) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    side_stream_ = guard.getStreamFromGlobalPool(device, /*isHighPriority=*/true);
  }
  std::vector<bool> sparse_use(weights.uses().size(), false);
  for (size_t use : options_.sparse_uses) sparse_use.at(use) = true;
  if (options_.find_unused && !options_.sparse_uses.empty()) {
    fail("gradient sync: find_unused cannot be had with sparse gradients; use dense ones");
  }
  slot_of_parameter_.resize(weights.parameters().size());
  for (size_t parameter : readiness_order(weights, sparse_use)) {
    slot_of_parameter_[parameter] = slots_.size();
    slots_.push_back(
        {.parameter = parameter, .bucket = 0, .dense_uses = 0, .value = {}, .wire = {}});
  }
  for (size_t use = 0; use < sparse_use.size(); ++use) {
    auto& slot = slots_[slot_of_parameter_[weights.uses()[use].parameter]];
    if (sparse_use[use]) {
      slot.rows = true;
    } else {
      ++slot.dense_uses;
    }
  }
  lay_out();
}

void GradientSync::lay_out() {
  const auto& parameters = weights_.parameters();
  const auto fp32 = parameters.front().options().dtype(at::kFloat);
  std::int64_t total = 0;
  for (const auto& p : parameters) total += p.numel();
  const auto values = at::zeros({total}, fp32);
  const bool narrow_wire = options_.wire != at::kFloat;
  const auto wires = narrow_wire ? at::zeros({total}, fp32.dtype(options_.wire)) : values;

  views_.resize(parameters.size());
  std::int64_t offset = 0, bucket_start = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    auto& slot = slots_[i];
    const auto& p = parameters[slot.parameter];
    if (buckets_.empty() ||
        (offset - bucket_start) * wires.element_size() >= options_.bucket_bytes) {
      buckets_.emplace_back();
      bucket_start = offset;
    }
    slot.bucket = buckets_.size() - 1;
    slot.value = values.narrow(0, offset, p.numel()).view(p.sizes());
    slot.wire = wires.narrow(0, offset, p.numel()).view(p.sizes());
    views_[slot.parameter] = slot.rows ? slot.value : slot.wire;
    offset += p.numel();
    auto& bucket = buckets_.back();
    bucket.slots.push_back(i);
    bucket.wire = wires.narrow(0, bucket_start, offset - bucket_start);
  }
  gradients_ = views_;
  if (options_.find_unused) used_ = at::zeros({static_cast<std::int64_t>(slots_.size())}, fp32);
}

void GradientSync::begin_backward(bool first, bool last) {
  last_ = last;
  for (auto& slot : slots_) {
    slot.pending = slot.dense_uses;
    if (first) slot.has_value = slot.touched = false;
  }
  if (first) rows_.clear();
  next_bucket_ = 0;
  for (auto& bucket : buckets_) bucket.pending = bucket.slots.size();
  if (!last) return;
  for (auto& slot : slots_) {
    if (slot.dense_uses > 0) continue;  // only rows: what earlier micro-batches left is ready now
    settle(slot);
    slot_ready(slot);
  }
}

void GradientSync::receive(size_t use, const at::Tensor& gradient) {
  const size_t index = slot_of_parameter_[weights_.uses()[use].parameter];
  auto& slot = slots_[index];
  slot.touched = true;
  if (gradient.is_sparse()) {
    receive_rows(index, gradient);
  } else if (last_) {
    receive_last(slot, gradient);
  } else {
    accumulate(slot, gradient);
  }
}

void GradientSync::receive_rows(size_t index, const at::Tensor& gradient) {
  auto& slot = slots_[index];
  if (last_) {
    rows_.push_back({index, gradient._indices()[0].contiguous(), gradient._values().contiguous()});
    return;
  }
  if (!slot.has_value) slot.value.zero_();
  slot.has_value = true;
  add_rows_(slot.value, gradient._indices()[0], gradient._values());
}

void GradientSync::accumulate(Slot& slot, const at::Tensor& gradient) {
  if (slot.has_value) {
    slot.value.add_(gradient);
  } else {
    slot.value.copy_(gradient);
  }
  slot.has_value = true;
}

void GradientSync::receive_last(Slot& slot, const at::Tensor& gradient) {
  if (slot.pending == 0) fail("gradient sync: a parameter had more gradients than declared uses");
  const bool final_use = --slot.pending == 0;
  if (!final_use || options_.wire == at::kFloat) {
    accumulate(slot, gradient);
  } else if (slot.has_value) {
    at::add_out(slot.wire, slot.value, gradient);  // summed in fp32, rounded once
  } else {
    slot.wire.copy_(gradient);
  }
  if (final_use) slot_ready(slot);
}

void GradientSync::settle(Slot& slot) {
  if (!slot.has_value) {
    slot.wire.zero_();
  } else if (options_.wire != at::kFloat) {
    slot.wire.copy_(slot.value);
  }
}

void GradientSync::slot_ready(Slot& slot) {
  --buckets_[slot.bucket].pending;
  if (!communicator_.asynchronous()) return;  // a blocking reduction would stop backward
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].pending == 0) {
    issue(buckets_[next_bucket_++]);
  }
}

void GradientSync::on_side_stream(const std::function<void()>& work) {
  if (!side_stream_) return work();
  const c10::impl::VirtualGuardImpl guard(side_stream_->device_type());
  c10::Event ready(side_stream_->device_type());
  ready.record(guard.getStream(side_stream_->device()));
  ready.block(*side_stream_);
  const c10::StreamGuard on_side(*side_stream_);
  work();
}

void GradientSync::issue(Bucket& bucket) {
  on_side_stream([&] {
    communicator_.all_reduce(bucket.wire);
    if (options_.wire == at::kFloat) return;
    for (size_t index : bucket.slots) {
      if (slots_[index].rows) slots_[index].value.copy_(slots_[index].wire);
    }
  });
  wire_bytes_ += bytes(bucket.wire);
}

void GradientSync::finish() {
  while (next_bucket_ < buckets_.size()) {
    auto& bucket = buckets_[next_bucket_++];
    for (size_t index : bucket.slots) {
      if (slots_[index].pending > 0) settle(slots_[index]);
    }
    issue(bucket);
  }
  if (!rows_.empty()) gather_rows();
  if (options_.find_unused) reduce_used();
  if (!side_stream_) return;
  const c10::impl::VirtualGuardImpl guard(side_stream_->device_type());
  c10::Event done(side_stream_->device_type());
  done.record(*side_stream_);
  done.block(guard.getStream(side_stream_->device()));
}

void GradientSync::gather_rows() {
  on_side_stream([&] {
    for (auto& [index, ids, values] : rows_) {
      const auto mine = values.to(options_.wire);
      auto all_ids = at::empty({communicator_.size(), ids.size(0)}, ids.options());
      auto all_rows = at::empty({communicator_.size(), mine.size(0), mine.size(1)}, mine.options());
      communicator_.all_gather(ids, all_ids);
      communicator_.all_gather(mine, all_rows);
      wire_bytes_ += bytes(ids) + bytes(mine);
      add_rows_(slots_[index].value, all_ids.flatten(), all_rows.flatten(0, 1).to(at::kFloat));
    }
  });
}

void GradientSync::reduce_used() {
  bool missing = false;
  std::vector<float> mine;
  for (const auto& slot : slots_) {
    mine.push_back(slot.touched ? 1.0F : 0.0F);
    missing = missing || !slot.touched;
  }
  used_.copy_(at::from_blob(mine.data(), {used_.numel()}, at::kFloat));
  on_side_stream([&] { communicator_.all_reduce(used_); });
  gradients_ = views_;
  if (!missing) return;
  at::Tensor anywhere;
  on_side_stream([&] { anywhere = used_.cpu(); });
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (anywhere[static_cast<std::int64_t>(i)].item<float>() == 0) {
      gradients_[slots_[i].parameter].reset();
    }
  }
}

void GradientSync::release() { rows_.clear(); }

}  // namespace trainsuite
