#pragma once
// What is recorded once a run: versions, environment, hosts.
#include <string>
#include <vector>

#include "core/setting.h"
#include "result/record.h"

namespace trainsuite {

std::string utc_now();  // 2026-11-30T12:34:56Z

/// This machine: CPU model, sockets, cores, RAM, kernel, virtualisation.
HostIdentity this_host(const std::string& name);

/// The environment variables that change what is measured or name the job; set ones only, each as
/// attribute "env_<NAME>".
Settings recorded_environment();

std::string host_to_text(const HostIdentity& host);
HostIdentity host_from_text(const std::string& text);
std::string rank_to_text(const RankIdentity& rank);
RankIdentity rank_from_text(const std::string& text);

/// "0-3,8" of {0,1,2,3,8}.
std::string core_ranges(const std::vector<int>& cores);

}  // namespace trainsuite
