#include <algorithm>

#include "device/device.h"

namespace trainsuite {

// Dense bf16 tensor-core peaks with fp32 accumulation, from NVIDIA's own pages; where a page gives
// the peak with sparsity, half of it.
//   A100            A100 datasheet: 312 (624 with sparsity)
//   L40S            L40S datasheet: 362.05 (733 with sparsity)
//   RTX A6000       GA102 whitepaper, table of professional cards: 154.8
//   RTX 4090        Ada whitepaper, appendix A: 165.2
//   RTX 5090        RTX Blackwell whitepaper, appendix A: 209.5
//   H100, H200      datasheets: 1,979 (SXM), 1,513 (H100 PCIe), 1,671 (NVL) with sparsity
//   B200            HGX B200 page: 36 PFLOP/s with sparsity for 8 GPUs
const std::vector<GpuModel>& gpu_table() {
  static const std::vector<GpuModel> table = {
      {"NVIDIA A100-PCIE-40GB", "A100", 80, 40, 312},
      {"NVIDIA A100-SXM4-40GB", "A100", 80, 40, 312},
      {"NVIDIA A100 80GB PCIe", "A100", 80, 80, 312},
      {"NVIDIA A100-SXM4-80GB", "A100", 80, 80, 312},
      {"NVIDIA RTX A6000", "RTX A6000", 86, 48, 154.8},
      {"NVIDIA L40S", "L40S", 89, 48, 362.05},
      {"NVIDIA GeForce RTX 4090", "RTX 4090", 89, 24, 165.2},
      {"NVIDIA H100 PCIe", "H100 PCIe", 90, 80, 756.5},
      {"NVIDIA H100 NVL", "H100 NVL", 90, 94, 835.5},
      {"NVIDIA H100 80GB HBM3", "H100", 90, 80, 989.5},
      {"NVIDIA H200", "H200", 90, 141, 989.5},
      {"NVIDIA H200 NVL", "H200 NVL", 90, 141, 835.5},
      {"NVIDIA B200", "B200", 100, 180, 2250},
      {"NVIDIA GeForce RTX 5090", "RTX 5090", 120, 32, 209.5},
  };
  return table;
}

std::optional<GpuModel> find_gpu(const std::string& driver_name) {
  const auto& table = gpu_table();
  const auto found = std::find_if(table.begin(), table.end(), [&](const GpuModel& model) {
    return model.driver_name == driver_name;
  });
  if (found == table.end()) return std::nullopt;
  return *found;
}

}  // namespace trainsuite
