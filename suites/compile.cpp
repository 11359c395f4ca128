// The compile suite: one decoder trained on one rank, eager, compiled, and in a CUDA graph.
#include <fmt/format.h>

#include <algorithm>

#include "decoder_account.h"
#include "model/decoder.h"
#include "suite.h"
#include "training_workload.h"

namespace trainsuite {
namespace {

struct Size {
  const char* name;
  std::int64_t micro_batch, sequence, vocabulary;
  double parameters;  // weighs the sizes against each other for the ETA
};
constexpr Size sizes[] = {{"468m", 4, 2048, 32000, 468e6}, {"tiny", 2, 64, 512, 0.1e6}};

struct Execution {
  const char *name, *what;
};
constexpr Execution executions[] = {{"eager", "eager"},
                                    {"compile", "compiled block by block"},
                                    {"graph", "compiled, the whole step in a CUDA graph"}};

Case make_case(const Size& size, const Execution& execution, const std::string& attention,
               const Options& options, bool cuda) {
  Case one;
  one.suite = "compile";
  one.size = size.name;
  one.execution = execution.name;
  one.recipe = fmt::format("{}-{}", execution.name, attention);
  one.what = fmt::format("{}, {} attention", execution.what, attention);
  one.one_rank = true;
  one.ranks = 1;
  one.communicates = false;
  one.micro_batch = options.micro_batch.value_or(size.micro_batch);
  one.accumulate = options.accumulate.value_or(1);
  one.sequence = options.sequence.value_or(size.sequence);
  one.vocabulary = options.vocabulary.value_or(size.vocabulary);
  one.steps = options.steps.value_or(20);
  one.warmup = options.warmup.value_or(5);
  one.learning_rate = options.learning_rate.value_or(1e-4);
  one.precision = options.precision == "auto" ? (cuda ? "bf16" : "fp32") : options.precision;
  one.attention = attention == "naive" ? attention : options.attention;
  one.loss_kernel = options.loss_kernel;
  one.block_kernel = options.block_kernel;
  one.seed = options.seed;
  const auto tokens = static_cast<double>(one.micro_batch * one.accumulate * one.sequence);
  one.work = size.parameters * tokens * static_cast<double>(one.steps + one.warmup);
  return one;
}

std::vector<Case> cases(const Options& options, bool cuda, int) {
  std::vector<Case> all;
  for (const Size& size : sizes) {
    for (const char* attention : {"sdpa", "naive"}) {
      for (const Execution& execution : executions) {
        all.push_back(make_case(size, execution, attention, options, cuda));
      }
    }
  }
  return all;
}

std::vector<std::string> default_sizes(const Options&, bool cuda) {
  return {cuda ? "468m" : "tiny"};
}

BlockKernels block_kernels(const Case& work) {
  if (work.block_kernel == "fused") return BlockKernels::fused;
  return work.execution == "eager" ? BlockKernels::reference : BlockKernels::compiled;
}

/// The fused head's logits, or what the last block's backward takes, on top of what is kept.
std::int64_t activation_bytes(const Case& work, const DecoderConfig& model, std::int64_t e) {
  const DecoderKeeping keeping{
      .element_bytes = e, .residual_bytes = e, .kernels = block_kernels(work)};
  return work.micro_batch * work.sequence *
         (decoder_kept_bytes(model, keeping) +
          std::max(e * model.vocabulary, decoder_passing_bytes(model, keeping)));
}

StepTraffic traffic(const Case& work, const DecoderConfig& model, std::int64_t e) {
  const DecoderKeeping keeping{.element_bytes = e, .residual_bytes = e};
  const auto tokens = work.micro_batch * work.accumulate * work.sequence;
  const auto kept = decoder_kept_bytes(model, keeping) + e * model.vocabulary;
  return {.micro_batches = work.accumulate,
          .weight_bytes = static_cast<double>(e * decoder_read_parameters(model)),
          .activation_bytes = static_cast<double>(tokens * kept),
          .trained = static_cast<double>(decoder_parameter_count(model)),
          .gradient_width = static_cast<double>(e),
          .state_width = static_cast<double>(3 * e)};
}

/// Weights, gradients and optimizer state are all of the one precision.
StepAccount account(const Case& work) {
  const auto model = decoder_config(work.size, work.vocabulary);
  const auto flops = [&](bool halved) {
    const auto products = static_cast<double>(decoder_matmul_parameters(model));
    return decoder_flops_per_token(model, {.trained = products}, static_cast<double>(work.sequence),
                                   halved) *
           static_cast<double>(work.tokens_per_step());
  };
  const std::int64_t e = work.precision == "bf16" ? 2 : 4;
  StepAccount account;
  account.flops = flops(true);
  account.flops_uncausal = flops(false);
  account.weight_bytes = account.all_gradient_bytes = e * decoder_parameter_count(model);
  account.optimizer_bytes = 2 * account.weight_bytes;
  account.gradient_bytes =  // the head's comes first, unless sums of earlier micro-batches live
      work.accumulate > 1 ? account.all_gradient_bytes : e * model.vocabulary * model.width;
  account.least_bytes = least_step_bytes(traffic(work, model, e));
  if (work.precision == "bf16" && work.loss_kernel == "fused" && work.attention_is_one_kernel()) {
    account.activation_bytes = activation_bytes(work, model, e);
  }
  return account;
}

}  // namespace

Suite compile_suite() { return {"compile", cases, default_sizes, training_workload, account}; }

}  // namespace trainsuite
