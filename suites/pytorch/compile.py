#!/usr/bin/env python3
"""The compile suite in PyTorch and transformers: the yardstick for `trainsuite compile`.

    python suites/pytorch/compile.py --case '*-sdpa'

Each case runs in a process and with compile caches of its own, so every first step is a cold one.
"""

from __future__ import annotations

import argparse
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import record
import session
from compile_cases import TORCH_MODES, Case, parser, plan
from flags import UsageError
from launch import World, find_ops_library, leave
from measure import Measured
from results import CaseRecord

SUITE = "compile"
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_",
                      "OMPI_", "PMIX_")


class Processes:
    """Runs cases, each in a process of its own."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options

    def run_case(self, case: Case, world: World) -> Measured:
        """On rank 0. Raises what the case's process met, TimeoutError, or session.Skipped."""
        if case.graphs and not world.cuda:
            raise session.Skipped(f"{TORCH_MODES[case.execution]} captures CUDA graphs, and there "
                                  "is no GPU")
        with tempfile.TemporaryDirectory(prefix="trainsuite-compile-") as folder:
            measured = self._run(case, Path(folder))
            if case.execution != "eager":
                measured.facts["first_step_seconds_cold"] = measured.facts["first_step_seconds"]
                if self.options.warm:
                    again = self._run(replace(case, steps=1, warmup=0), Path(folder))
                    measured.facts["first_step_seconds_warm"] = again.facts["first_step_seconds"]
        return measured

    def _run(self, case: Case, folder: Path) -> Measured:
        """What one process measured."""
        question, answer = folder / "case", folder / "outcome"
        answer.unlink(missing_ok=True)
        library = str(find_ops_library(self.options.ops_library))
        question.write_bytes(pickle.dumps((case, self.options.device, self.options.memory_limit,
                                           library)))
        script = str(Path(__file__).with_name("compile_case.py"))
        status = self._wait([sys.executable, script, str(question), str(answer)],
                            environment(folder))
        if not answer.exists():
            ending = f"signal {-status}" if status < 0 else f"status {status}"
            raise session.CaseFailed(
                f"the case's process ended with {ending} and without a result"
            )
        result = pickle.loads(answer.read_bytes())  # written by our own process
        if isinstance(result, BaseException):
            raise result
        return result

    def _wait(self, command: list[str], variables: dict[str, str]) -> int:
        """Exit status; the whole process group ends with the time limit or with us."""
        process = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL,
                                   stdout=sys.stderr, start_new_session=True)
        try:
            return process.wait(timeout=self.options.time_limit)
        except subprocess.TimeoutExpired:
            raise TimeoutError(
                f"the case took longer than its {self.options.time_limit:g} s (--time-limit)"
            ) from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def environment(folder: Path) -> dict[str, str]:
    """A lone process with empty caches of Inductor, Triton and CUDA."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(LAUNCHER_VARIABLES)}
    return kept | {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "CUDA_CACHE_PATH": str(folder / "cuda"),
    }


def check(options: argparse.Namespace, world: World) -> None:
    """A memory limit has been checked; nothing else depends on the machine."""
    if options.link != "auto":
        raise UsageError("--link: the compile suite communicates nothing")


def settings(case: Case, world: World, options: argparse.Namespace) -> dict[str, Any]:
    """Flags and derived settings of a row."""
    batch = case.micro_batch * case.accumulate
    return record.common_settings(SUITE, case, world, options) | {
        "compile_mode": case.execution,
        "execution": case.execution,
        "torch_compile_mode": TORCH_MODES[case.execution] or "none",
        "communicator": "none",
        "own_process": True,
        "one_rank": True,
        "communicates": False,
        "steps": case.steps,
        "warmup": case.warmup,
        "micro_batch": case.micro_batch,
        "accumulate": case.accumulate,
        "sequence": case.sequence,
        "vocabulary": case.vocabulary,
        "precision": case.precision,
        "attention": case.attention,
        "learning_rate": case.learning_rate,
        "wire": "none",
        "time_limit_seconds": options.time_limit,
        "tokens_per_step": batch * case.sequence,
        "global_batch": batch,
    }


def finish(row: CaseRecord, case: Case, ranks: list[Measured]) -> None:
    """The kernels that were chosen."""
    kernel = str(row.results.pop("attention_kernel"))
    row.settings |= {"attention": kernel, "kernels": f"attention={kernel} loss=reference"}


def main() -> int:
    """Runs the chosen cases; returns the exit status."""
    options = parser().parse_args()
    suite = session.Suite(
        SUITE, plan, check, Processes(options).run_case, settings, finish,
        {"transformers_version": version("transformers")},
    )
    return session.main(suite, options)


if __name__ == "__main__":
    leave(main())
