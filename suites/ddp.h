#pragma once
// The ddp suite: data-parallel training of GPT-2, as a table of cases.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "run/case.h"

namespace trainsuite {

/// Every case of the suite, all sizes, in plan order, with the options applied.
/// `cuda`: precision auto means bf16 there and fp32 on a CPU. `ranks`: ranks of the run.
std::vector<Case> ddp_cases(const Options& options, bool cuda, int ranks);

/// The sizes that run where --size is not given: 124m and 355m on GPUs, tiny on a CPU (dry run).
std::vector<std::string> ddp_default_sizes(const Options& options, bool cuda);

/// What a step takes. Activations held, and so the peak, are absent with reference kernels, whose
/// temporaries are PyTorch's, and in fp32.
StepAccount ddp_account(const Case& work);

}  // namespace trainsuite
