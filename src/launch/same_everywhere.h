#pragma once
// Ranks that were started differently must not train together.
#include <string>
#include <vector>

#include "core/setting.h"

namespace trainsuite {

class World;

/// Collective, before the first one of a run: compares settings and versions. Throws UsageError on
/// every rank, naming the first differing setting, the ranks and their values.
void check_same_everywhere(World& world, const Settings& mine);

/// The fault in words, empty where all agree. all[r] is rank r's settings as settings_text gives
/// them.
std::string first_difference(const std::vector<std::string>& all);
std::string settings_text(const Settings& settings);

}  // namespace trainsuite
