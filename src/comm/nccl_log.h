#pragma once
// What NCCL chose, from its own log: it has no call that tells.
#include <string>
#include <vector>

#include "core/setting.h"

namespace trainsuite {

/// As NCCL words it; empty where it did not say.
struct NcclChoices {
  std::string plugin;                   // of the network: "libnccl-net.so", or "none"
  std::string network;                  // "IB", "Socket", "AWS Libfabric"
  std::vector<std::string> transports;  // of this rank's channels: "P2P/CUMEM", "SHM", "NET/IB"
  bool gpudirect = false;               // a network channel goes straight to GPU memory
  std::string channels;                 // "24 coll channels, 16 nvls channels, 32 p2p channels"
};

/// From the text of a log of NCCL_DEBUG=INFO.
NcclChoices parse_nccl_log(const std::string& text);

/// nccl_plugin, nccl_network, nccl_transports, nccl_gpudirect, nccl_channels; what is not known is
/// left out.
Settings nccl_settings(const NcclChoices& choices);

/// Has NCCL write its set-up into a temporary file of this process, unless the user's NCCL_DEBUG
/// asks for something else. Made before the first communicator; removes the file at its end.
class NcclLog {
 public:
  NcclLog();
  ~NcclLog();
  NcclLog(const NcclLog&) = delete;
  NcclLog& operator=(const NcclLog&) = delete;
  /// What was written so far; channels appear with the first collective.
  NcclChoices read() const;

 private:
  std::string path_;  // empty: NCCL was not asked
};

}  // namespace trainsuite
