// Fine-tuning does not depend on ranks, micro-batch, padding or packing.
//   test_finetune [--backend mpi|nccl] [--device cpu|cuda]
#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <optional>

#include "comm/communicator.h"
#include "mpi_session.h"
#include "train/finetune_task.h"

namespace {

using namespace trainsuite;

World* world = nullptr;
DeviceInfo device;
std::unique_ptr<Communicator> communicator;

constexpr std::int64_t kSteps = 3;

/// Lengths that differ much, one of them without a label; 16 examples and 3 in the last step.
TrainingData uneven_data() {
  const std::vector<std::int64_t> lengths{3, 50, 7, 90, 11, 1, 20, 33, 5, 64,
                                          2, 18, 9, 40, 12, 8, 25, 6,  31};
  TrainingData data{"test", 512, {}, {}};
  std::int32_t token = 1;
  for (const std::int64_t length : lengths) {
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < length; ++i) ids.push_back(token = (token * 73 + 19) % 509);
    const Span answer{length / 2, length};
    data.train.add(ids, {&answer, 1});
    data.held_out.add(ids, {&answer, 1});
  }
  return data;
}

Case make_case(const std::string& method, std::int64_t micro_batch, std::int64_t accumulate) {
  Case one;
  one.suite = "finetune";
  one.size = "tiny";
  one.recipe = method;
  one.precision = "fp32";
  one.micro_batch = micro_batch;
  one.accumulate = accumulate;
  one.warmup = 0;
  one.steps = kSteps;
  one.learning_rate = method == "full" ? 1e-3 : 1e-2;
  one.finetune = FinetuneRecipe{};
  one.finetune->method = method;
  one.finetune->lora_rank = 4;
  return one;
}

struct Trained {
  std::vector<double> losses;  // of this rank
  double before = 0, after = 0;
  std::int64_t hash = 0;
};

double fact(const Settings& facts) {
  return facts.empty() ? std::nan("") : std::get<double>(facts.front().value);
}

Trained train(const Case& work, const TrainingData& data, Placement place, Communicator* with) {
  std::optional<c10::cuda::CUDAStreamGuard> stream;  // the default one cannot be captured
  if (device.cuda) stream.emplace(c10::cuda::getStreamFromPool());
  const auto task =
      make_finetune_task(work, decoder_config("tiny"), data,
                         random_weights(1, device.torch_device()), device, place, with);
  const auto clock = make_step_clock(device.cuda, kSteps, 0, /*enabled=*/false);
  Trained trained;
  trained.before = fact(task->before_steps());
  for (std::int64_t i = 0; i < kSteps; ++i) {
    auto loss = at::zeros({}, at::TensorOptions().device(device.torch_device()));
    if (i == 1 && device.cuda) task->use_graph(work.execution == "graph");
    task->step(i, *clock, loss);
    trained.losses.push_back(loss.item<double>());
  }
  trained.after = fact(task->after_steps());
  trained.hash = task->weights_hash();
  return trained;
}

class Methods : public testing::TestWithParam<const char*> {};

TEST_P(Methods, MicroBatchesPaddingAndPackingGiveOneTraining) {
  const TrainingData data = uneven_data();
  const Trained expected = train(make_case(GetParam(), 8, 1), data, {}, nullptr);
  EXPECT_LT(expected.after, expected.before - 1e-3);
  const std::pair<std::int64_t, std::int64_t> shapes[] = {{1, 8}, {8, 1}, {4, 2}};
  for (const auto& [micro_batch, accumulate] : shapes) {
    Case work = make_case(GetParam(), micro_batch, accumulate);
    for (const char* packing : {"on", "off"}) {
      work.finetune->packing = packing;
      work.finetune->length_buckets = std::string(packing) == "off" && micro_batch == 4
                                          ? std::vector<std::int64_t>{16, 128}
                                          : std::vector<std::int64_t>{};
      work.finetune->pack_to = micro_batch == 4 ? 16 : 1;
      const Trained mine = train(work, data, {}, nullptr);
      for (size_t i = 0; i < kSteps; ++i) EXPECT_NEAR(mine.losses[i], expected.losses[i], 2e-5);
      EXPECT_NEAR(mine.after, expected.after, 2e-5) << micro_batch << packing;
    }
  }
}

TEST_P(Methods, RanksTrainAsOneRankOnTheJointBatch) {
  const TrainingData data = uneven_data();
  const std::int64_t ranks = world->size();
  const Trained expected = train(make_case(GetParam(), 2 * ranks, 2), data, {}, nullptr);
  const Trained mine =
      train(make_case(GetParam(), 2, 2), data, {world->rank(), world->size()}, communicator.get());
  EXPECT_NEAR(mine.before, expected.before, 1e-5);
  EXPECT_NEAR(mine.after, expected.after, 2e-5);
  for (const auto& other : world->all_gather(std::to_string(mine.hash))) {
    EXPECT_EQ(other, std::to_string(mine.hash));
  }
}

/// Of a graph row; on a CPU without the graphs: the sums that keep their place.
TEST_P(Methods, KeptGradientsAndGraphsTrainAsEager) {
  const TrainingData data = uneven_data();
  for (const char* packing : {"on", "off"}) {
    Case work = make_case(GetParam(), 4, 2);
    work.finetune->packing = packing;
    if (std::string(packing) == "off") {
      work.finetune->length_buckets = {16, 64, 128};
    } else {
      // fp32 attention takes packed examples one by one, which graphs cannot hold.
      work.finetune->pack_to = device.cuda ? 1 : 16;
    }
    const Placement place{world->rank(), world->size()};
    const Trained expected = train(work, data, place, communicator.get());
    work.execution = "graph";
    const Trained mine = train(work, data, place, communicator.get());
    for (size_t i = 0; i < kSteps; ++i) {
      if (std::isnan(expected.losses[i])) continue;  // a step without labels of this rank
      EXPECT_NEAR(mine.losses[i], expected.losses[i], 2e-5) << packing << i;
    }
    EXPECT_NEAR(mine.after, expected.after, 2e-5) << packing;
  }
}

TEST_P(Methods, CheckpointingChangesNothing) {
  const TrainingData data = uneven_data();
  Case work = make_case(GetParam(), 4, 2);
  const Trained expected = train(work, data, {}, communicator.get());
  work.finetune->checkpointing = "on";
  const Trained mine = train(work, data, {}, communicator.get());
  EXPECT_NEAR(mine.after, expected.after, 2e-5);
  if (!device.cuda) {
    EXPECT_EQ(mine.hash, expected.hash);
  }
}

/// Adapters' inputs are thinned out in training, not in evaluation; backward and blocks that run
/// again make the same mask.
TEST_P(Methods, DropoutIsOfTrainingAlone) {
  const TrainingData data = uneven_data();
  Case work = make_case(GetParam(), 4, 2);
  const bool adapters = work.finetune->method != "full";
  const Trained plain = train(work, data, {}, nullptr);
  work.finetune->lora_dropout = adapters ? 0.4 : 0;
  const Trained mine = train(work, data, {}, nullptr), again = train(work, data, {}, nullptr);
  EXPECT_EQ(mine.before, plain.before);
  EXPECT_EQ(mine.losses[0], plain.losses[0]);  // B is 0 yet
  EXPECT_EQ(mine.hash != plain.hash, adapters);
  EXPECT_NEAR(mine.after, plain.after, 0.05);
  if (device.cuda) return;
  EXPECT_EQ(mine.hash, again.hash);
  work.finetune->checkpointing = "on";
  EXPECT_EQ(train(work, data, {}, nullptr).hash, mine.hash);
}

TEST_P(Methods, WholeLogitsAndForeachTrainAlike) {
  const TrainingData data = uneven_data();
  Case work = make_case(GetParam(), 4, 2);
  const Trained expected = train(work, data, {}, nullptr);
  work.loss_kernel = work.block_kernel = "reference";
  work.finetune->optimizer = "foreach";
  work.finetune->qlora_upcast = true;  // of fp32 on a CPU: nothing changes
  const Trained mine = train(work, data, {}, nullptr);
  EXPECT_NEAR(mine.after, expected.after, 2e-5);
}

TEST(Finetune, NestedMaximaTrainNearly) {
  const TrainingData data = uneven_data();
  Case work = make_case("qlora", 4, 2);
  const Trained plain = train(work, data, {}, nullptr);
  work.finetune->nf4_double_quant = true;
  const Trained nested = train(work, data, {}, nullptr);
  EXPECT_NE(nested.before, plain.before);
  EXPECT_NEAR(nested.before, plain.before, 0.02);
  EXPECT_NEAR(nested.after, plain.after, 0.05);
}

INSTANTIATE_TEST_SUITE_P(All, Methods, testing::Values("full", "lora", "qlora"),
                         [](const auto& method) { return std::string(method.param); });

TEST(Finetune, TheLossCountsLabelsAndNotExamples) {
  const TrainingData data = uneven_data();
  Case work = make_case("full", 8, 1);
  work.learning_rate = 1e-12;
  const double joint = train(work, data, {}, nullptr).losses[0];
  double sum = 0;
  std::int64_t labels = 0;
  for (std::int64_t i = 0; i < 8; ++i) {
    TrainingData single{"test", 512, {}, {}};
    single.train.add(data.train.example(i), data.train.answers(i));
    if (data.train.length(i) < 2) continue;
    const auto count = data.train.length(i) - 1;
    sum +=
        train(make_case("full", 1, 1), single, {}, nullptr).losses[0] * static_cast<double>(count);
    labels += count;
  }
  EXPECT_NEAR(joint, sum / static_cast<double>(labels), 1e-5);
}

TEST(Finetune, AnswersAloneAreAnotherLoss) {
  const TrainingData data = uneven_data();
  Case work = make_case("lora", 8, 1);
  const Trained all = train(work, data, {}, nullptr);
  work.finetune->loss_on = "answer";
  const Trained answers = train(work, data, {}, nullptr);
  EXPECT_GT(std::abs(all.before - answers.before), 1e-4);
}

TEST(Finetune, AStepWithoutLabelsOfThisRankHasNoLoss) {
  TrainingData data{"test", 512, {}, {}};
  const std::vector<std::int32_t> one{5}, many{5, 6, 7, 8};
  for (int i = 0; i < 4; ++i) data.train.add(one, {});
  for (int i = 0; i < 4; ++i) data.train.add(many, {});
  const Trained mine = train(make_case("full", 4, 1), data, {}, nullptr);
  EXPECT_TRUE(std::isnan(mine.losses[0]));
  EXPECT_TRUE(std::isfinite(mine.losses[1]));
  EXPECT_TRUE(std::isnan(mine.after));  // nothing is held out
}

}  // namespace

int main(int argc, char** argv) {
  return testing_mpi::run_all(
      argc, argv,
      [&](World& started, const DeviceInfo& chosen) {
        world = &started, device = chosen;
        communicator =
            make_communicator(testing_mpi::option(argc, argv, "--backend", "mpi"), started, {});
      },
      [] { communicator.reset(); });
}
