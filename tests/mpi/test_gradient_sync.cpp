// N ranks' summed gradients equal one rank's over the joint batch, whatever the shapes, strides,
// buckets and micro-batches.
//   test_gradient_sync [--backend mpi|nccl] [--device cpu|cuda]
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "comm/communicator.h"
#include "model/counter_hash.h"
#include "mpi_session.h"
#include "train/gradient_sync.h"

namespace {

using namespace trainsuite;

World* world = nullptr;
std::unique_ptr<Communicator> communicator;
at::Device device(at::kCPU);

at::Tensor noise(std::vector<std::int64_t> shape, std::int64_t key) {
  auto out = at::empty(shape, at::TensorOptions().device(device).dtype(at::kFloat));
  fill_initial_parameter_(out, 99, key, 1.0);
  return out;
}

/// A small model with what real ones have: a matrix used through a transposed view (its gradient
/// arrives strided), a tied embedding, a vector, one parameter that only some ranks use and one
/// that none uses.
enum Parameter : size_t { embedding, matrix, vector, sometimes, never };
const std::vector<ParameterSpec> specs{{"embedding", {11, 6}, 1.0, 0},
                                       {"matrix", {5, 6}, 1.0, 0},
                                       {"vector", {5}, 1.0, 0},
                                       {"sometimes", {3}, 1.0, 0},
                                       {"never", {2}, 1.0, 0}};
const std::vector<ParameterUse> uses{{embedding, false}, {matrix, true}, {vector, false},
                                     {sometimes, false}, {never, false}, {embedding, true}};

struct Variant {
  at::ScalarType wire, compute;
  std::int64_t accumulate, bucket_bytes;
  bool rows, find_unused;
};

/// The summed loss of `count` global examples from `first` on; odd ones use `sometimes`.
at::Tensor batch_loss(at::TensorList leaves, std::int64_t first, std::int64_t count, bool rows) {
  const auto vocabulary = specs[embedding].shape[0];
  const auto ids = random_tokens(7, 0, first, count, 4, vocabulary, device).flatten();
  const auto x = at::embedding(leaves[0], ids, -1, false, /*sparse=*/rows);  // [tokens, 6]
  const auto w = leaves[1].t().to(at::kFloat);                               // [6, 5], strided
  const auto y = at::tanh(at::matmul(x, w) + leaves[2]);
  auto loss = y.pow(2).sum() + at::matmul(x, leaves[5].to(at::kFloat).t()).sin().sum();
  for (std::int64_t example = first; example < first + count; ++example) {
    if (example % 2 == 1) loss = loss + (leaves[3] * noise({3}, example)).sum();
  }
  return loss;
}

void backward(Gradients& gradients, const WorkingWeights& weights, const Variant& variant,
              std::int64_t first, std::int64_t count, std::int64_t stride) {
  for (std::int64_t micro = 0; micro < variant.accumulate; ++micro) {
    gradients.begin_backward(micro == 0, micro + 1 == variant.accumulate);
    batch_loss(weights.leaves(), micro * stride + first, count, variant.rows).backward();
  }
  gradients.finish();
}

double relative(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

class Equality : public testing::TestWithParam<Variant> {};

TEST_P(Equality, RanksEqualOneRankWithTheJointBatch) {
  const auto variant = GetParam();
  // One example a rank: with two ranks only the second uses `sometimes`.
  const std::int64_t per_rank = variant.find_unused && world->size() > 1 ? 1 : 3;
  const std::int64_t joint = per_rank * world->size();
  WorkingWeights one(specs, uses, variant.compute, device, 1);
  LocalGradients expected(one);
  backward(expected, one, variant, 0, joint, joint);

  WorkingWeights mine(specs, uses, variant.compute, device, 1);
  GradientSyncOptions options;
  options.wire = variant.wire;
  options.bucket_bytes = variant.bucket_bytes;
  options.find_unused = variant.find_unused;
  if (variant.rows) options.sparse_uses = {0};
  GradientSync sync(mine, *communicator, options);
  // Twice: nothing of the first step may be left in the second.
  for (int step = 0; step < 2; ++step) {
    backward(sync, mine, variant, world->rank() * per_rank, per_rank, joint);
    const double tolerance =
        variant.wire == at::kBFloat16 || variant.compute == at::kBFloat16 ? 2e-2 : 1e-5;
    for (size_t p : {embedding, matrix, vector, sometimes}) {
      ASSERT_TRUE(sync.gradients()[p].defined()) << specs[p].name;
      EXPECT_LT(relative(sync.gradients()[p], expected.gradients()[p]), tolerance)
          << specs[p].name << " in step " << step;
    }
    for (const auto& gradient : sync.gradients()) {
      if (!gradient.defined()) continue;
      const auto hash = std::to_string(tensor_hash(gradient.contiguous()).item<std::int64_t>());
      for (const auto& other : world->all_gather(hash)) EXPECT_EQ(other, hash);
    }
    sync.release();
  }
  EXPECT_FALSE(expected.gradients()[never].defined());
  if (variant.find_unused) {
    EXPECT_FALSE(sync.gradients()[never].defined());
  } else {
    EXPECT_EQ(sync.gradients()[never].abs().max().item<float>(), 0.0F);
  }
}

std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (const auto wire : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t accumulate : {1, 3, 4}) {
      for (const std::int64_t bucket_bytes : {1, 100, 25 << 20}) {
        all.push_back({wire, at::kFloat, accumulate, bucket_bytes, false, false});
        all.push_back({wire, at::kFloat, accumulate, bucket_bytes, true, false});
        all.push_back({wire, at::kFloat, accumulate, bucket_bytes, false, true});
        all.push_back({wire, at::kBFloat16, accumulate, bucket_bytes, true, false});
      }
    }
  }
  return all;
}

std::string label(const testing::TestParamInfo<Variant>& info) {
  const auto& v = info.param;
  return std::string(v.wire == at::kFloat ? "fp32" : "bf16") + "Wire" +
         (v.compute == at::kFloat ? "fp32" : "bf16") + "ComputeAccumulate" +
         std::to_string(v.accumulate) + "Bucket" + std::to_string(v.bucket_bytes) +
         (v.rows ? "Rows" : "Dense") + (v.find_unused ? "Unused" : "");
}

INSTANTIATE_TEST_SUITE_P(All, Equality, testing::ValuesIn(variants()), label);

TEST(GradientSync, SendsNothingBeforeTheLastMicroBatch) {
  WorkingWeights weights(specs, uses, at::kFloat, device, 1);
  GradientSync sync(weights, *communicator, {});
  sync.begin_backward(true, false);
  batch_loss(weights.leaves(), 1, 1, false).backward();
  EXPECT_EQ(sync.wire_bytes(), 0);
  sync.begin_backward(false, true);
  batch_loss(weights.leaves(), 2, 1, false).backward();
  sync.finish();
  EXPECT_EQ(sync.wire_bytes(), 4 * weights.parameter_count());
}

TEST(GradientSync, Bf16WireHalvesTheBytes) {
  std::int64_t bytes[2];
  for (const bool narrow : {false, true}) {
    WorkingWeights weights(specs, uses, at::kFloat, device, 1);
    GradientSyncOptions options;
    options.wire = narrow ? at::kBFloat16 : at::kFloat;
    GradientSync sync(weights, *communicator, options);
    sync.begin_backward(true, true);
    batch_loss(weights.leaves(), 1, 1, false).backward();
    sync.finish();
    bytes[narrow] = sync.wire_bytes();
  }
  EXPECT_EQ(bytes[0], 2 * bytes[1]);
}

TEST(GradientSync, LeavesKeepNoGradient) {
  WorkingWeights weights(specs, uses, at::kFloat, device, 1);
  GradientSync sync(weights, *communicator, {});
  sync.begin_backward(true, true);
  batch_loss(weights.leaves(), 1, 1, false).backward();
  sync.finish();
  for (const auto& leaf : weights.leaves()) EXPECT_FALSE(leaf.grad().defined());
}

}  // namespace

int main(int argc, char** argv) {
  const auto begin = [&](World& session, const DeviceInfo& info) {
    world = &session;
    device = info.torch_device();
    communicator =
        make_communicator(testing_mpi::option(argc, argv, "--backend", "mpi"), session, {});
  };
  return testing_mpi::run_all(argc, argv, begin, [] { communicator.reset(); });
}
