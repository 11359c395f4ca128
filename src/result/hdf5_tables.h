#pragma once
// The tables of a run: ranks, hosts, GPUs, links, network adapters (docs/schema.md).
#include <H5Cpp.h>

#include "result/record.h"

namespace trainsuite {

/// One compound dataset each, a row an entry; absent where there is none.
void put_run_tables(H5::Group& group, const RunRecord& run);

}  // namespace trainsuite
