// trainsuite <suite> [options]: the list of suites, and the way from argv to a result file.
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "cli/options.h"
#include "ddp.h"
#include "result/result_file.h"
#include "result/statistics.h"
#include "run/agreement.h"
#include "run/plan.h"
#include "run/runner.h"
#include "run/summary.h"
#include "session.h"
#include "suite.h"
#include "versions.h"

namespace trainsuite {
namespace {

const std::vector<Suite>& suites() {
  static const std::vector<Suite> all{ddp_suite()};
  return all;
}

std::vector<std::string> suite_names() {
  std::vector<std::string> names;
  for (const auto& suite : suites()) names.push_back(suite.name);
  return names;
}

const Suite& find_suite(const std::string& name) {
  for (const auto& suite : suites()) {
    if (suite.name == name) return suite;
  }
  fail<UsageError>("unknown suite '{}'", name);
}

int launcher_variable(std::initializer_list<const char*> names, int otherwise) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return otherwise;
}

/// Before MPI is up only the launcher's environment tells which rank this is.
int launched_rank() {
  return launcher_variable({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}, 0);
}
int launched_size() {
  return launcher_variable({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"}, 1);
}

int report(const std::string& message, int code, bool speak) {
  if (speak) std::cerr << "trainsuite: " << message << std::endl;
  return code;
}

std::vector<Case> selected_cases(const Suite& suite, const Options& options, bool cuda, int ranks) {
  return select_cases(suite.cases(options, cuda, ranks), options, suite.default_sizes(cuda));
}

/// --help, --version, --list: answered without MPI. Empty: there is work to do.
std::optional<int> answer_alone(const Options& options) {
  if (options.help) {
    std::cout << help_text(suite_names());
  } else if (options.version) {
    std::cout << version_line() << std::endl;
  } else if (options.list) {
    const auto& suite = find_suite(options.suite);
    print_list(std::cout, suite.cases(options, choose(options).cuda, launched_size()), options);
  } else {
    return std::nullopt;
  }
  return 0;
}

int run_suite(World& world, const Options& options, const std::vector<std::string>& argv) {
  const auto& suite = find_suite(options.suite);
  // Rank 0 alone waits for cases that only it runs; the others must be more patient than it.
  world.set_deadline(options.time_limit_seconds + (world.is_root() ? 0 : 60));
  Session session(world, options, argv);
  auto cases = selected_cases(suite, options, session.device().cuda, world.size());
  std::string path = options.out;
  if (world.is_root() && path.empty()) path = ResultFile::default_path(suite.name);
  all_or_none(world, [&] {
    if (world.is_root() && !options.plan) ResultFile::check_creatable(path);
  });
  session.resolve_kernels(cases);
  if (session.device().cuda) {
    for (auto& one : cases) one.predicted_bytes = suite.predicted_bytes(one);
  }
  if (world.is_root() && !options.json) {
    const auto& run = session.run_record();
    print_plan(std::cout, cases,
               {.cuda = session.device().cuda,
                .device_name = session.device().name,
                .ranks = world.size(),
                .hosts = static_cast<int>(run.hosts.size()),
                .repeats = options.repeats,
                .communicator = session.comm_kind(),
                .link = options.link,
                .default_sizes = options.sizes.empty(),
                .output_path = options.plan ? "" : path});
    std::cout.flush();
  }
  if (options.plan) return 0;

  std::unique_ptr<ResultFile> file;
  all_or_none(world, [&] {
    if (!world.is_root()) return;
    for (const auto& one : cases) session.run_record().planned.push_back(one.name());
    file = ResultFile::create(path, session.run_record());
  });
  RunnerOptions runner{
      .repeats = options.repeats, .settings = recorded_settings(options), .quiet = options.json};
  const auto rows = run_plan(world, cases, suite.workload(session, options), runner, file.get());
  if (!world.is_root()) return std::stoi(world.broadcast({}));
  file->finish();
  const SummaryFacts facts{session.device().cuda, session.run_record().ranks, file->path()};
  std::cout << (options.json ? summary_json(rows, facts) : summary_text(rows, facts)) << std::flush;
  return std::stoi(world.broadcast(std::to_string(exit_status(rows))));
}

int run_with_mpi(const Options& options, int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  World world(&argc, &argv);
  try {
    return run_suite(world, options, words);
  } catch (const UsageError& error) {  // the same on all ranks
    return report(error.what(), 2, world.is_root());
  } catch (const SharedError& error) {
    return report(error.what(), 1, world.is_root());
  } catch (const std::exception& error) {
    world.abort(1, error.what());
  }
}

int run_main(int argc, char** argv) {
  const int rank = launched_rank();
  try {
    const auto options = parse_options(argc, argv, suite_names());
    if (rank != 0 && (options.help || options.version || options.list)) return 0;
    if (const auto code = answer_alone(options)) return *code;
    selected_cases(find_suite(options.suite), options, choose(options).cuda, launched_size());
    return run_with_mpi(options, argc, argv);
  } catch (const UsageError& error) {
    // The launcher kills the job at the first bad exit: let rank 0 speak before.
    if (rank != 0) usleep(1000 * 1000);
    return report(error.what(), 2, rank == 0);
  } catch (const std::exception& error) {
    return report(error.what(), 1, true);
  }
}

}  // namespace
}  // namespace trainsuite

int main(int argc, char** argv) { return trainsuite::run_main(argc, argv); }
