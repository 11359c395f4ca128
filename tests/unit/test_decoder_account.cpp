// What steps of the finetune and compile suites take, against counts by hand and bytes of the
// published models.
#include <gtest/gtest.h>

#include "decoder_account.h"
#include "finetune.h"
#include "suite.h"

namespace trainsuite {
namespace {

constexpr std::int64_t qwen_parameters = 1'543'714'304, adapter_parameters = 18'464'768;
constexpr std::int64_t qwen_matrices = 28 * (1536 * (2048 + 1536) + 3 * 1536 * 8960);
constexpr std::int64_t qwen_head = 151'936 * 1536;

Case finetune_case(const std::string& recipe, const std::string& size = "1.5b", int ranks = 1,
                   Options options = {}) {
  for (auto& one : finetune_cases(options, /*cuda=*/true, ranks)) {
    if (one.size == size && one.recipe == recipe) return one;
  }
  throw std::runtime_error("no such case");
}

TEST(FinetuneAccount, BytesAreThoseOfThePublishedModel) {
  const auto full = finetune_account(finetune_case("full-4x4"));
  // fp32 values; bf16 copies of all but the 57 norms.
  EXPECT_EQ(full.weight_bytes, 4 * qwen_parameters + 2 * (qwen_parameters - 57 * 1536));
  EXPECT_EQ(full.optimizer_bytes, 8 * qwen_parameters);
  EXPECT_EQ(full.gradient_bytes, 4 * qwen_parameters);
  const auto lora = finetune_account(finetune_case("lora-4x4"));
  EXPECT_EQ(lora.weight_bytes, 2 * qwen_parameters + 6 * adapter_parameters);
  EXPECT_EQ(lora.optimizer_bytes, 8 * adapter_parameters);
  EXPECT_EQ(lora.gradient_bytes, 4 * adapter_parameters);
  // 4-bit matrices of 0.737 GB; with embedding, norms and biases in bf16 1.204 GB.
  const auto qlora = finetune_account(finetune_case("qlora-4x4"));
  const auto base = static_cast<double>(qlora.weight_bytes - 6 * adapter_parameters);
  EXPECT_NEAR(base, 1.204e9, 0.01 * 1.204e9);
  Options upcast;
  upcast.qlora_upcast = true;
  const auto wide = finetune_account(finetune_case("qlora-4x4", "1.5b", 1, upcast));
  EXPECT_EQ(wide.weight_bytes - qlora.weight_bytes, 2 * (qwen_head + 57 * 1536));
}

TEST(FinetuneAccount, FrozenMatricesHaveNoWeightGradient) {
  auto work = finetune_case("full-4x4");
  const auto full = finetune_account(work);
  const auto lora = finetune_account(finetune_case("lora-4x4"));
  const double matrices = static_cast<double>(qwen_matrices + qwen_head);
  ASSERT_EQ(full.tokens, lora.tokens);
  // Attention is the same; causal it is half of it.
  const double attention = full.flops_uncausal - full.flops;
  EXPECT_GT(attention, 0);
  EXPECT_NEAR(full.flops - attention, *full.tokens * 6 * matrices, 1e-9 * full.flops);
  // The first block's q, k, v and their adapters need no gradient of their input.
  const double first = 1536 * (2048 + 3 * 16);
  EXPECT_NEAR(lora.flops - attention,
              *lora.tokens * (4 * matrices + 6.0 * adapter_parameters - 2 * first),
              1e-9 * lora.flops);
}

TEST(FinetuneAccount, AttentionStaysWithinExamples) {
  // Of lengths n: 6 x layers x width x sum of n^2, whatever the batches.
  auto work = finetune_case("full-4x4", "tiny");
  const auto& train = training_data(work).train;
  double tokens = 0, squares = 0;
  for (std::int64_t i = 0; i < train.count(); ++i) {
    tokens += static_cast<double>(train.length(i));
    squares += static_cast<double>(train.length(i) * train.length(i));
  }
  const auto one = finetune_account(work);
  const auto steps = static_cast<double>(train.count()) / 16;
  EXPECT_NEAR(*one.tokens, tokens / steps, 1e-9 * *one.tokens);
  EXPECT_NEAR(one.flops_uncausal - one.flops, 6 * 2 * 64 * squares / steps, 1e-6 * one.flops);
  const auto two = finetune_account(finetune_case("full-4x4", "tiny", 2));
  EXPECT_NEAR(two.flops, 2 * one.flops, 1e-9 * two.flops);
  work.steps = 1;  // the mean is of the steps that run
  tokens = 0;
  for (std::int64_t i = 0; i < 16; ++i) tokens += static_cast<double>(train.length(i));
  EXPECT_EQ(*finetune_account(work).tokens, tokens);
}

TEST(FinetuneAccount, LeastBytesByHand) {
  // Weights once in forward and once in backward, and what trains in fp32: value and moments read
  // and written, its gradient written by the first micro-batch, read and written by the other, read
  // by the optimizer, its bf16 copy written. The rest is activations, each written and read.
  auto work = finetune_case("qlora-8x2");
  const auto rest = [&] {
    const auto memory = finetune_memory(work);
    const double base = static_cast<double>(memory.weights - 6 * adapter_parameters);
    const double moved =
        2 * 2 * (base + 2 * adapter_parameters) + adapter_parameters * (2.0 * 12 + 4 + 8 + 4 + 2);
    return *finetune_account(work).least_bytes - moved;
  };
  const double tokens = *finetune_account(work).tokens;
  // A token in a block: two sums, q, k, v, attention, gate, up, inner values of the adapters
  // (bf16), two roots and a log-sum-exp a head (fp32).
  const double block = 2 * (2 * 1536 + 2048 + 1536 + 2 * 8960 + 7 * 16) + 4 * (2 + 12);
  const double ends = (2 + 8 + 6) * 1536 + 2 * 151'936;
  EXPECT_NEAR(rest(), 2 * tokens * (28 * block + ends), 1e-6 * rest());
  work.block_kernel = work.loss_kernel = "reference";  // others move more: the least is the same
  EXPECT_NEAR(rest(), 2 * tokens * (28 * block + ends), 1e-6 * rest());
}

TEST(FinetuneAccount, APeakIsAbsentWhereSingleOperatorsRun) {
  const auto work = finetune_case("full-4x4", "tiny");
  const auto account = finetune_account(work);
  EXPECT_EQ(account.peak_bytes(), account.weight_bytes + account.optimizer_bytes +
                                      account.gradient_bytes + *account.activation_bytes);
  for (auto change : {&Case::loss_kernel, &Case::block_kernel}) {
    auto other = work;
    other.*change = "reference";
    EXPECT_FALSE(finetune_account(other).peak_bytes());
    EXPECT_EQ(finetune_account(other).weight_bytes, account.weight_bytes);
  }
}

TEST(FinetuneAccount, TheLargestMicroBatchCounts) {
  auto work = finetune_case("lora-4x4", "tiny");
  work.loss_kernel = work.block_kernel = "fused";
  const auto packed = finetune_account(work);
  work.finetune->packing = "off";
  const auto padded = finetune_account(work);
  EXPECT_EQ(padded.flops, packed.flops);  // padding is no work of the model
  EXPECT_GT(*padded.activation_bytes, *packed.activation_bytes);
  work.finetune->length_buckets = {512};
  EXPECT_GT(*finetune_account(work).activation_bytes, *padded.activation_bytes);
}

Case compile_case(const std::string& recipe) {
  for (auto& one : compile_suite().cases({}, true, 1)) {
    if (one.name() != "468m-" + recipe) continue;
    if (one.attention == "auto") one.attention = "cudnn";
    one.loss_kernel = "fused";
    if (one.block_kernel == "auto") one.block_kernel = "fused";
    return one;
  }
  throw std::runtime_error("no such case");
}

constexpr std::int64_t llama_matrices = 24 * (4 * 1024 * 1024 + 3 * 1024 * 4096);
constexpr std::int64_t llama_parameters = llama_matrices + 2 * 32'000 * 1024 + 49 * 1024;

TEST(CompileAccount, PeaksAreThoseMeasuredOnAnH200) {
  const auto account = compile_suite().account;
  const auto expect_peak = [&](const Case& work, double measured) {
    const auto peak = account(work).peak_bytes();
    ASSERT_TRUE(peak) << work.name();
    EXPECT_NEAR(static_cast<double>(*peak) / (1 << 30), measured, 0.02 * measured) << work.name();
  };
  for (const char* recipe : {"eager-sdpa", "compile-sdpa", "graph-sdpa"}) {
    expect_peak(compile_case(recipe), 8.56);
  }
  auto inductors = compile_case("compile-sdpa");  // Inductor's own kernels
  inductors.block_kernel = "reference";
  expect_peak(inductors, 10.81);
  EXPECT_FALSE(account(compile_case("eager-naive")).peak_bytes());
  auto reference = compile_case("eager-sdpa");
  reference.block_kernel = "reference";  // measured before there were fused blocks
  EXPECT_NEAR(static_cast<double>(*account(reference).peak_bytes()) / (1 << 30), 15.35, 1.5);
}

TEST(CompileAccount, ByHand) {
  const auto one = compile_suite().account(compile_case("eager-naive"));
  EXPECT_EQ(one.weight_bytes, 2 * llama_parameters);
  EXPECT_EQ(one.optimizer_bytes, 4 * llama_parameters);
  // 6 operations a matrix parameter, and attention's 12 x layers x width x sequence, halved.
  const double products = 6.0 * (llama_matrices + 32'000 * 1024),
               attention = 6.0 * 24 * 1024 * 2048;
  EXPECT_NEAR(one.flops, 8192 * (products + attention), 1e6);
  EXPECT_NEAR(one.flops_uncausal, 8192 * (products + 2 * attention), 1e6);
  // bf16 throughout: values and moments read and written, gradients written and read, weights but
  // for the input embedding read twice; activations written and read.
  const double kept = 24 * (2.0 * (2 * 1024 + 4 * 1024 + 2 * 4096) + 4 * (2 + 16)) +
                      (2 + 8 + 6) * 1024 + 2 * 32'000;
  EXPECT_NEAR(*one.least_bytes,
              llama_parameters * (2.0 * 6 + 2 * 2) + 2 * 2.0 * (llama_parameters - 32'000 * 1024) +
                  2 * 8192 * kept,
              1e6);
}

TEST(CompileAccount, ACompiledBlockKeepsWhatTheTracerSaves) {
  // tests/parity/test_kept_bytes.py counts the same number in the traced graph.
  const auto config = decoder_config("468m");
  EXPECT_EQ(decoder_block_bytes(config, {.kernels = BlockKernels::compiled}), 41'032);
}

}  // namespace
}  // namespace trainsuite
