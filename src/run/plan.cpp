#include "run/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/text.h"

namespace trainsuite {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Each value once, in order of first appearance.
template <class Get>
std::vector<std::string> distinct(const std::vector<Case>& cases, Get get) {
  std::vector<std::string> values;
  for (const Case& one : cases) {
    if (!contains(values, get(one))) values.push_back(get(one));
  }
  return values;
}

std::vector<std::string> all_sizes(const std::vector<Case>& all) {
  return distinct(all, [](const Case& one) { return one.size; });
}

std::vector<std::string> checked_sizes(const std::vector<Case>& all,
                                       const std::vector<std::string>& asked) {
  const auto known = all_sizes(all);
  for (const std::string& size : asked) {
    if (contains(known, size)) continue;
    fail<UsageError>("unknown size {}{} Sizes: {}", quoted(size), suggestion(size, known),
                     join(known, ", "));
  }
  return asked;
}

[[noreturn]] void fail_no_match(const std::vector<Case>& all, const std::vector<std::string>& sizes,
                                const std::string& glob) {
  std::vector<Case> left_out;
  for (const Case& one : all) {
    if (glob_matches(glob, one.name())) left_out.push_back(one);
  }
  if (!left_out.empty()) {
    const auto others = join(all_sizes(left_out), ", ");
    fail<UsageError>(
        "no case matches {} within --size {}: it names size {}; add --size {}, or leave --size out",
        quoted(glob), join(sizes, ", "), others, join(all_sizes(left_out), " --size "));
  }
  const auto recipes = distinct(all, [](const Case& one) { return one.recipe; });
  auto names = recipes;
  for (const Case& one : all) names.push_back(one.name());
  fail<UsageError>("no case matches {}{} Sizes: {}; cases of each: {}", quoted(glob),
                   suggestion(glob, names), join(sizes, ", "), join(recipes, ", "));
}

/// Where --execution names the kind of row, "plain" means "plain-compile" as well.
bool glob_names(const std::string& glob, const std::string& name, const std::string& execution) {
  const std::string suffix = "-" + execution;
  return glob_matches(glob, name) ||
         (execution != "auto" && name.ends_with(suffix) &&
          glob_matches(glob, name.substr(0, name.size() - suffix.size())));
}

/// Indices of the cases that `glob` selects: among `sizes` the rows that run unasked, else those on
/// request; else (where `other_sizes`) the same by whole names among the other sizes.
std::vector<std::size_t> matching(const std::vector<Case>& all, const std::string& glob,
                                  const std::vector<std::string>& sizes, bool other_sizes,
                                  const std::string& execution) {
  std::vector<std::size_t> found[4];
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t place = all[i].on_request && execution == "auto" ? 1 : 0;
    const bool whole = glob_names(glob, all[i].name(), execution);
    if (contains(sizes, all[i].size)) {
      if (whole || glob_names(glob, all[i].recipe, execution)) found[place].push_back(i);
    } else if (other_sizes && whole) {
      found[2 + place].push_back(i);
    }
  }
  for (auto& indices : found) {
    if (!indices.empty()) return indices;
  }
  fail_no_match(all, sizes, glob);
}

std::string steps_text(const Case& one) { return fmt::format("{}+{}", one.warmup, one.steps); }

double gib(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

std::string memory_text(const Case& one, const PlanFacts& facts) {
  if (!one.predicted_bytes) return "-";
  const bool fits = !facts.free_bytes || *one.predicted_bytes <= *facts.free_bytes;
  return fmt::format("{:.2f}{}", gib(*one.predicted_bytes), fits ? "" : " (does not fit)");
}

std::string minutes_text(const Case& one) {
  if (!one.expected_seconds) return "-";
  return fmt::format("{:.1f}", *one.expected_seconds / 60);
}

/// Why a plan of training leaves memory or minutes out, apart from the table: a line of a case
/// each, which programs read.
std::string what_is_not_foretold(const std::vector<Case>& cases, bool cuda) {
  std::string text;
  const auto lacks = [&](auto figure) {
    return std::any_of(cases.begin(), cases.end(), [&](const Case& one) {
      return one.trains && one.skip.empty() && !(one.*figure);
    });
  };
  if (lacks(&Case::predicted_bytes)) {
    text += cuda ? "No peak is foretold where it is not known what the kernels keep.\n"
                 : "Peak memory is foretold of GPUs alone.\n";
  }
  if (lacks(&Case::expected_seconds)) {
    text += "No minutes without the device's peak in this precision: --ceilings FILE gives it.\n";
  }
  return text.empty() ? text : "\n" + text;
}

std::string memory_line(const PlanFacts& facts) {
  if (!facts.free_bytes) return {};
  return fmt::format("Memory: {:.2f} GiB free on the fullest GPU\n", gib(*facts.free_bytes));
}

std::string heading(const std::vector<Case>& cases, const PlanFacts& facts) {
  std::string text = fmt::format(
      "Plan: suite {}, {} case{}, {} rank{} on {} host{}, {} ({})\n",
      cases.empty() ? "-" : cases.front().suite, cases.size(), cases.size() == 1 ? "" : "s",
      facts.ranks, facts.ranks == 1 ? "" : "s", facts.hosts, facts.hosts == 1 ? "" : "s",
      facts.cuda ? "GPU" : "CPU", facts.device_name);
  if (!facts.cuda) {
    text += fmt::format("Dry run on a CPU{}: shows that the work runs, says nothing about a GPU.\n",
                        facts.default_sizes ? ", size tiny unless --size names another" : "");
  }
  if (facts.until_percent) {
    text += fmt::format(
        "Each case runs until its interval is within {}% of its median, {} times at "
        "most\n",
        *facts.until_percent, facts.repeats);
  } else if (facts.repeats > 1) {
    text += fmt::format("Each case runs {} times\n", facts.repeats);
  }
  if (facts.link != "auto") text += fmt::format("NCCL's paths: --link {}\n", facts.link);
  text += memory_line(facts);
  if (!facts.output_path.empty()) text += fmt::format("Output: {}\n", facts.output_path);
  return text;
}

std::vector<Case> of_execution(const std::vector<Case>& all, const std::string& execution) {
  std::vector<Case> rows;
  for (const Case& one : all) {
    if (execution == "auto" || one.execution == execution) rows.push_back(one);
  }
  if (rows.empty()) fail<UsageError>("--execution {}: the suite has no such rows", execution);
  return rows;
}

}  // namespace

std::vector<Case> select_cases(const std::vector<Case>& every, const Options& options,
                               const std::vector<std::string>& default_sizes) {
  const auto all = of_execution(every, options.execution);
  const bool asked = !options.sizes.empty();
  const auto sizes = asked ? checked_sizes(all, options.sizes) : default_sizes;
  const auto globs =
      options.case_globs.empty() ? std::vector<std::string>{"*"} : options.case_globs;
  std::set<std::size_t> chosen;
  for (const std::string& glob : globs) {
    for (std::size_t index : matching(all, glob, sizes, !asked, options.execution))
      chosen.insert(index);
  }
  std::vector<Case> selected;
  for (std::size_t index : chosen) selected.push_back(all[index]);
  return selected;
}

void print_list(std::ostream& out, const std::vector<Case>& all, const Options& options) {
  auto rows = all;  // also those that only run on request
  if (options.case_globs.empty()) {
    for (Case& one : rows) one.on_request = false;
  }
  for (const Case& one : select_cases(rows, options, all_sizes(all))) out << one.name() << "\n";
}

void print_plan(std::ostream& out, const std::vector<Case>& cases, const PlanFacts& facts) {
  const auto any = [&](auto has) { return std::any_of(cases.begin(), cases.end(), has); };
  const bool predicted = any([](const Case& one) { return one.predicted_bytes.has_value(); });
  const bool trains = any([](const Case& one) { return one.trains; });
  std::vector<std::vector<std::string>> rows = {{"case", "what it is", "communicator", "ranks"}};
  if (trains) {
    rows[0].insert(rows[0].end(), {"micro-batch x accumulation", "tokens/step"});
  }
  rows[0].push_back("warm-up+steps");
  const bool timed = any([](const Case& one) { return one.expected_seconds.has_value(); });
  if (predicted) rows[0].push_back("predicted GiB");
  if (timed) rows[0].push_back("expected minutes");
  for (const Case& one : cases) {
    rows.push_back({one.name(), one.skip.empty() ? one.what : "skipped: " + one.skip,
                    one.communicates ? facts.communicator : "none", fmt::format("{}", one.ranks)});
    if (trains) {
      rows.back().push_back(fmt::format("{} x {}", one.micro_batch, one.accumulate));
      rows.back().push_back(one.finetune ? "varies" : grouped(one.tokens_per_step()));
    }
    rows.back().push_back(steps_text(one));
    if (predicted) rows.back().push_back(memory_text(one, facts));
    if (timed) rows.back().push_back(minutes_text(one));
  }
  out << heading(cases, facts) << "\n"
      << aligned_table(rows, 3) << what_is_not_foretold(cases, facts.cuda) << "\n"
      << std::flush;
}

namespace {

Settings finetune_settings(const FinetuneRecipe& recipe) {
  std::vector<std::string> buckets;
  for (const auto bucket : recipe.length_buckets) buckets.push_back(fmt::format("{}", bucket));
  Settings settings = {{"method", recipe.method},
                       {"loss_on", recipe.loss_on},
                       {"packing", recipe.packing},
                       {"checkpointing", recipe.checkpointing},
                       {"loss_chunk_mib", recipe.loss_chunk_mib},
                       {"schedule", std::string("cosine")},
                       {"optimizer", recipe.optimizer},
                       {"length_buckets", join(buckets, ",")},
                       {"pack_to", recipe.pack_to},
                       {"data", recipe.data.empty() ? std::string("synthetic") : recipe.data},
                       {"model", recipe.model.empty() ? std::string("random") : recipe.model},
                       {"train_examples", recipe.train_examples},
                       {"held_out", recipe.held_out}};
  if (recipe.method == "full") return settings;
  settings.push_back({"lora_rank", recipe.lora_rank});
  settings.push_back({"lora_alpha", recipe.lora_alpha});
  settings.push_back({"lora_dropout", recipe.lora_dropout});
  if (recipe.method == "qlora") {
    settings.push_back({"qlora_upcast", recipe.qlora_upcast});
    settings.push_back({"qlora_wide_outputs", recipe.qlora_wide_outputs});
    settings.push_back({"nf4_double_quant", recipe.nf4_double_quant});
  }
  return settings;
}

}  // namespace

Settings case_settings(const Case& one) {
  Settings settings = {{"size", one.size},
                       {"recipe", one.recipe},
                       {"ranks", static_cast<std::int64_t>(one.ranks)},
                       {"one_rank", one.one_rank},
                       {"communicates", one.communicates},
                       {"steps", one.steps},
                       {"warmup", one.warmup},
                       {"seed", one.seed},
                       {"precision", one.precision}};
  const Settings training = {{"wire", one.communicates ? one.wire : std::string("none")},
                             {"micro_batch", one.micro_batch},
                             {"accumulate", one.accumulate},
                             {"sequence", one.sequence},
                             {"vocabulary", one.vocabulary},
                             {"learning_rate", one.learning_rate},
                             {"attention", one.attention},
                             {"loss_kernel", one.loss_kernel},
                             {"block_kernel", one.block_kernel},
                             {"execution", one.execution},
                             {"global_batch", one.micro_batch * one.accumulate * one.ranks}};
  if (one.trains) settings.insert(settings.end(), training.begin(), training.end());
  if (one.trains && !one.finetune) {
    settings.push_back({"tokens_per_step", one.tokens_per_step()});
  }
  if (one.finetune) {
    settings = merged_settings(std::move(settings), finetune_settings(*one.finetune));
  }
  if (one.account) settings = merged_settings(std::move(settings), account_settings(*one.account));
  if (!one.instrumented) {
    settings.push_back({"instrumentation", std::string("off")});
    settings.push_back({"telemetry", std::string("off")});
  }
  return settings;
}

Settings merged_settings(Settings base, const Settings& overrides) {
  for (const Setting& setting : overrides) {
    const auto at = std::find_if(base.begin(), base.end(),
                                 [&](const Setting& s) { return s.name == setting.name; });
    if (at == base.end()) {
      base.push_back(setting);
    } else {
      at->value = setting.value;
    }
  }
  return base;
}

}  // namespace trainsuite
