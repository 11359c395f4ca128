#include "comm/nccl_log.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "core/text.h"

namespace trainsuite {
namespace {

namespace fs = std::filesystem;

/// The first two parts of a way: "P2P/CUMEM/read" -> "P2P/CUMEM", "NET/IB/0/GDRDMA" -> "NET/IB".
std::string transport_of(const std::string& way) {
  const auto first = way.find('/');
  const auto second = first == std::string::npos ? first : way.find('/', first + 1);
  const std::string name = way.substr(0, second);
  return name.starts_with("SHM") ? "SHM" : name;
}

void add_line(const std::string& line, NcclChoices& choices) {
  static const std::regex channel(" via ([^ ]+)"), network("Using network ([^\\r]+)$"),
      plugin("NET/Plugin: (?:Loaded net plugin|Successfully loaded external network plugin) (.+)$"),
      no_plugin("NET/Plugin: (?:Could not find|No plugin found)"),
      channels("([0-9]+ coll channels,.*)$");
  std::smatch found;
  if (std::regex_search(line, found, channel)) {
    const std::string way = found[1], name = transport_of(way);
    auto& all = choices.transports;
    if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
    choices.gpudirect = choices.gpudirect || way.find("GDRDMA") != std::string::npos;
  } else if (std::regex_search(line, found, network)) {
    choices.network = found[1];
  } else if (std::regex_search(line, found, plugin)) {
    choices.plugin = found[1];
  } else if (choices.plugin.empty() && std::regex_search(line, no_plugin)) {
    choices.plugin = "none";
  } else if (std::regex_search(line, found, channels)) {
    choices.channels = found[1];
  }
}

}  // namespace

NcclChoices parse_nccl_log(const std::string& text) {
  NcclChoices choices;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("NCCL INFO") != std::string::npos) add_line(line, choices);
  }
  return choices;
}

Settings nccl_settings(const NcclChoices& choices) {
  Settings settings;
  const auto add = [&](const char* name, const std::string& text) {
    if (!text.empty()) settings.push_back({name, text});
  };
  add("nccl_plugin", choices.plugin);
  add("nccl_network", choices.network);
  add("nccl_transports", join(choices.transports, ", "));
  add("nccl_channels", choices.channels);
  const bool over_network =
      std::any_of(choices.transports.begin(), choices.transports.end(),
                  [](const std::string& one) { return one.starts_with("NET/"); });
  if (over_network) settings.push_back({"nccl_gpudirect", choices.gpudirect});
  return settings;
}

NcclLog::NcclLog() {
  if (std::getenv("NCCL_DEBUG") != nullptr || std::getenv("NCCL_DEBUG_FILE") != nullptr) return;
  std::error_code error;
  const auto folder = fs::temp_directory_path(error);
  if (error) return;
  path_ = (folder / ("trainsuite-nccl-" + std::to_string(getpid()) + ".log")).string();
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_SUBSYS", "INIT,NET", /*overwrite=*/0);  // nothing within a collective
  setenv("NCCL_DEBUG_FILE", path_.c_str(), 1);
}

NcclLog::~NcclLog() {
  if (!path_.empty()) unlink(path_.c_str());
}

NcclChoices NcclLog::read() const {
  if (path_.empty()) return {};
  std::ifstream file(path_, std::ios::binary);
  return parse_nccl_log({std::istreambuf_iterator<char>(file), {}});
}

}  // namespace trainsuite
