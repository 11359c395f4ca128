#include "cli/flag_table.h"

namespace trainsuite {
namespace {

constexpr double million = 1e6;

std::vector<Flag> selection_flags() {
  const std::string group = "What";
  return {
      {"case",
       group,
       "GLOB",
       "run cases whose name, or part after the size, matches; repeatable",
       "",
       &Options::case_globs,
       {},
       {}},
      {"size",
       group,
       "NAME",
       "model size [124m and 355m on GPUs, tiny on a CPU]; repeatable",
       "",
       &Options::sizes,
       {},
       {}},
      {"execution",
       group,
       "NAME",
       "rows of one kind: eager, compile (AOTInductor) or graph (that in a CUDA graph)",
       "",
       &Options::execution,
       {"eager", "compile", "graph"},
       {}},
      {"list", group, "", "print the names of the cases and end", "", &Options::list, {}, {}},
      {"plan", group, "", "print what would run, and end", "", &Options::plan, {}, {}},
      {"version", group, "", "print the version and end", "", &Options::version, {}, {}},
      {"help", group, "", "print this text and end (also -h)", "", &Options::help, {}, {}},
  };
}

std::vector<Flag> place_flags() {
  const std::string group = "Where";
  return {
      {"device",
       group,
       "NAME",
       "auto, cuda or cpu [auto: a GPU where one is visible]",
       "device",
       &Options::device,
       {"auto", "cuda", "cpu"},
       {}},
      {"comm",
       group,
       "NAME",
       "auto, nccl or mpi [auto: nccl on GPUs, mpi on a CPU]",
       "comm",
       &Options::comm,
       {"auto", "nccl", "mpi"},
       {}},
      {"link",
       group,
       "NAME",
       "NCCL's paths: auto, shm (no peer to peer) or socket [auto]",
       "link",
       &Options::link,
       {"auto", "shm", "socket"},
       {}},
      {"oversubscribe",
       group,
       "",
       "allow more ranks than GPUs (with --comm mpi)",
       "oversubscribe",
       &Options::oversubscribe,
       {},
       {}},
      {"interface",
       group,
       "NAME",
       "network interface of NCCL and MPI between hosts [their own choice]",
       "interface",
       &Options::interface,
       {},
       {}},
      {"memory-limit",
       group,
       "GIB",
       "cap the GPU's allocator at so many GiB [no cap]",
       "memory_limit_gib",
       &Options::memory_limit_gib,
       {},
       {0, million, true}},
  };
}

std::vector<Flag> amount_flags() {
  const std::string group = "How much";
  return {
      {"steps", group, "N", "measured steps [40]", "steps", &Options::steps, {}, {1, million}},
      {"warmup",
       group,
       "N",
       "steps before them [10]; with 0 the first step is still kept apart",
       "warmup",
       &Options::warmup,
       {},
       {0, million}},
      {"repeats",
       group,
       "N",
       "times to run each case [1]",
       "repeats",
       &Options::repeats,
       {},
       {1, 10000}},
      {"micro-batch",
       group,
       "N",
       "examples of a forward pass on a rank [8; tiny 2]",
       "micro_batch",
       &Options::micro_batch,
       {},
       {1, 65536}},
      {"accumulate",
       group,
       "N",
       "micro-batches a step, of the cases that accumulate [4]",
       "accumulate",
       &Options::accumulate,
       {},
       {1, 65536}},
      {"sequence",
       group,
       "N",
       "tokens of an example [1024; tiny 64]",
       "sequence",
       &Options::sequence,
       {},
       {1, 1048576}},
      {"vocabulary",
       group,
       "N",
       "size of the vocabulary [50304; tiny 512]",
       "vocabulary",
       &Options::vocabulary,
       {},
       {1, 16777216}},
      {"seed",
       group,
       "N",
       "seed of weights and tokens [1]",
       "seed",
       &Options::seed,
       {},
       {0, 9007199254740991.0}},  // below 2^53: exact in every reader
  };
}

std::vector<Flag> recipe_flags() {
  const std::string group = "Recipe";
  return {
      {"precision",
       group,
       "NAME",
       "auto, bf16 or fp32 [auto: bf16 on GPUs, fp32 on a CPU]",
       "precision",
       &Options::precision,
       {"auto", "bf16", "fp32"},
       {}},
      {"attention",
       group,
       "NAME",
       "kernel: auto, cudnn, flash, efficient or math [auto: fastest]",
       "attention",
       &Options::attention,
       {"auto", "cudnn", "flash", "efficient", "math"},
       {}},
      {"loss-kernel",
       group,
       "NAME",
       "head and loss: auto, fused or reference [auto: fused on GPUs]",
       "loss_kernel",
       &Options::loss_kernel,
       {"auto", "fused", "reference"},
       {}},
      {"block-kernel",
       group,
       "NAME",
       "LayerNorm, bias and GELU of eager rows: auto, fused or reference [auto: fused on GPUs]",
       "block_kernel",
       &Options::block_kernel,
       {"auto", "fused", "reference"},
       {}},
      {"learning-rate",
       group,
       "X",
       "of AdamW [1e-4]",
       "learning_rate",
       &Options::learning_rate,
       {},
       {0, 1000, true}},
      {"instrumentation",
       group,
       "NAME",
       "on or off; off times only the whole loop [on]",
       "instrumentation",
       &Options::instrumentation,
       {"on", "off"},
       {}},
      {"deterministic",
       group,
       "",
       "only algorithms that give the same bits each time",
       "deterministic",
       &Options::deterministic,
       {},
       {}},
  };
}

std::vector<Flag> compile_flags() {
  const std::string group = "Compiling";
  return {
      {"compile-cache",
       group,
       "DIR",
       "folder of compiled packages [~/.cache/trainsuite]",
       "",
       &Options::compile_cache,
       {},
       {}},
      {"cold",
       group,
       "",
       "each compiled case starts from an empty cache of its own",
       "cold",
       &Options::cold,
       {},
       {}},
  };
}

std::vector<Flag> result_flags() {
  const std::string group = "Result";
  return {
      {"out",
       group,
       "FILE",
       "result file, never overwritten [results/SUITE-TIME.h5]",
       "",
       &Options::out,
       {},
       {}},
      {"time-limit",
       group,
       "SECONDS",
       "a case that takes longer is given up [1800]",
       "time_limit_seconds",
       &Options::time_limit_seconds,
       {},
       {0, 1e7, true}},
      {"json", group, "", "print the summary as one line of JSON", "", &Options::json, {}, {}},
  };
}

}  // namespace

const std::vector<Flag>& flag_table() {
  static const std::vector<Flag> table = [] {
    std::vector<Flag> all;
    for (auto part :
         {selection_flags, place_flags, amount_flags, recipe_flags, compile_flags, result_flags}) {
      for (Flag& flag : part()) all.push_back(std::move(flag));
    }
    return all;
  }();
  return table;
}

}  // namespace trainsuite
