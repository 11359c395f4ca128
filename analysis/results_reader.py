"""Reads result files, of finished and of killed runs, into numpy arrays with units."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from results_model import Case, Results, Run, Series
from results_records import SCHEMA, SCHEMA_VERSION, ResultError

READ_ATTEMPTS = 5
NOT_A_VALUE = ("ranks", "result_names", "run", "status", "reason")


def load(path: str | os.PathLike[str]) -> Results:
    """Reads `path` and, after a killed run, its part files.

    Raises ResultError for a missing, foreign or damaged file and for an unknown schema version.
    """
    path = os.fspath(path)
    for _ in range(READ_ATTEMPTS):
        before = _inode(path)
        try:
            results = _load_once(path)
        except FileNotFoundError:
            continue  # parts that a run under way has just joined
        if _inode(path) == before:
            return results
    raise ResultError(f"{path} changes faster than it can be read; try again")


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError as error:
        raise ResultError(f"cannot read {path}: {error.strerror}") from error


def open_checked(path: str) -> h5py.File:
    """Opens a file of our schema for reading, without HDF5's locks."""
    if os.path.isdir(path):
        raise ResultError(f"{path} is a folder, not a result file")
    if not os.access(path, os.R_OK) and os.path.exists(path):
        raise ResultError(f"cannot read {path}: Permission denied")
    with open(path, "rb") as probe:
        signature = probe.read(8)
    if signature != b"\x89HDF\r\n\x1a\n":
        raise ResultError(f"{path} is not an HDF5 file")
    try:
        file = open_without_locks(path)
    except OSError as error:
        raise ResultError(f"{path} is a damaged HDF5 file: {error}") from error
    try:
        check_schema(path, file)
    except BaseException:
        file.close()
        raise
    return file


def open_without_locks(path: str) -> h5py.File:
    """A file system may lack locks, and reading needs none. Raises OSError."""
    try:
        return h5py.File(path, "r", locking=False)
    except OSError as error:
        if "locking flag" not in str(error):
            raise
        return h5py.File(path, "r")  # this process has it open with locks, and HDF5 wants them alike


def check_schema(path: str, file: h5py.File) -> None:
    """Refuses other schemas and versions, in words."""
    schema = file.attrs.get("schema")
    if not isinstance(schema, str) or schema != SCHEMA:
        raise ResultError(f"{path} is not a {SCHEMA} result file: its root has no attribute "
                          f"schema = {SCHEMA}")
    version = file.attrs.get("schema_version")
    if version is None or int(version) != SCHEMA_VERSION:
        raise ResultError(f"{path} has schema version {version}, this program reads version "
                          f"{SCHEMA_VERSION}; use the {SCHEMA} release that wrote it")


def part_paths(path: str) -> list[str]:
    """The part files of a run that was killed before it joined them, oldest first."""
    folder = Path(path + ".parts")
    if not folder.is_dir():
        return []
    parts = [part for part in folder.iterdir() if part.suffix == ".h5" and part.stem.isdecimal()]
    return [str(part) for part in sorted(parts, key=lambda part: int(part.stem))]


def _load_once(path: str) -> Results:
    with open_checked(path) as file:
        results = Results(path, bool(file.attrs.get("complete", 0)), _read_runs(path, file),
                          _read_cases(path, file))
        file_id = file.attrs.get("file_id")
    known = {case.label for case in results.cases}
    for part in part_paths(path):
        with open_checked(part) as file:
            if file.attrs.get("file_id") != file_id:
                raise ResultError(f"{part} belongs to another result file; "
                                  f"remove it to read {path}")
            results.cases += [case for case in _read_cases(part, file) if case.label not in known]
    planned = {name: index for run in reversed(results.runs)
               for index, name in enumerate(run.planned)}
    results.cases.sort(key=lambda case: (case.suite, planned.get(case.name, len(planned)),
                                         case.name, case.repeat))
    return results


def _plain(value: Any) -> Any:
    """A Python value: uint8 was a bool."""
    if isinstance(value, np.uint8):
        return bool(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value]
    return value


def _values(group: h5py.Group) -> dict[str, Any]:
    """All attributes, and the datasets that hold what is too large for one."""
    values = {name: _plain(value) for name, value in group.attrs.items()}
    for name, item in group.items():
        if isinstance(item, h5py.Dataset) and h5py.check_string_dtype(item.dtype):
            values[name] = _plain(item[()])
    return values


def _table(group: h5py.Group, name: str) -> list[dict[str, Any]]:
    if name not in group:
        return []
    rows = group[name][()]
    return [{column: _plain(row[column]) for column in rows.dtype.names} for row in rows]


def _read_runs(path: str, file: h5py.File) -> list[Run]:
    runs = []
    for number in sorted(file.get("runs", {}), key=int):
        group = file[f"runs/{number}"]
        values = _values(group)
        runs.append(Run(int(number), values.pop("created_utc", ""), values.pop("argv", []),
                        values.pop("planned", []), values, _table(group, "ranks"),
                        _table(group, "hosts"), _table(group, "topology"), _table(group, "gpus"),
                        _table(group, "networks")))
    return runs


def _read_series(item: h5py.Dataset, ranks: np.ndarray) -> Series:
    values = item[()]
    if h5py.check_string_dtype(item.dtype):
        values = np.array([_plain(value) for value in values], dtype=object)
    elif values.dtype == np.uint8:
        values = values.astype(bool)
    return Series(values, item.attrs.get("unit", ""), np.asarray(item.attrs.get("ranks", ranks)))


def _read_case(path: str, suite: str, name: str, repeat: str, group: h5py.Group) -> Case:
    values = _values(group)
    for needed in ("status", "run"):
        if needed not in values:
            raise ResultError(f"{path}: {suite}/{name}/{repeat} lacks its attribute {needed}")
    result_names = set(values.get("result_names", []))
    ranks = np.array(values.get("ranks", []), dtype=np.int64)
    scalars = {key: value for key, value in values.items() if key not in NOT_A_VALUE}
    series = {key: _read_series(item, ranks) for key, item in group.items()
              if isinstance(item, h5py.Dataset) and item.ndim == 2}
    facts = {key: _read_series(item, ranks) for key, item in group.get("rank_facts", {}).items()}
    telemetry = {key: _read_series(item, ranks) for key, item in group.get("telemetry", {}).items()}
    warmup = group["warmup"][()].astype(bool) if "warmup" in group else np.empty(0, dtype=bool)
    return Case(
        suite, name, int(repeat), values["run"], values["status"], values.get("reason", ""),
        settings={key: value for key, value in scalars.items() if key not in result_names},
        results={key: value for key, value in scalars.items() if key in result_names},
        checks=_values(group["check"]) if "check" in group else {},
        series=series, warmup=warmup, ranks=ranks, facts=facts, telemetry=telemetry)


def _read_cases(path: str, file: h5py.File) -> list[Case]:
    return [_read_case(path, suite, name, repeat, file[f"{suite}/{name}/{repeat}"])
            for suite in file if suite != "runs"
            for name in file[suite]
            for repeat in file[f"{suite}/{name}"]]
