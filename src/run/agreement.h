#pragma once
// A step that may fail on one rank only, made the same on all.
#include <functional>

#include "launch/world.h"

namespace trainsuite {

/// Runs `body` on every rank; when it throws on any, throws the lowest failing rank's error on all
/// (as UsageError or SharedError), so that no rank goes on into a collective alone.
void all_or_none(World& world, const std::function<void()>& body);

}  // namespace trainsuite
