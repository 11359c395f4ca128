"""How records lie in HDF5, schema 1 (docs/schema.md); the same tree as src/result writes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import h5py
import numpy as np

from results_records import (ATTRIBUTE_LIMIT_BYTES, SCHEMA, SCHEMA_VERSION, STATUSES, CaseRecord,
                             RankRecord, RankSeries, ResultError, RunRecord, Value)

TEXT = h5py.string_dtype("utf-8")
RANK_TYPE = np.dtype([("rank", "<i8"), ("local_rank", "<i8"), ("host", TEXT),
                      ("device_name", TEXT), ("uuid", TEXT), ("pci_bus_id", TEXT),
                      ("memory_bytes", "<i8"), ("cores", TEXT)])
HOST_TYPE = np.dtype([("host", TEXT), ("cpu_model", TEXT), ("kernel", TEXT),
                      ("virtualisation", TEXT), ("sockets", "<i8"), ("cores", "<i8"),
                      ("ram_bytes", "<i8")])
LINK_TYPE = np.dtype([("host", TEXT), ("gpu_a", "<i8"), ("gpu_b", "<i8"), ("link", TEXT)])
GPU_TYPE = np.dtype([("host", TEXT), ("gpu", "<i8"), ("uuid", TEXT), ("device_name", TEXT),
                     ("pci_bus_id", TEXT), ("power_limit_watts", "<f8"),
                     ("power_limit_default_watts", "<f8"), ("ecc", TEXT), ("mig", TEXT),
                     ("compute_mode", TEXT), ("persistence", TEXT), ("pcie_generation", "<f8"),
                     ("pcie_generation_max", "<f8"), ("pcie_width", "<f8"),
                     ("pcie_width_max", "<f8"), ("numa_node", "<f8")])
NETWORK_TYPE = np.dtype([("host", TEXT), ("name", TEXT), ("kind", TEXT), ("state", TEXT),
                         ("rate", TEXT), ("numa_node", "<f8")])
INTEGER_UNITS = ("byte", "token")
RESERVED = ("ranks", "result_names")  # attributes of a row that no setting can take
EXACT_FLOAT64 = 2**53  # beyond it float64 skips whole numbers


def clean_text(text: str) -> str:
    """A zero byte would end the text early in HDF5."""
    return text.replace("\0", "\ufffd")


def text_bytes(text: str) -> int:
    """Length of `text` in UTF-8."""
    return len(text.encode("utf-8", "surrogateescape"))


def unit_of(name: str) -> str:
    """The unit that a scalar's name says: s, byte, token, J or 1."""
    if name.endswith("_seconds"):
        return "s"
    if name.endswith("_bytes") or name.startswith("weight_bytes_"):
        return "byte"
    if name.endswith("_joules"):
        return "J"
    if name == "tokens" or name.endswith("_tokens"):
        return "token"
    return "1"


def plain_value(name: str, value: object) -> np.generic | str:
    """`value` in its stored type: uint8 for bool, int64, float64 or text."""
    if isinstance(value, (bool, np.bool_)):
        return np.uint8(value)
    if isinstance(value, (int, np.integer)):
        return np.int64(value)
    if isinstance(value, (float, np.floating)):
        return np.float64(value)
    if isinstance(value, str):
        return clean_text(value)
    raise ResultError(f"'{name}' is a {type(value).__name__}; "
                      "only bool, int, float and text can be recorded")


def put_value(group: h5py.Group, name: str, value: object) -> None:
    """A scalar as an attribute; long text as a dataset of that name."""
    plain = plain_value(name, value)
    if isinstance(plain, str):
        if text_bytes(plain) > ATTRIBUTE_LIMIT_BYTES:
            group.create_dataset(name, data=plain, dtype=TEXT)
        else:
            group.attrs.create(name, plain, dtype=TEXT)
    else:
        group.attrs.create(name, plain)


def put_texts(group: h5py.Group, name: str, texts: Iterable[str]) -> None:
    """An array of texts as an attribute, or as a dataset where large."""
    cleaned = [clean_text(text) for text in texts]
    data = np.array(cleaned, dtype=object)
    if sum(text_bytes(text) + 16 for text in cleaned) > ATTRIBUTE_LIMIT_BYTES:
        group.create_dataset(name, data=data, dtype=TEXT)
    else:
        group.attrs.create(name, data, shape=(len(cleaned),), dtype=TEXT)


def put_values(group: h5py.Group, values: Mapping[str, Value | None]) -> None:
    """Every value; None means absent."""
    for name, value in values.items():
        if value is not None:
            put_value(group, name, value)


def put_ranks(place: h5py.Group | h5py.Dataset, ranks: list[RankRecord]) -> None:
    """The attribute `ranks` that names the rows."""
    if ranks and 8 * len(ranks) <= ATTRIBUTE_LIMIT_BYTES:
        place.attrs.create("ranks", np.array([rank.rank for rank in ranks], dtype="<i8"))


def put_root(file: h5py.File, file_id: str) -> None:
    """The root's attributes."""
    file.attrs.create("schema", SCHEMA, dtype=TEXT)
    file.attrs.create("schema_version", np.int64(SCHEMA_VERSION))
    file.attrs.create("complete", np.uint8(0))
    file.attrs.create("file_id", file_id, dtype=TEXT)


def put_table(group: h5py.Group, name: str, rows: list, row_type: np.dtype) -> None:
    """Dataclasses as a compound dataset; absent when there are none."""
    if not rows:
        return
    table = np.empty(len(rows), dtype=row_type)
    for column in row_type.names:
        for index, row in enumerate(rows):
            value = getattr(row, column)
            table[column][index] = clean_text(value) if isinstance(value, str) else value
    group.create_dataset(name, data=table, dtype=row_type)


def put_run(file: h5py.File, number: int, run: RunRecord) -> None:
    """/runs/<number>."""
    group = file.create_group(f"runs/{number}")
    put_values(group, {**run.attributes, "created_utc": run.created_utc})
    put_texts(group, "argv", run.argv)
    put_texts(group, "planned", run.planned)
    put_table(group, "ranks", run.ranks, RANK_TYPE)
    put_table(group, "hosts", run.hosts, HOST_TYPE)
    put_table(group, "gpus", run.gpus, GPU_TYPE)
    put_table(group, "topology", run.topology, LINK_TYPE)
    put_table(group, "networks", run.networks, NETWORK_TYPE)


def put_series(group: h5py.Group, record: CaseRecord, lists: list[list[RankSeries]]) -> None:
    """Datasets [ranks][steps] of each rank's list of series; a rank that lacks a series or is
    shorter has NaN there."""
    units: dict[str, str] = {}
    for own in lists:
        for series in own:
            units.setdefault(series.name, series.unit)
    for name, unit in units.items():
        rows = [next((series.values for series in own if series.name == name), [])
                for own in lists]
        steps = max(len(row) for row in rows)
        if steps == 0:
            continue
        table = np.full((len(rows), steps), np.nan)
        for index, row in enumerate(rows):
            table[index, :len(row)] = row
        whole = unit in INTEGER_UNITS and bool(
            ((np.abs(table) <= EXACT_FLOAT64) & (table == np.floor(table))).all())
        dataset = group.create_dataset(name, data=table.astype("<i8") if whole else table)
        dataset.attrs.create("unit", unit, dtype=TEXT)
        put_ranks(dataset, record.ranks)


def fact_column(name: str, values: list[Value | None]) -> np.ndarray:
    """One fact over the ranks: text where any is text, uint8 or int64 where all are, else float64
    with NaN for the ranks that lack it."""
    if any(isinstance(value, str) for value in values):
        return np.array(["" if v is None else clean_text(str(v)) for v in values], dtype=object)
    plain = [math.nan if value is None else plain_value(name, value) for value in values]
    kinds = {type(value) for value in plain}
    return np.array(plain, dtype=kinds.pop() if len(kinds) == 1 else np.float64)


def put_facts(group: h5py.Group, ranks: list[RankRecord]) -> None:
    """rank_facts/<name> [ranks]."""
    names = list(dict.fromkeys(name for rank in ranks for name, value in rank.facts.items()
                               if value is not None))
    if not names:
        return
    facts = group.create_group("rank_facts")
    put_ranks(facts, ranks)
    for name in names:
        column = fact_column(name, [rank.facts.get(name) for rank in ranks])
        is_text = column.dtype == object
        dataset = facts.create_dataset(name, data=column, dtype=TEXT if is_text else column.dtype)
        if not is_text:
            dataset.attrs.create("unit", unit_of(name), dtype=TEXT)
        put_ranks(dataset, ranks)


def check_case(record: CaseRecord) -> None:
    """Refuses names and statuses that the schema does not know."""
    for part in (record.suite, record.name):
        if not part or "/" in part or part in (".", "..", "runs"):
            raise ResultError(f"'{part}' cannot name a suite or a case")
    if record.status not in STATUSES:
        raise ResultError(f"{record.name}: status '{record.status}' is none of "
                          + ", ".join(STATUSES))


def put_case(file: h5py.File, run_number: int, record: CaseRecord) -> None:
    """/<suite>/<case>/<repeat>. A later value replaces an earlier one of the same name: results
    over settings, and the row's own attributes over both."""
    check_case(record)
    path = f"{record.suite}/{record.name}/{record.repeat}"
    if path in file:
        raise ResultError(f"{path} is already recorded")
    group = file.create_group(path)
    results = {name: value for name, value in record.results.items() if value is not None}
    values = {**record.settings, **results, "run": run_number, "status": record.status,
              "reason": record.reason}
    put_values(group, {name: value for name, value in values.items() if name not in RESERVED})
    put_texts(group, "result_names", sorted(results))
    put_ranks(group, record.ranks)
    if record.checks:
        put_values(group.create_group("check"), record.checks)
    if record.warmup:
        group.create_dataset("warmup", data=np.array(record.warmup, dtype=np.uint8))
    put_series(group, record, [rank.series for rank in record.ranks])
    if any(rank.telemetry for rank in record.ranks):
        put_series(group.create_group("telemetry"), record,
                   [rank.telemetry for rank in record.ranks])
    put_facts(group, record.ranks)
