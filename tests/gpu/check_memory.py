#!/usr/bin/env python3
"""Memory rows on a GPU: a case starts clean, so its peak does not depend on its place in the plan.

    python3 tests/gpu/check_memory.py --binary build/trainsuite
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py

SHORT = ["--size", "124m", "--steps", "3", "--warmup", "2", "--attention", "flash"]


def rows(binary: str, folder: Path, name: str, cases: list[str]) -> dict[str, dict[str, object]]:
    """Attributes of every case of one run."""
    path = folder / f"{name}.h5"
    flags = [word for case in cases for word in ("--case", case)]
    subprocess.run(["mpirun", "-q", "-np", "1", binary, "ddp", *SHORT, *flags, "--out", str(path)],
                   check=True, stdout=subprocess.DEVNULL)
    with h5py.File(path) as file:
        return {case: dict(file[f"ddp/124m-{case}/0"].attrs) for case in cases}


def main() -> int:
    """Compares peaks of the same work at different places; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    binary = parser.parse_args().binary
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        together = rows(binary, Path(folder), "together",
                        ["1gpu", "1gpu-accumulate4", "independent", "plain", "both"])
        for case, row in together.items():
            alone = rows(binary, Path(folder), case, [case])[case]
            for key in ("peak_allocated_bytes", "case_peak_allocated_bytes"):
                print(f"{case:18} {key:26} {row[key]:>14,} among others {alone[key]:>14,} alone")
                if row[key] != alone[key]:
                    failures.append(f"{case}: {key} depends on the cases before it")
            parameters = int(row["parameters_total"])
            least = 4 * parameters + int(row["optimizer_bytes"]) + 2 * parameters
            if int(row["peak_allocated_bytes"]) < least:
                failures.append(f"{case}: peak below weights, copies and optimizer state")
        if together["1gpu"]["peak_allocated_bytes"] != together["independent"]["peak_allocated_bytes"]:
            failures.append("independent on one rank is 1gpu, but its peak differs")
    print("\n".join(failures) or "memory: all equal")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
