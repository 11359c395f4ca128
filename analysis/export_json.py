"""Result files as JSON and back, exactly: every number keeps its bits and its type.

NaN (unknown) is null; infinities are the texts "inf" and "-inf" in arrays of numbers.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from results_model import Case, Results, Run, Series
from results_records import ResultError

FORMAT, VERSION = "trainsuite-export", 1
RUN_TABLES = ("gpus", "networks")  # those with real numbers


def dumps(files: list[Results]) -> str:
    """One JSON text of all files."""
    document = {"format": FORMAT, "version": VERSION, "files": [_file(file) for file in files]}
    return json.dumps(document, allow_nan=False, ensure_ascii=True, separators=(",", ":"))


def loads(text: str) -> list[Results]:
    """What `dumps` was given. Raises ResultError for JSON that is not ours."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ResultError(f"not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ResultError(f"this JSON is no {FORMAT}")
    if document.get("version") != VERSION:
        raise ResultError(f"{FORMAT} version {document.get('version')}, this program reads "
                          f"{VERSION}")
    return [_to_file(one) for one in document["files"]]


def _number(value: float | None) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def _array(values: np.ndarray) -> dict[str, Any]:
    """Type and values of an array; rows stay rows."""
    kind = "text" if values.dtype == object else values.dtype.name

    def plain(value: Any) -> Any:
        return [plain(one) for one in value] if isinstance(value, list) else _number(value)

    return {"type": kind, "values": plain(values.tolist())}


def _to_array(stored: dict[str, Any]) -> np.ndarray:
    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(one) for one in value]
        return math.nan if value is None else value

    if stored["type"] == "text":
        return np.array(stored["values"], dtype=object)
    values = plain(stored["values"])
    return np.array(values, dtype=stored["type"]) if stored["type"].startswith("float") or values \
        else np.empty(0, dtype=stored["type"])


def _series(series: Series) -> dict[str, Any]:
    return {"unit": series.unit, "ranks": np.asarray(series.ranks).tolist(),
            **_array(series.values)}


def _to_series(stored: dict[str, Any]) -> Series:
    return Series(_to_array(stored), stored["unit"], np.array(stored["ranks"], dtype=np.int64))


def _plain(value: Any) -> Any:
    """A scalar, or a list of them; what JSON cannot say as {"float": text}."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    return value


def _from_plain(stored: Any) -> Any:
    if isinstance(stored, list):
        return [_from_plain(one) for one in stored]
    return float(stored["float"]) if isinstance(stored, dict) else stored


def _values(values: dict[str, Any]) -> dict[str, Any]:
    """Scalars by name."""
    return {name: _plain(value) for name, value in values.items()}


def _to_values(stored: dict[str, Any]) -> dict[str, Any]:
    return {name: _from_plain(value) for name, value in stored.items()}


def _file(file: Results) -> dict[str, Any]:
    return {"path": file.path, "complete": file.complete,
            "runs": [_run(run) for run in file.runs],
            "cases": [_case(case) for case in file.cases]}


def _to_file(stored: dict[str, Any]) -> Results:
    runs = [_to_run(run) for run in stored["runs"]]
    return Results(stored["path"], stored["complete"], runs,
                   [_to_case(case) for case in stored["cases"]])


def _run(run: Run) -> dict[str, Any]:
    """A table's unknown numbers are NaN, as a row's scalars may be."""
    tables = {name: [_values(row) for row in getattr(run, name)] for name in RUN_TABLES}
    return {**vars(run), "attributes": _values(run.attributes), **tables}


def _to_run(stored: dict[str, Any]) -> Run:
    tables = {name: [_to_values(row) for row in stored.get(name, [])] for name in RUN_TABLES}
    return Run(**{**stored, "attributes": _to_values(stored["attributes"]), **tables})


def _case(case: Case) -> dict[str, Any]:
    stored = {name: getattr(case, name) for name in ("suite", "name", "repeat", "run", "status",
                                                     "reason")}
    for name in ("settings", "results", "checks"):
        stored[name] = _values(getattr(case, name))
    stored["warmup"] = case.warmup.tolist()
    stored["ranks"] = case.ranks.tolist()
    stored["series"] = {name: _series(one) for name, one in case.series.items()}
    stored["rank_facts"] = {name: _series(one) for name, one in case.facts.items()}
    stored["telemetry"] = {name: _series(one) for name, one in case.telemetry.items()}
    return stored


def _to_case(stored: dict[str, Any]) -> Case:
    values = {name: _to_values(stored[name]) for name in ("settings", "results", "checks")}
    return Case(*(stored[name] for name in ("suite", "name", "repeat", "run", "status", "reason")),
                **values, series={name: _to_series(one) for name, one in stored["series"].items()},
                warmup=np.array(stored["warmup"], dtype=bool),
                ranks=np.array(stored["ranks"], dtype=np.int64),
                facts={name: _to_series(one) for name, one in stored["rank_facts"].items()},
                telemetry={name: _to_series(one)
                           for name, one in stored.get("telemetry", {}).items()})
