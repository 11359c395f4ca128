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

/// Indices of the cases that `glob` selects among `sizes`, or else (where `other_sizes`) by their
/// whole names among the others.
std::vector<std::size_t> matching(const std::vector<Case>& all, const std::string& glob,
                                  const std::vector<std::string>& sizes, bool other_sizes) {
  std::vector<std::size_t> inside, elsewhere;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool whole = glob_matches(glob, all[i].name());
    if (contains(sizes, all[i].size)) {
      if (whole || glob_matches(glob, all[i].recipe)) inside.push_back(i);
    } else if (other_sizes && whole) {
      elsewhere.push_back(i);
    }
  }
  if (inside.empty() && elsewhere.empty()) fail_no_match(all, sizes, glob);
  return inside.empty() ? elsewhere : inside;
}

std::string steps_text(const Case& one) { return fmt::format("{}+{}", one.warmup, one.steps); }

std::string memory_text(const Case& one) {
  if (!one.predicted_bytes) return "-";
  return fmt::format("{:.2f}", static_cast<double>(*one.predicted_bytes) / (1 << 30));
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
  if (facts.repeats > 1) text += fmt::format("Each case runs {} times\n", facts.repeats);
  if (facts.link != "auto") text += fmt::format("NCCL's paths: --link {}\n", facts.link);
  if (!facts.output_path.empty()) text += fmt::format("Output: {}\n", facts.output_path);
  return text;
}

}  // namespace

std::vector<Case> select_cases(const std::vector<Case>& all, const Options& options,
                               const std::vector<std::string>& default_sizes) {
  const bool asked = !options.sizes.empty();
  const auto sizes = asked ? checked_sizes(all, options.sizes) : default_sizes;
  const auto globs =
      options.case_globs.empty() ? std::vector<std::string>{"*"} : options.case_globs;
  std::set<std::size_t> chosen;
  for (const std::string& glob : globs) {
    for (std::size_t index : matching(all, glob, sizes, !asked)) chosen.insert(index);
  }
  std::vector<Case> selected;
  for (std::size_t index : chosen) selected.push_back(all[index]);
  return selected;
}

void print_list(std::ostream& out, const std::vector<Case>& all, const Options& options) {
  for (const Case& one : select_cases(all, options, all_sizes(all))) out << one.name() << "\n";
}

void print_plan(std::ostream& out, const std::vector<Case>& cases, const PlanFacts& facts) {
  const bool predicted = std::any_of(
      cases.begin(), cases.end(), [](const Case& one) { return one.predicted_bytes.has_value(); });
  std::vector<std::vector<std::string>> rows = {{"case", "what it is", "communicator", "ranks",
                                                 "micro-batch x accumulation", "tokens/step",
                                                 "warm-up+steps"}};
  if (predicted) rows[0].push_back("predicted GiB");
  for (const Case& one : cases) {
    rows.push_back({one.name(), one.what, one.communicates ? facts.communicator : "none",
                    fmt::format("{}", one.ranks),
                    fmt::format("{} x {}", one.micro_batch, one.accumulate),
                    one.finetune ? "varies" : grouped(one.tokens_per_step()), steps_text(one)});
    if (predicted) rows.back().push_back(memory_text(one));
  }
  out << heading(cases, facts) << "\n" << aligned_table(rows, 3) << "\n" << std::flush;
}

namespace {

Settings finetune_settings(const FinetuneRecipe& recipe) {
  std::vector<std::string> buckets;
  for (const auto bucket : recipe.length_buckets) buckets.push_back(fmt::format("{}", bucket));
  Settings settings = {{"method", recipe.method},
                       {"loss_on", recipe.loss_on},
                       {"packing", recipe.packing},
                       {"checkpointing", recipe.checkpointing},
                       {"length_buckets", join(buckets, ",")},
                       {"data", recipe.data.empty() ? std::string("synthetic") : recipe.data},
                       {"model", recipe.model.empty() ? std::string("random") : recipe.model},
                       {"train_examples", recipe.train_examples},
                       {"held_out", recipe.held_out}};
  if (recipe.method == "full") return settings;
  settings.push_back({"lora_rank", recipe.lora_rank});
  settings.push_back({"lora_alpha", recipe.lora_alpha});
  if (recipe.method == "qlora") settings.push_back({"qlora_upcast", recipe.qlora_upcast});
  return settings;
}

}  // namespace

Settings case_settings(const Case& one) {
  Settings settings = {
      {"size", one.size},
      {"recipe", one.recipe},
      {"ranks", static_cast<std::int64_t>(one.ranks)},
      {"one_rank", one.one_rank},
      {"communicates", one.communicates},
      {"wire", one.communicates ? one.wire : std::string("none")},
      {"micro_batch", one.micro_batch},
      {"accumulate", one.accumulate},
      {"sequence", one.sequence},
      {"vocabulary", one.vocabulary},
      {"steps", one.steps},
      {"warmup", one.warmup},
      {"seed", one.seed},
      {"learning_rate", one.learning_rate},
      {"precision", one.precision},
      {"attention", one.attention},
      {"loss_kernel", one.loss_kernel},
      {"block_kernel", one.block_kernel},
      {"global_batch", one.micro_batch * one.accumulate * one.ranks},
  };
  if (!one.finetune) settings.push_back({"tokens_per_step", one.tokens_per_step()});
  if (one.finetune) {
    settings = merged_settings(std::move(settings), finetune_settings(*one.finetune));
  }
  if (one.predicted_bytes) settings.push_back({"predicted_bytes", *one.predicted_bytes});
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
