#include "run/account.h"

namespace trainsuite {

Settings account_settings(const StepAccount& account) {
  Settings settings = {{"flops_per_step", account.flops},
                       {"flops_per_step_uncausal", account.flops_uncausal},
                       {"predicted_weight_bytes", account.weight_bytes},
                       {"predicted_gradient_bytes", account.gradient_bytes},
                       {"predicted_optimizer_bytes", account.optimizer_bytes}};
  if (account.activation_bytes) {
    settings.push_back({"predicted_activation_bytes", *account.activation_bytes});
  }
  if (const auto peak = account.peak_bytes()) settings.push_back({"predicted_bytes", *peak});
  if (account.least_bytes) settings.push_back({"least_bytes_per_step", *account.least_bytes});
  return settings;
}

double least_step_bytes(const StepTraffic& traffic) {
  const auto micro_batches = static_cast<double>(traffic.micro_batches);
  const double adding = 2 * micro_batches - 1;  // written, then read and written
  return 2 * (micro_batches * traffic.weight_bytes + traffic.activation_bytes) +
         traffic.trained *
             ((adding + 1) * traffic.gradient_width + 2 * traffic.state_width + traffic.copy_width);
}

double expected_seconds(const StepAccount& account, std::int64_t steps, int ranks,
                        double peak_flops) {
  return static_cast<double>(steps) * account.flops / (ranks * peak_flops * expected_share_of_peak);
}

}  // namespace trainsuite
