#include "ddp.h"
#include "suite.h"
#include "training_workload.h"

namespace trainsuite {

Suite ddp_suite() {
  Suite suite{"ddp", ddp_cases, ddp_default_sizes,
              [](const Case& work) { return ddp_account(work).peak_bytes(); }, training_workload};
  suite.account = ddp_account;
  return suite;
}

}  // namespace trainsuite
