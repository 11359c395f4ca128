// N ranks with micro-batch B train as one rank with N x B; replicas stay bit-equal.
//   test_trainer [--backend mpi|nccl] [--device cpu|cuda]
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "comm/communicator.h"
#include "mpi_session.h"
#include "train/trainer.h"

namespace {

using namespace trainsuite;

World* world = nullptr;
DeviceInfo device;
std::unique_ptr<Communicator> communicator;

struct Variant {
  const char* name;
  const char* wire;
  const char* precision;
  std::int64_t accumulate, vocabulary;  // a small vocabulary makes the embedding's gradient dense
};

Case make_case(const Variant& variant, std::int64_t micro_batch) {
  Case one;
  one.suite = "ddp";
  one.size = "tiny";
  one.recipe = variant.name;
  one.wire = variant.wire;
  one.precision = variant.precision;
  one.accumulate = variant.accumulate;
  one.micro_batch = micro_batch;
  one.sequence = 16;
  one.vocabulary = variant.vocabulary;
  one.attention = "auto";
  one.loss_kernel = "reference";
  one.learning_rate = 1e-3;
  return one;
}

double step(Trainer& trainer, std::int64_t index, std::int64_t micro_batch) {
  const auto clock = make_step_clock(device.cuda, 1, 0, /*enabled=*/false);
  auto loss = at::zeros({}, at::TensorOptions().device(device.torch_device()));
  trainer.step(index, {micro_batch, 16}, *clock, loss);
  return loss.item<double>();
}

double mean_over_ranks(double mine) {
  double sum = 0;
  for (const auto& text : world->all_gather(std::to_string(mine))) sum += std::stod(text);
  return sum / world->size();
}

class Equality : public testing::TestWithParam<Variant> {};

TEST_P(Equality, RanksTrainAsOneRankOnTheJointBatch) {
  const auto variant = GetParam();
  const std::int64_t micro_batch = 3, joint = micro_batch * world->size();
  Trainer one(make_case(variant, joint), device, {}, nullptr);
  Trainer mine(make_case(variant, micro_batch), device, {world->rank(), world->size()},
               communicator.get());
  const bool narrow =
      std::string(variant.wire) == "bf16" || std::string(variant.precision) == "bf16";
  for (std::int64_t i = 0; i < 4; ++i) {
    const double expected = step(one, i, joint);
    const double loss = mean_over_ranks(step(mine, i, micro_batch));
    EXPECT_NEAR(loss, expected, (narrow ? 2e-3 : 2e-5) * expected) << "step " << i;
    const auto hash = std::to_string(mine.weights().hash().item<std::int64_t>());
    for (const auto& other : world->all_gather(hash)) EXPECT_EQ(other, hash) << "step " << i;
  }
  const auto a = mine.weights().parameters(), b = one.weights().parameters();
  for (size_t p = 0; p < a.size(); ++p) {
    // Adam divides by the gradient's size, so entries near zero may differ by a step's length.
    EXPECT_LT((a[p] - b[p]).abs().mean().item<double>(), narrow ? 5e-4 : 2e-5) << p;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Equality,
                         testing::Values(Variant{"plain", "fp32", "fp32", 1, 512},
                                         Variant{"bf16", "bf16", "fp32", 1, 512},
                                         Variant{"accumulate3", "fp32", "fp32", 3, 512},
                                         Variant{"accumulate4", "fp32", "fp32", 4, 512},
                                         Variant{"both", "bf16", "fp32", 4, 512},
                                         Variant{"dense", "fp32", "fp32", 3, 20},
                                         Variant{"mixed", "fp32", "bf16", 4, 512},
                                         Variant{"mixedboth", "bf16", "bf16", 4, 512}),
                         [](const auto& variant) { return std::string(variant.param.name); });

TEST(Trainer, CopiesFollowTheParameters) {
  Trainer mine(make_case({"mixed", "fp32", "bf16", 1, 512}, 2), device,
               {world->rank(), world->size()}, communicator.get());
  const auto start = mine.weights().parameters()[0].clone();
  for (std::int64_t i = 0; i < 2; ++i) step(mine, i, 2);
  EXPECT_FALSE(at::equal(mine.weights().parameters()[0], start));
  for (size_t i = 0; i < mine.weights().parameters().size(); ++i) {
    const auto& copy = mine.weights().copies()[i];
    if (!copy.defined()) continue;
    EXPECT_TRUE(at::equal(copy, mine.weights().parameters()[i].to(at::kBFloat16))) << i;
  }
}

TEST(Trainer, RanksSeeDifferentTokens) {
  const Variant variant{"plain", "fp32", "fp32", 1, 512};
  Trainer mine(make_case(variant, 2), device, {world->rank(), world->size()}, communicator.get());
  Trainer one(make_case(variant, 2 * world->size()), device, {}, nullptr);
  const auto joint = one.tokens(5, 0, {2 * world->size(), 16});
  EXPECT_TRUE(at::equal(mine.tokens(5, 0, {2, 16}), joint.narrow(0, 2 * world->rank(), 2)));
}

}  // namespace

int main(int argc, char** argv) {
  const auto begin = [&](World& session, const DeviceInfo& info) {
    world = &session;
    device = info;
    communicator =
        make_communicator(testing_mpi::option(argc, argv, "--backend", "mpi"), session, {});
  };
  return testing_mpi::run_all(argc, argv, begin, [] { communicator.reset(); });
}
