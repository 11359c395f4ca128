"""What the machine is: host, device, software."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "analysis"))

from launch import World  # noqa: E402
from results import HostIdentity, RankIdentity  # noqa: E402

RECORDED_VARIABLES = (
    "CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING CUDA_DEVICE_MAX_CONNECTIONS "
    "PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF TORCH_ALLOW_TF32_CUBLAS_OVERRIDE "
    "TORCH_NCCL_AVOID_RECORD_STREAMS CUBLAS_WORKSPACE_CONFIG OMP_NUM_THREADS MKL_NUM_THREADS "
    "NCCL_ALGO NCCL_BUFFSIZE NCCL_DEBUG NCCL_IB_DISABLE NCCL_IB_HCA NCCL_MAX_NCHANNELS "
    "NCCL_MIN_NCHANNELS NCCL_NET NCCL_NVLS_ENABLE NCCL_P2P_DISABLE NCCL_P2P_LEVEL NCCL_PROTO "
    "NCCL_SHM_DISABLE NCCL_SOCKET_IFNAME NCCL_NET_GDR_LEVEL SLURM_JOB_ID SLURM_ARRAY_JOB_ID "
    "SLURM_ARRAY_TASK_ID SLURM_JOB_NUM_NODES SLURM_NTASKS SLURM_CPUS_PER_TASK SLURM_JOB_PARTITION"
).split()


def utc_now() -> str:
    """ISO 8601 with Z."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def first_match(path: str, pattern: str) -> str:
    """What group 1 of `pattern` finds in a file; empty where there is none."""
    try:
        found = re.search(pattern, Path(path).read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return ""
    return found.group(1).strip() if found else ""


def git(*arguments: str) -> str | None:
    """Output of git in the source folder; None where there is no repository."""
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def cpu_range() -> str:
    """Cores that this process may use, such as 0-3,8."""
    cores = sorted(os.sched_getaffinity(0))
    parts: list[list[int]] = []
    for core in cores:
        if parts and core == parts[-1][1] + 1:
            parts[-1][1] = core
        else:
            parts.append([core, core])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def rank_identity(world: World) -> RankIdentity:
    """Who this rank is and on what it computes."""
    identity = RankIdentity(
        rank=world.rank,
        local_rank=world.local_rank,
        host=platform.node(),
        device_name=first_match("/proc/cpuinfo", r"^model name\s*:\s*(.+)$"),
        cores=cpu_range(),
    )
    if world.cuda:
        properties = torch.cuda.get_device_properties(world.device)
        identity.device_name = properties.name
        identity.uuid = f"GPU-{properties.uuid}"
        identity.pci_bus_id = (
            f"{properties.pci_domain_id:08x}:{properties.pci_bus_id:02x}:"
            f"{properties.pci_device_id:02x}.0"
        )
        identity.memory_bytes = properties.total_memory
    return identity


def host_identity() -> HostIdentity:
    """The host of this rank."""
    cpus = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    sockets = set(re.findall(r"^physical id\s*:\s*(\d+)", cpus, re.MULTILINE))
    return HostIdentity(
        host=platform.node(),
        cpu_model=first_match("/proc/cpuinfo", r"^model name\s*:\s*(.+)$"),
        kernel=f"{platform.system()} {platform.release()}",
        virtualisation=virtualisation(),
        sockets=len(sockets) or 1,
        cores=os.cpu_count() or 0,
        ram_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )


def virtualisation() -> str:
    """The hypervisor's product name; empty on bare metal."""
    if not first_match("/proc/cpuinfo", r"^flags\s*:.* (hypervisor)\b"):
        return ""
    product = first_match("/sys/class/dmi/id/product_name", r"^(.+)$")
    return f"hypervisor: {product}" if product else "hypervisor"


def software(world: World) -> dict[str, Any]:
    """Versions and the recorded environment; None where unknown."""
    facts: dict[str, Any] = {
        "python_version": platform.python_version(),
        "torch_version": torch.__version__,
        "cuda_version": torch.version.cuda,
        "hdf5_version": h5py.version.hdf5_version,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "torch_threads": torch.get_num_threads(),
    }
    if torch.distributed.is_nccl_available():
        facts["nccl_version"] = ".".join(map(str, torch.cuda.nccl.version()))
    if world.cuda:
        facts["driver_version"] = first_match("/sys/module/nvidia/version", r"^(.+)$") or None
    if commit := git("rev-parse", "HEAD"):
        facts["git_commit"] = commit
        facts["git_dirty"] = bool(git("status", "--porcelain", "--untracked-files=no"))
    for name in RECORDED_VARIABLES:
        if name in os.environ:
            facts[f"env_{name}"] = os.environ[name]
    return facts
