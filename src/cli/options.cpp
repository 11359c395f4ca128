#include "cli/options.h"

#include <boost/program_options.hpp>
#include <charconv>
#include <set>

#include "cli/flag_table.h"
#include "core/text.h"

namespace po = boost::program_options;

namespace trainsuite {
namespace {

std::vector<std::string> flag_names() {
  std::vector<std::string> names;
  for (const Flag& flag : flag_table()) names.push_back(flag.name);
  return names;
}

const Flag& find_flag(const std::string& name) {
  for (const Flag& flag : flag_table()) {
    if (flag.name == name) return flag;
  }
  fail("flag --{} is not in the table", name);
}

std::string range_text(const Range& range, bool whole) {
  const std::string kind = whole ? "a whole number" : "a number";
  const auto number = [](double value) { return fmt::format("{:.16g}", value); };
  if (range.above) {
    return fmt::format("{} above {}, at most {}", kind, number(range.minimum),
                       number(range.maximum));
  }
  return fmt::format("{} from {} to {}", kind, number(range.minimum), number(range.maximum));
}

/// What to give as the flag's value: "a whole number from 1 to 1000000", "one of on, off".
std::string expected(const Flag& flag) {
  if (!flag.allowed.empty()) return "one of " + join(flag.allowed, ", ");
  const bool whole = std::holds_alternative<std::int64_t Options::*>(flag.target) ||
                     std::holds_alternative<std::optional<std::int64_t> Options::*>(flag.target);
  const bool real = std::holds_alternative<double Options::*>(flag.target) ||
                    std::holds_alternative<std::optional<double> Options::*>(flag.target);
  return whole || real ? range_text(flag.range, whole) : "a " + flag.value_name;
}

/// The whole text as a number within the flag's range, which is finite. Throws UsageError for
/// anything else: other characters, NaN, infinity, overflow.
template <class T>
T parse_number(const Flag& flag, const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const Range& range = flag.range;
  const auto number = static_cast<double>(value);
  const bool valid = error == std::errc() && stop == end && number >= range.minimum &&
                     number <= range.maximum && !(range.above && number == range.minimum);
  if (valid) return value;
  fail<UsageError>("--{} {} is not valid; give {}", flag.name, quoted(text), expected(flag));
}

std::string parse_text(const Flag& flag, const std::string& text) {
  if (text.empty()) fail<UsageError>("--{} has an empty value; give {}", flag.name, expected(flag));
  if (flag.allowed.empty()) return text;
  for (const std::string& allowed : flag.allowed) {
    if (text == allowed) return text;
  }
  // The nearest word to "gpu" is "cpu", which nobody who types it means.
  const std::string word = text == "gpu" ? "cuda" : text;
  fail<UsageError>("--{} does not know {}{} Values: {}", flag.name, quoted(text),
                   suggestion(word, flag.allowed), join(flag.allowed, ", "));
}

/// Sets the flag's member of `options` from its text; one overload per type of value.
struct Setter {
  const Flag& flag;
  const std::string& text;
  Options& options;
  void operator()(bool Options::*member) const { options.*member = true; }
  void operator()(std::string Options::*member) const { options.*member = parse_text(flag, text); }
  void operator()(std::vector<std::string> Options::*member) const {
    (options.*member).push_back(parse_text(flag, text));
  }
  void operator()(std::int64_t Options::*member) const {
    options.*member = parse_number<std::int64_t>(flag, text);
  }
  void operator()(std::optional<std::int64_t> Options::*member) const {
    options.*member = parse_number<std::int64_t>(flag, text);
  }
  void operator()(double Options::*member) const {
    options.*member = parse_number<double>(flag, text);
  }
  void operator()(std::optional<double> Options::*member) const {
    options.*member = parse_number<double>(flag, text);
  }
};

po::options_description described_flags() {
  po::options_description described;
  for (const Flag& flag : flag_table()) {
    const std::string names = flag.name == "help" ? "help,h" : flag.name;
    if (std::holds_alternative<bool Options::*>(flag.target)) {
      described.add_options()(names.c_str(), flag.help.c_str());
    } else {
      described.add_options()(names.c_str(), po::value<std::string>(), flag.help.c_str());
    }
  }
  return described;
}

/// Boost's errors as lines of ours.
[[noreturn]] void explain(const po::error& error) {
  if (const auto* unknown = dynamic_cast<const po::unknown_option*>(&error)) {
    const std::string token = unknown->get_option_name();
    const std::string given = token.substr(0, token.find('='));
    const std::string word = given.substr(std::min(given.find_first_not_of('-'), given.size()));
    fail<UsageError>("unknown flag {}{} See trainsuite --help", quoted(given),
                     suggestion(word, flag_names(), "--"));
  }
  if (const auto* syntax = dynamic_cast<const po::invalid_command_line_syntax*>(&error)) {
    const std::string given = syntax->get_option_name();
    const std::string name = given.substr(std::min(given.find_first_not_of('-'), given.size()));
    if (syntax->kind() == po::invalid_syntax::extra_parameter) {
      fail<UsageError>("--{} is a switch; give it without a value", name);
    }
    fail<UsageError>("--{} needs a value; give {}", name, expected(find_flag(name)));
  }
  fail<UsageError>("{}; see trainsuite --help", quoted(error.what()));
}

std::vector<po::option> split_arguments(const std::vector<std::string>& arguments) {
  using Style = po::command_line_style::style_t;
  // No prefix guessing, no letter case folding, no /flag.
  const int style = Style::allow_long | Style::long_allow_adjacent | Style::long_allow_next |
                    Style::allow_short | Style::allow_dash_for_short | Style::short_allow_next;
  try {
    return po::command_line_parser(arguments).options(described_flags()).style(style).run().options;
  } catch (const po::error& error) {
    explain(error);
  }
}

void set_suite(Options& options, const std::string& word, const std::vector<std::string>& suites) {
  if (!options.suite.empty()) {
    fail<UsageError>(
        "unexpected {} after suite '{}'; give one suite, and quote globs so that the"
        " shell leaves them alone",
        quoted(word), options.suite);
  }
  for (const std::string& suite : suites) {
    if (word == suite) options.suite = suite;
  }
  if (options.suite.empty()) {
    fail<UsageError>("unknown suite {}{} Suites: {}", quoted(word), suggestion(word, suites),
                     join(suites, ", "));
  }
}

}  // namespace

Options parse_options(int argc, const char* const* argv, const std::vector<std::string>& suites) {
  Options options;
  std::set<std::string> seen;
  for (const po::option& option : split_arguments({argv + std::min(argc, 1), argv + argc})) {
    const std::string text = option.value.empty() ? std::string() : option.value.front();
    if (option.position_key >= 0 || option.string_key.empty()) {
      set_suite(options, text, suites);
      continue;
    }
    const std::string name = option.string_key == "-h" ? "help" : option.string_key;
    const Flag& flag = find_flag(name);
    const bool repeatable =
        std::holds_alternative<std::vector<std::string> Options::*>(flag.target);
    if (!seen.insert(name).second && !repeatable) {
      fail<UsageError>("--{} is given twice; give it once", name);
    }
    std::visit(Setter{flag, text, options}, flag.target);
  }
  if (options.suite.empty() && !options.help && !options.version) {
    fail<UsageError>("no suite is given; use trainsuite SUITE [flags]. Suites: {}",
                     join(suites, ", "));
  }
  if (options.resume && options.out.empty()) {
    fail<UsageError>("--resume goes on with a file; name it with --out FILE");
  }
  if (options.retry && !options.resume) {
    fail<UsageError>("--retry runs again what failed in a file; add --resume");
  }
  if (options.plan && options.json) {
    fail<UsageError>("--plan prints for people; leave --json out");
  }
  // What the flags alone contradict is said here, before MPI starts.
  if (options.device == "cpu") {
    check_consistency(options, false, options.comm == "nccl" ? "nccl" : "mpi");
  } else if (options.comm != "auto") {
    check_consistency(options, true, options.comm);
  }
  return options;
}

}  // namespace trainsuite
