#include "result/hdf5_tables.h"

#include <cstddef>
#include <initializer_list>
#include <string>
#include <vector>

#include "result/hdf5_values.h"

namespace trainsuite {
namespace {

struct RankRow {
  std::int64_t rank, local_rank;
  const char *host, *device_name, *uuid, *pci_bus_id;
  std::int64_t memory_bytes;
  const char* cores;
};

struct HostRow {
  const char *host, *cpu_model, *kernel, *virtualisation;
  std::int64_t sockets, cores, ram_bytes;
};

struct GpuRow {
  const char* host;
  std::int64_t gpu;
  const char *uuid, *device_name, *pci_bus_id;
  double power_limit_watts, power_limit_default_watts;
  const char *ecc, *mig, *compute_mode, *persistence;
  double pcie_generation, pcie_generation_max, pcie_width, pcie_width_max, numa_node;
};

struct LinkRow {
  const char* host;
  std::int64_t gpu_a, gpu_b;
  const char* link;
};

struct NetworkRow {
  const char *host, *name, *kind, *state, *rate;
  double numa_node;
};

struct Column {
  const char* name;
  std::size_t offset;
  char kind;  // t(ext), i(nteger), r(eal)
};

#define TRAINSUITE_COLUMN(row, name, kind) \
  Column { #name, offsetof(row, name), kind }

H5::CompType row_type(std::size_t bytes, std::initializer_list<Column> columns) {
  H5::CompType type(bytes);
  for (const Column& column : columns) {
    if (column.kind == 't') {
      type.insertMember(column.name, column.offset, text_type());
    } else {
      type.insertMember(column.name, column.offset,
                        column.kind == 'i' ? H5::PredType::STD_I64LE : H5::PredType::IEEE_F64LE);
    }
  }
  return type;
}

template <class Row>
void put_table(H5::Group& group, const char* name, const std::vector<Row>& rows,
               const H5::CompType& type) {
  if (rows.empty()) return;
  const hsize_t dimensions[1] = {rows.size()};
  group.createDataSet(name, type, H5::DataSpace(1, dimensions)).write(rows.data(), type);
}

void put_ranks(H5::Group& group, const RunRecord& run) {
  std::vector<RankRow> rows;
  for (const RankIdentity& rank : run.ranks)
    rows.push_back({rank.rank, rank.local_rank, rank.host.c_str(), rank.device_name.c_str(),
                    rank.uuid.c_str(), rank.pci_bus_id.c_str(), rank.memory_bytes,
                    rank.cores.c_str()});
  put_table(
      group, "ranks", rows,
      row_type(
          sizeof(RankRow),
          {TRAINSUITE_COLUMN(RankRow, rank, 'i'), TRAINSUITE_COLUMN(RankRow, local_rank, 'i'),
           TRAINSUITE_COLUMN(RankRow, host, 't'), TRAINSUITE_COLUMN(RankRow, device_name, 't'),
           TRAINSUITE_COLUMN(RankRow, uuid, 't'), TRAINSUITE_COLUMN(RankRow, pci_bus_id, 't'),
           TRAINSUITE_COLUMN(RankRow, memory_bytes, 'i'), TRAINSUITE_COLUMN(RankRow, cores, 't')}));
}

void put_hosts(H5::Group& group, const RunRecord& run) {
  std::vector<HostRow> rows;
  for (const HostIdentity& host : run.hosts)
    rows.push_back({host.host.c_str(), host.cpu_model.c_str(), host.kernel.c_str(),
                    host.virtualisation.c_str(), host.sockets, host.cores, host.ram_bytes});
  put_table(
      group, "hosts", rows,
      row_type(
          sizeof(HostRow),
          {TRAINSUITE_COLUMN(HostRow, host, 't'), TRAINSUITE_COLUMN(HostRow, cpu_model, 't'),
           TRAINSUITE_COLUMN(HostRow, kernel, 't'), TRAINSUITE_COLUMN(HostRow, virtualisation, 't'),
           TRAINSUITE_COLUMN(HostRow, sockets, 'i'), TRAINSUITE_COLUMN(HostRow, cores, 'i'),
           TRAINSUITE_COLUMN(HostRow, ram_bytes, 'i')}));
}

void put_gpus(H5::Group& group, const RunRecord& run) {
  std::vector<GpuRow> rows;
  for (const GpuIdentity& gpu : run.gpus)
    rows.push_back({gpu.host.c_str(), gpu.gpu, gpu.uuid.c_str(), gpu.device_name.c_str(),
                    gpu.pci_bus_id.c_str(), gpu.power_limit_watts, gpu.power_limit_default_watts,
                    gpu.ecc.c_str(), gpu.mig.c_str(), gpu.compute_mode.c_str(),
                    gpu.persistence.c_str(), gpu.pcie_generation, gpu.pcie_generation_max,
                    gpu.pcie_width, gpu.pcie_width_max, gpu.numa_node});
  put_table(
      group, "gpus", rows,
      row_type(sizeof(GpuRow),
               {TRAINSUITE_COLUMN(GpuRow, host, 't'), TRAINSUITE_COLUMN(GpuRow, gpu, 'i'),
                TRAINSUITE_COLUMN(GpuRow, uuid, 't'), TRAINSUITE_COLUMN(GpuRow, device_name, 't'),
                TRAINSUITE_COLUMN(GpuRow, pci_bus_id, 't'),
                TRAINSUITE_COLUMN(GpuRow, power_limit_watts, 'r'),
                TRAINSUITE_COLUMN(GpuRow, power_limit_default_watts, 'r'),
                TRAINSUITE_COLUMN(GpuRow, ecc, 't'), TRAINSUITE_COLUMN(GpuRow, mig, 't'),
                TRAINSUITE_COLUMN(GpuRow, compute_mode, 't'),
                TRAINSUITE_COLUMN(GpuRow, persistence, 't'),
                TRAINSUITE_COLUMN(GpuRow, pcie_generation, 'r'),
                TRAINSUITE_COLUMN(GpuRow, pcie_generation_max, 'r'),
                TRAINSUITE_COLUMN(GpuRow, pcie_width, 'r'),
                TRAINSUITE_COLUMN(GpuRow, pcie_width_max, 'r'),
                TRAINSUITE_COLUMN(GpuRow, numa_node, 'r')}));
}

void put_topology(H5::Group& group, const RunRecord& run) {
  std::vector<LinkRow> rows;
  for (const GpuLink& link : run.topology)
    rows.push_back({link.host.c_str(), link.gpu_a, link.gpu_b, link.link.c_str()});
  put_table(
      group, "topology", rows,
      row_type(sizeof(LinkRow),
               {TRAINSUITE_COLUMN(LinkRow, host, 't'), TRAINSUITE_COLUMN(LinkRow, gpu_a, 'i'),
                TRAINSUITE_COLUMN(LinkRow, gpu_b, 'i'), TRAINSUITE_COLUMN(LinkRow, link, 't')}));
}

void put_networks(H5::Group& group, const RunRecord& run) {
  std::vector<NetworkRow> rows;
  for (const NetworkAdapter& one : run.networks)
    rows.push_back({one.host.c_str(), one.name.c_str(), one.kind.c_str(), one.state.c_str(),
                    one.rate.c_str(), one.numa_node});
  put_table(
      group, "networks", rows,
      row_type(sizeof(NetworkRow),
               {TRAINSUITE_COLUMN(NetworkRow, host, 't'), TRAINSUITE_COLUMN(NetworkRow, name, 't'),
                TRAINSUITE_COLUMN(NetworkRow, kind, 't'), TRAINSUITE_COLUMN(NetworkRow, state, 't'),
                TRAINSUITE_COLUMN(NetworkRow, rate, 't'),
                TRAINSUITE_COLUMN(NetworkRow, numa_node, 'r')}));
}

}  // namespace

void put_run_tables(H5::Group& group, const RunRecord& run) {
  put_ranks(group, run);
  put_hosts(group, run);
  put_gpus(group, run);
  put_topology(group, run);
  put_networks(group, run);
}

}  // namespace trainsuite
