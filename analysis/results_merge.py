"""trainsuite-results merge: several result files, or the pieces of an array job, as one.

Groups are copied as they lie, so that nothing is lost or rounded. Rows of one case become its
repeats.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field

import h5py
import numpy as np

from results_durable import create_exclusively
from results_layout import put_root
from results_model import Case, Results
from results_reader import load, open_checked, part_paths
from results_records import ResultError
from results_writer import check_creatable, new_image

# Repeats of one case agree in these; where they do not, a median over them means nothing.
ONE_CASE = ("implementation", "size", "recipe", "micro_batch", "accumulate", "sequence",
            "vocabulary", "precision", "compile_mode", "dry_run")


@dataclass
class _Plan:
    """Which row comes to lie where: (suite, case) -> the rows of all files in order."""

    run_offsets: list[int] = field(default_factory=list)
    targets: dict[tuple[int, str], str] = field(default_factory=dict)  # (file, label) -> path
    first: dict[tuple[str, str], tuple[Case, Results]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    rows: dict[bytes, str] = field(default_factory=dict)  # measured times -> file that holds them


def merge(paths: list[str], out: str) -> tuple[int, int]:
    """Writes `out` exclusively; returns (runs, rows).

    Raises ResultError where a file is given twice, cannot be read, or holds other work under the
    name of a case of another file.
    """
    check_creatable(out)
    files = [load(path) for path in paths]
    _refuse_twice(paths)
    plan = _plan(files)
    file_id = f"merged-{'-'.join(_file_id(path)[:8] for path in paths)}"[:64]

    def fill(target: h5py.File) -> None:
        put_root(target, file_id)
        for number, path in enumerate(paths):
            _copy(number, path, plan, target)
        target.attrs.modify("complete", int(_complete(files)))

    if not create_exclusively(out, new_image(fill)):
        check_creatable(out)
    return sum(len(file.runs) for file in files), len(plan.targets)


def _file_id(path: str) -> str:
    with open_checked(path) as file:
        return str(file.attrs.get("file_id", ""))


def _refuse_twice(paths: list[str]) -> None:
    seen: dict[str, str] = {}
    for path in paths:
        identity = _file_id(path) or path
        if identity in seen:
            raise ResultError(f"{path} is the same result file as {seen[identity]}; "
                              "its rows would count twice")
        seen[identity] = path


def _plan(files: list[Results]) -> _Plan:
    plan, runs = _Plan(), 0
    for number, file in enumerate(files):
        plan.run_offsets.append(runs)
        runs += 1 + max((run.number for run in file.runs), default=-1)
        for case in file.cases:
            _check_same_case(plan, case, file)
            _refuse_known_row(plan, case, file)
            repeat = case.repeat
            while f"{case.suite}/{case.name}/{repeat}" in plan.used:
                repeat += 1
            target = f"{case.suite}/{case.name}/{repeat}"
            plan.used.add(target)
            plan.targets[number, case.label] = target
    return plan


def _device(case: Case, file: Results) -> str:
    run = next((run for run in file.runs if run.number == case.run), None)
    names = {one["device_name"] for one in (run.ranks if run else [])
             if one["rank"] in case.ranks}
    return ", ".join(sorted(names))


def _check_same_case(plan: _Plan, case: Case, file: Results) -> None:
    if case.status != "ok":
        return
    key = case.suite, case.name
    if key not in plan.first:
        plan.first[key] = case, file
        return
    other, other_file = plan.first[key]
    pairs = [(name, other.value(name), case.value(name)) for name in ONE_CASE]
    pairs.append(("GPU", _device(other, other_file), _device(case, file)))
    pairs.append(("number of ranks", len(other.ranks), len(case.ranks)))
    for name, left, right in pairs:
        if left != right:
            raise ResultError(f"{case.name} is not the same work in {other_file.path} and "
                              f"{file.path}: {name} {left} and {right}; merge them into files "
                              "of their own")


def _refuse_known_row(plan: _Plan, case: Case, file: Results) -> None:
    """A piece beside a file that it was merged into: clocks never give the same times twice."""
    times = case.series["step_seconds"].values if "step_seconds" in case.series else np.empty(0)
    if len(np.unique(times[~np.isnan(times)])) < 4:
        return
    identity = f"{case.suite}/{case.name} ".encode() + times.tobytes()
    if plan.rows.setdefault(identity, file.path) != file.path:
        raise ResultError(f"{case.label} of {file.path} is also in {plan.rows[identity]}; "
                          "it would count twice")


def _complete(files: list[Results]) -> bool:
    found = {case.name for file in files for case in file.cases}
    return all(name in found for file in files for run in file.runs for name in run.planned)


def _copy(number: int, path: str, plan: _Plan, target: h5py.File) -> None:
    """The runs and rows of one file, its parts included."""
    offset = plan.run_offsets[number]
    for source_path in [path, *part_paths(path)]:
        with open_checked(source_path) as source:
            for run in source.get("runs", {}):
                name = f"runs/{int(run) + offset}"
                if name not in target:
                    source.copy(f"runs/{run}", target.require_group("runs"),
                                name=str(int(run) + offset))
            _copy_rows(number, source, plan, target, offset)


def _copy_rows(number: int, source: h5py.File, plan: _Plan, target: h5py.File,
               offset: int) -> None:
    for (of, label), place in plan.targets.items():
        if of != number or label not in source or place in target:
            continue
        group, repeat = place.rsplit("/", 1)
        source.copy(label, target.require_group(group), name=repeat)
        row = target[place]
        row.attrs.modify("run", int(row.attrs["run"]) + offset)


def command(paths: list[str], out: str) -> int:
    """Merges and says what lies in the new file."""
    runs, rows = merge(paths, out)
    print(f"{out}: {rows} row{'' if rows == 1 else 's'} of {runs} run{'' if runs == 1 else 's'}")
    return 0


def register(commands: argparse._SubParsersAction) -> None:
    """Adds `merge` to trainsuite-results."""
    parser = commands.add_parser(
        "merge", help="several files, or the pieces of an array job, as one new file")
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("-o", "--out", required=True, metavar="OUT")
    parser.set_defaults(work=lambda options: command(options.files, options.out))
