"""What differs between two measurements of one case, besides the figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpus import page_name
from results_model import Case, Results, Run

# Rows that differ in one of these did other work: their ratio says nothing about speed.
SAME_WORK = ("suite", "size", "micro_batch", "accumulate", "sequence", "vocabulary",
             "tokens_per_step", "dry_run", "recipe")
NOT_SETTINGS = ("out", "result_names", "ranks", "repeats", "resume", "retry")
OF_RUNS = ("trainsuite_version", "git_commit", "git_dirty", "torch_version", "cuda_version",
           "driver_version", "nccl_version", "mpi_version", "python_version",
           "transformers_version", "peft_version", "bitsandbytes_version", "affinity",
           "torch_threads")


def run_of(file: Results, case: Case) -> Run | None:
    """The invocation that measured the row."""
    return next((run for run in file.runs if run.number == case.run), None)


def devices(run: Run | None, case: Case) -> str:
    """The cards of a row: "4x RTX A6000", or "CPU"; empty where nothing is known."""
    if run is None or not run.ranks:
        return ""
    names: dict[str, int] = {}
    for rank in run.ranks:
        if len(case.ranks) == 0 or rank["rank"] in case.ranks:
            name = page_name(rank["device_name"]) or "CPU"
            names[name] = names.get(name, 0) + 1
    return " + ".join(f"{count}x {name}" for name, count in sorted(names.items()))


def hosts(run: Run | None) -> str:
    """The hosts of a run with their CPUs."""
    if run is None:
        return ""
    words = [f"{host['host']} ({host['cpu_model'] or 'CPU not known'})" for host in run.hosts]
    return ", ".join(words) or ", ".join(sorted({rank["host"] for rank in run.ranks}))


def facts_of(file: Results, case: Case) -> dict[str, Any]:
    """Everything that a row was measured with, by name."""
    run = run_of(file, case)
    facts = {key: value for key, value in case.settings.items() if key not in NOT_SETTINGS}
    if run is not None:
        facts |= {key: run.attributes[key] for key in OF_RUNS if key in run.attributes}
        facts |= {key: value for key, value in run.attributes.items() if key.startswith("env_")
                  and not key.startswith("env_SLURM_")}
    facts["GPUs"], facts["host"] = devices(run, case), hosts(run)
    facts["ranks"] = len(case.ranks)
    return facts


def differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """(name, A's, B's) of what both know and differs."""
    return [(key, a[key], b[key]) for key in sorted(a.keys() & b.keys())
            if a[key] != b[key] and not (a[key] == "" or b[key] == "")]


def one_sided(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Names that A knows and B does not."""
    return sorted(key for key in a.keys() - b.keys())


def other_work(differences: list[tuple[str, Any, Any]]) -> list[str]:
    """The differences that make it other work, in words."""
    return [f"{key} {left} and {right}" for key, left, right in differences if key in SAME_WORK]
