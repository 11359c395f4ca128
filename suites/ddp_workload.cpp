#include "ddp.h"
#include "suite.h"
#include "training_workload.h"

namespace trainsuite {

Suite ddp_suite() { return {"ddp", ddp_cases, ddp_default_sizes, training_workload, ddp_account}; }

}  // namespace trainsuite
