#include "run/agreement.h"

#include <string>

#include "core/error.h"

namespace trainsuite {

void all_or_none(World& world, const std::function<void()>& body) {
  std::string mine;  // "" fine, "u..." usage error, "e..." other error
  try {
    body();
  } catch (const UsageError& error) {
    mine = std::string("u") + error.what();
  } catch (const std::exception& error) {
    mine = std::string("e") + error.what();
  }
  for (const auto& outcome : world.all_gather(mine)) {
    if (outcome.empty()) continue;
    const auto text = outcome.substr(1);
    if (outcome[0] == 'u') throw UsageError(text);
    throw SharedError(text);
  }
}

}  // namespace trainsuite
