"""The records of tests/unit/result_sample.cpp, in Python, and trees to compare files by."""

import math
from typing import Any

import h5py
import numpy as np

import results


def ramp(name: str, unit: str, rank: int, steps: int, factor: float) -> results.RankSeries:
    """Distinct values per rank and step."""
    values = [factor * (1000 * rank + step + 1) for step in range(steps)]
    return results.RankSeries(name, unit, values)


def awkward_run() -> results.RunRecord:
    """Texts beyond ASCII, empty ones, every type of value."""
    identity, host = results.RankIdentity, results.HostIdentity
    return results.RunRecord(
        created_utc="2026-01-02T03:04:05Z",
        argv=["trainsuite", "ddp", "--out", "naïve Ω 😀.h5", ""],
        planned=["tiny-plain", "tiny-größe", "tiny-missing"],
        attributes={"torch_version": "2.11.0+cu130", "dry_run": True, "mpi_ranks": 3,
                    "clock_ghz": 2.5, "empty": ""},
        ranks=[identity(0, 0, "höst", "GPU A", "GPU-1", "0000:01:00.0", 1 << 37, "0-7"),
               identity(1, 1, "höst"),
               identity(2, 0, "other", "GPU B", "GPU-2", "0000:02:00.0", 5, "8,9")],
        hosts=[host("höst", "CPU", "6.1", "none", 2, 64, 1 << 40), host("other")],
        gpus=[results.GpuIdentity("höst", 0, "GPU-1", "GPU A", "0000:01:00.0", 700, 650, "on",
                                  "off", "default", "off", 1, 5, 16, 16, 1),
              results.GpuIdentity("other", 3)],
        topology=[results.GpuLink("höst", 0, 1, "NV18")],
        networks=[results.NetworkAdapter("höst", "mlx5_0:1", "InfiniBand", "4: ACTIVE",
                                         "400 Gb/sec (4X NDR)", 0),
                  results.NetworkAdapter("other", "eth0", "Ethernet", "up")])


def plain_case(repeat: int) -> results.CaseRecord:
    """Ranks with different series of different lengths."""
    many = {f"many_{index}": index for index in range(150)}
    return results.CaseRecord(
        "ddp", "tiny-plain", repeat, "ok", "",
        settings={"implementation": "trainsuite", "steps": 3, "oversubscribe": False,
                  "learning_rate": 1e-4, "unknown": math.nan, "interface": "",
                  "negative": -9223372036854775807, "ranks": 99, **many},
        results={"setup_seconds": 0.25, "weight_bytes_float32": 1 << 40,
                 "long_text": "x" * 100_000, "final_weights_hash": "ab12"},
        checks={"replicas_equal": True, "difference": 0.5, "note": "ø"},
        warmup=[True, False, False, False],
        ranks=[
            results.RankRecord(
                0,
                [ramp("step_seconds", "s", 0, 4, 0.125), ramp("loss", "1", 0, 4, 1),
                 ramp("tokens", "token", 0, 4, 1),
                 ramp("allocated_peak_bytes", "byte", 0, 4, 1e9),
                 ramp("odd_bytes", "byte", 0, 4, 0.5), results.RankSeries("nothing", "s", [])],
                {"setup_seconds": 1.5, "hash": "é", "flag": True, "optimizer_bytes": 8,
                 "loop_steps": 3}),
            results.RankRecord(
                2,
                [ramp("step_seconds", "s", 2, 2, 0.125), ramp("tokens", "token", 2, 4, 1),
                 ramp("allocated_peak_bytes", "byte", 2, 3, 1e9),
                 ramp("only_here_seconds", "s", 2, 4, 1)],
                {"setup_seconds": 2.5, "flag": False, "optimizer_bytes": 9},
                [ramp("sample_seconds", "s", 2, 3, 0.25), ramp("power_watts", "W", 2, 2, 1)])])


def failed_case() -> results.CaseRecord:
    """A row without ranks."""
    return results.CaseRecord("ddp", "tiny-größe", status="oom",
                              reason="rank 1: out of memory\n(second line)",
                              settings={"implementation": "trainsuite", "ranks": 9})


def write_awkward(path: str) -> None:
    """The same file as `result_sample awkward`."""
    writer = results.ResultWriter(path, awkward_run())
    for repeat in range(3):
        writer.append(plain_case(repeat))
    writer.append(failed_case())
    writer.finish()


def type_text(type_id: h5py.h5t.TypeID) -> str:
    """A stored type in words, down to character set, byte order and offsets."""
    if isinstance(type_id, h5py.h5t.TypeCompoundID):
        members = [(type_id.get_member_name(index).decode(), type_id.get_member_offset(index),
                    type_text(type_id.get_member_type(index)))
                   for index in range(type_id.get_nmembers())]
        return f"compound {type_id.get_size()} {members}"
    if isinstance(type_id, h5py.h5t.TypeStringID):
        return f"string variable={type_id.is_variable_str()} set={type_id.get_cset()} " \
               f"pad={type_id.get_strpad()}"
    return f"{type(type_id).__name__} {type_id.get_size()} {type_id.get_order()} " \
           f"{type_id.dtype.kind}"


def comparable(value: Any) -> Any:
    """Equal for equal content, NaN included."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return value.tobytes() if not np.isnan(value).any() else repr(value.tolist())
    if isinstance(value, np.ndarray):
        return repr(value.tolist())
    return repr(value)


def tree(path: str) -> dict[str, tuple]:
    """Every object and attribute of a file: name -> (kind, type, shape, content)."""
    nodes: dict[str, tuple] = {}

    def visit(name: str, item: h5py.Group | h5py.Dataset) -> None:
        if isinstance(item, h5py.Dataset):
            nodes[name] = ("dataset", type_text(item.id.get_type()), item.shape,
                           comparable(item[()]))
        else:
            nodes[name] = ("group",)
        for key in item.attrs:
            attribute = item.attrs.get_id(key)
            nodes[f"{name}@{key}"] = ("attribute", type_text(attribute.get_type()),
                                      attribute.shape, comparable(item.attrs[key]))

    with h5py.File(path, "r", locking=False) as file:
        visit("", file)
        file.visititems(visit)
    return nodes
