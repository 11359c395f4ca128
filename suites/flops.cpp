#include "flops.h"

#include "result/statistics.h"
#include "session.h"

namespace trainsuite {

void add_flops(Session& session, const Case& work, CaseRecord& row) {
  if (!work.account) return;
  const auto tokens = work.account->tokens.value_or(static_cast<double>(work.tokens_per_step()));
  if (!(tokens > 0)) return;
  const double flops = work.account->flops / tokens;
  row.results.push_back({"flops_per_token", flops});
  row.results.push_back({"flops_per_token_uncausal", work.account->flops_uncausal / tokens});
  const auto peak = session.peak_flops(work.precision);
  if (!peak) return;
  row.results.push_back({"peak_flops", peak->flops});
  row.results.push_back({"peak_flops_source", peak->source});
  const auto rate = tokens_per_second(row);
  if (!rate) return;
  const auto gpus = static_cast<double>(row.ranks.size());  // ranks may share one: then it is less
  row.checks.push_back({"below_peak", *rate * flops <= peak->flops * gpus});
}

}  // namespace trainsuite
