#include "ddp.h"
#include "model/gpt2.h"
#include "suite.h"
#include "training_workload.h"

namespace trainsuite {
namespace {

/// Matrix parameters: layers x 12 width^2 + V width.
ModelSize model_size(const Case& work) {
  const auto model = gpt2_config(work.size, work.vocabulary, work.sequence);
  const auto width = static_cast<double>(model.width);
  const auto layers = static_cast<double>(model.layers);
  return {layers * 12 * width * width + static_cast<double>(model.vocabulary) * width, layers,
          width};
}

}  // namespace

Suite ddp_suite() {
  return {"ddp", ddp_cases, ddp_default_sizes, predicted_peak_bytes,
          [](Session& session, const Options& options) {
            return training_workload(session, options, model_size);
          }};
}

}  // namespace trainsuite
