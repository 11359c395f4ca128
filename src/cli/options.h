#pragma once
// One flag table feeds the parser, --help and the attributes recorded with every row.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/setting.h"

namespace trainsuite {

/// What the command line asked for. An empty optional: the suite's own default applies.
struct Options {
  std::string suite;
  // what
  std::vector<std::string> case_globs;
  std::vector<std::string> sizes;
  std::string execution = "auto";  // auto (the suite's own rows), eager, compile, graph
  bool list = false;
  bool plan = false;
  bool version = false;
  bool help = false;
  // where
  std::string device = "auto";  // auto|cuda|cpu
  std::string comm = "auto";    // auto|nccl|mpi
  std::string link = "auto";    // auto|shm|socket
  bool oversubscribe = false;
  std::string interface;                   // of NCCL and MPI between hosts; empty: theirs
  std::optional<double> memory_limit_gib;  // cap on the device allocator, GiB
  // how much
  std::optional<std::int64_t> steps, warmup, micro_batch, accumulate, sequence, vocabulary;
  std::int64_t repeats = 1;
  std::string order = "auto";  // auto|shuffled|plan
  std::optional<double> until_percent;
  bool pairs = false;       // ceilings: also between each pair of nodes
  bool self_check = false;  // each case also without instrumentation
  std::int64_t seed = 1;
  // recipe
  std::string precision = "auto";     // auto|bf16|fp32
  std::string attention = "auto";     // auto|cudnn|flash|efficient|math
  std::string loss_kernel = "auto";   // auto|fused|reference
  std::string block_kernel = "auto";  // auto|fused|reference
  std::optional<double> learning_rate;
  // fine-tuning
  std::int64_t lora_rank = 16;
  double lora_alpha = 32, lora_dropout = 0;
  bool qlora_upcast = false, qlora_wide_outputs = false, nf4_double_quant = false;
  std::string loss_on = "all";   // all|answer
  std::string packing = "auto";  // auto|on|off
  std::string length_buckets;    // "128,256,512"
  std::optional<std::int64_t> pack_to;
  std::string data;         // token file
  std::string model, save;  // folders
  bool save_merged = false;
  std::string recipe = "default";      // default|published
  std::string checkpointing = "auto";  // auto|on|off
  std::int64_t loss_chunk_mib = 128;
  std::string optimizer = "auto";  // auto|fused|foreach
  std::optional<std::int64_t> train_examples, held_out;
  std::string instrumentation = "on";  // on|off: off times only the whole loop
  std::string telemetry = "on";        // on|off: samples of GPU and host
  bool deterministic = false;
  // compiling
  std::string compile_cache;  // folder; empty: default_compile_cache()
  bool cold = false;
  // result
  std::string out;
  bool resume = false;
  bool retry = false;
  double time_limit_seconds = 1800;  // a case
  std::optional<double> total_time_limit_seconds;
  bool json = false;
  std::string ceilings;  // result file whose measured peak MFU is of
};

/// Parses a command line (argv[0] is skipped). `suites` are the known suite names.
/// Throws UsageError with one line (without "trainsuite: " before it) that names the fault and the
/// nearest valid name. With --help or --version the suite may be missing.
Options parse_options(int argc, const char* const* argv, const std::vector<std::string>& suites);

/// The text of --help, generated from the flag table.
std::string help_text(const std::vector<std::string>& suites);

/// What can only be judged once the device is known: `cuda` as chosen, `comm` "nccl" or "mpi".
/// Throws UsageError for flags that contradict them (--link on a CPU, NCCL without a GPU, ...).
void check_consistency(const Options& options, bool cuda, const std::string& comm);

/// Every flag's value under its recorded name, from the same table; unset ones are left out.
Settings recorded_settings(const Options& options);

}  // namespace trainsuite
