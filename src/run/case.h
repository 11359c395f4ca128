#pragma once
// A case: one row of a suite's table, with all settings resolved.
#include <cstdint>
#include <string>
#include <vector>

namespace trainsuite {

struct Case {
  std::string suite;   // "ddp"
  std::string size;    // "124m"
  std::string recipe;  // "accumulate4"
  std::string name() const { return size + "-" + recipe; }

  bool one_rank = false;     // runs on rank 0 alone while the others wait
  bool communicates = true;  // gradients go through the communicator (also on one rank)
  std::string wire = "fp32";  // fp32|bf16: dtype of gradients on the wire
  std::int64_t micro_batch = 8, accumulate = 1, sequence = 1024, vocabulary = 50304;
  std::int64_t steps = 40, warmup = 10;  // measured steps follow the warm-up
  double learning_rate = 1e-4;
  std::string precision = "bf16";  // bf16|fp32
  std::string attention = "auto", loss_kernel = "auto";
  std::int64_t seed = 1;
};

}  // namespace trainsuite
