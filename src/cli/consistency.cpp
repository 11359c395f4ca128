#include "cli/options.h"

namespace trainsuite {
namespace {

void check_suite(const Options& options) {
  const bool ceilings = options.suite == "ceilings";
  if (options.pairs && !ceilings) {
    fail<UsageError>("--pairs sweeps pairs of nodes in the suite ceilings; leave it out of {}",
                     options.suite);
  }
  if (ceilings && options.self_check) {
    fail<UsageError>("--self-check says what measuring costs a training; leave it out of ceilings");
  }
  if (ceilings && !options.ceilings.empty()) {
    fail<UsageError>("--ceilings gives MFU of training rows; leave it out of the suite ceilings");
  }
}

void check_cpu(const Options& options, const std::string& comm) {
  if (comm == "nccl") {
    fail<UsageError>("--comm nccl needs a GPU and this run is on a CPU; use --comm mpi");
  }
  if (options.link != "auto") {
    fail<UsageError>(
        "--link {} chooses among NCCL's paths and this run is on a CPU, without NCCL;"
        " leave --link out",
        options.link);
  }
  if (options.memory_limit_gib) {
    fail<UsageError>(
        "--memory-limit caps a GPU's allocator and this run is on a CPU;"
        " leave --memory-limit out");
  }
  if (options.attention == "cudnn" || options.attention == "efficient") {
    fail<UsageError>(
        "--attention {} is a GPU kernel and this run is on a CPU;"
        " use auto, flash or math",
        options.attention);
  }
}

}  // namespace

void check_consistency(const Options& options, bool cuda, const std::string& comm) {
  check_suite(options);
  if (!cuda) return check_cpu(options, comm);
  if (options.link != "auto" && comm == "mpi") {
    fail<UsageError>(
        "--link {} chooses among NCCL's paths and this run communicates over MPI;"
        " leave --link out, or use --comm nccl",
        options.link);
  }
  if (options.oversubscribe && comm == "nccl") {
    fail<UsageError>(
        "--oversubscribe puts several ranks on one GPU, which NCCL cannot do;"
        " add --comm mpi, or leave --oversubscribe out");
  }
}

}  // namespace trainsuite
