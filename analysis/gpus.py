"""GPUs by the names that prices and pages use (the twin of src/device/gpu_table.cpp)."""

from __future__ import annotations

import difflib

from results_records import ResultError

# Driver name -> (page name, nominal GB, listed dense bf16 TFLOP/s). A test holds this to the table
# in C++, which names the sources.
GPU_TABLE: dict[str, tuple[str, int, float]] = {
    "NVIDIA A100-PCIE-40GB": ("A100", 40, 312.0),
    "NVIDIA A100-SXM4-40GB": ("A100", 40, 312.0),
    "NVIDIA A100 80GB PCIe": ("A100", 80, 312.0),
    "NVIDIA A100-SXM4-80GB": ("A100", 80, 312.0),
    "NVIDIA RTX A6000": ("RTX A6000", 48, 154.8),
    "NVIDIA L40S": ("L40S", 48, 362.05),
    "NVIDIA GeForce RTX 4090": ("RTX 4090", 24, 165.2),
    "NVIDIA H100 PCIe": ("H100 PCIe", 80, 756.5),
    "NVIDIA H100 NVL": ("H100 NVL", 94, 835.5),
    "NVIDIA H100 80GB HBM3": ("H100", 80, 989.5),
    "NVIDIA H200": ("H200", 141, 989.5),
    "NVIDIA H200 NVL": ("H200 NVL", 141, 835.5),
    "NVIDIA B200": ("B200", 180, 2250.0),
    "NVIDIA GeForce RTX 5090": ("RTX 5090", 32, 209.5),
}


def page_name(device_name: str) -> str:
    """The name on pages and in prices; a card outside the table keeps its driver's name."""
    return GPU_TABLE[device_name][0] if device_name in GPU_TABLE else device_name


def nominal_gb(device_name: str) -> int | None:
    """The GB (1e9) on the box; None outside the table."""
    return GPU_TABLE[device_name][1] if device_name in GPU_TABLE else None


def listed_flops(device_name: str) -> float | None:
    """The makers' dense bf16 peak, FLOP/s; None outside the table."""
    return GPU_TABLE[device_name][2] * 1e12 if device_name in GPU_TABLE else None


def is_known(name: str) -> bool:
    """Whether `name` can be a page name: one of the table, or a driver's own name."""
    return name in {page for page, *_ in GPU_TABLE.values()} or name.startswith("NVIDIA ")


def check_known(name: str, where: str) -> str:
    """The page name of `name`. Raises ResultError with the nearest one."""
    if is_known(name):
        return page_name(name)
    pages = sorted({page for page, *_ in GPU_TABLE.values()})
    nearest = difflib.get_close_matches(name, pages, 1, 0.5)
    hint = f"did you mean '{nearest[0]}'?" if nearest else f"known: {', '.join(pages)}."
    raise ResultError(f"{where}: unknown GPU '{name}'; {hint} A card outside the table goes by "
                      "its driver's name ('NVIDIA ...')")
