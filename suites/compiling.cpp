#include "compiling.h"

#include <utility>

#include "compile/held_folder.h"
#include "run/agreement.h"
#include "session.h"

namespace trainsuite {

CompileChoice compile_choice(const Options& options) {
  return {options.compile_cache.empty() ? default_compile_cache()
                                        : std::filesystem::absolute(options.compile_cache),
          options.cold, options.deterministic};
}

void skip_graph_rows(std::vector<Case>& cases, bool cuda, const std::string& communicator) {
  for (auto& one : cases) {
    if (one.execution != "graph") continue;
    if (!cuda) {
      one.skip = "CUDA graphs need a GPU, this run is on a CPU";
    } else if (one.communicates && communicator == "mpi") {
      one.skip = "communication over MPI cannot be captured in a CUDA graph, NCCL's can";
    }
  }
}

void check_compiling(Session& session, const Options& options, const std::vector<Case>& cases) {
  const auto choice = compile_choice(options);
  all_or_none(session.world(), [&] {
    if (session.world().local_rank() != 0) return;
    const auto tools = find_compile_tools();
    bool first = true;
    for (const auto& one : cases) {
      if (one.execution == "eager" || !one.skip.empty()) continue;
      if (std::exchange(first, false)) remove_abandoned(choice.cache);
      check_executable_folder(std::filesystem::temp_directory_path(), "loaded packages (TMPDIR)");
      const PackageCache cache(choice.cache, tools);
      const auto target = compile_target(one, session.device(), choice.deterministic);
      for (const auto& request : block_requests(one)) {
        if (!choice.cold && cache.has(target, request)) continue;
        check_executable_folder(choice.cache, "compiled packages (--compile-cache)");
        check_compile_tools(tools);
        return;
      }
    }
  });
}

}  // namespace trainsuite
