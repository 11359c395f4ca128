"""check_compiled.py FILE...: compiled and graph rows have the losses of their eager rows.

Rows are paired by name: X-compile and X-graph with X, and compile-X and graph-X with eager-X. Prints a
line a pair and exits with 1 where one is missing, not ok, or further off than bf16 explains.
"""

from __future__ import annotations

import sys

import h5py
import numpy as np

LARGEST_DIFFERENCE = 0.02  # of a loss near 11, over a few dozen steps in bf16


def eager_name(name: str) -> str | None:
    """The row that `name` is compared with; None for eager rows."""
    size, _, recipe = name.partition("-")
    for kind in ("compile", "graph"):
        if recipe.startswith(f"{kind}-"):
            return f"{size}-eager-{recipe.removeprefix(f'{kind}-')}"
        if recipe.endswith(f"-{kind}"):
            return f"{size}-{recipe.removesuffix(f'-{kind}')}"
    return None


def check(file: h5py.File) -> int:
    """Prints each pair; the number that fail."""
    failed = 0
    for suite in (key for key in file if key != "runs"):
        for name in file[suite]:
            other = eager_name(name)
            if other is None:
                continue
            row = file[suite][name]["0"]
            if other not in file[suite] or row.attrs["status"] != "ok":
                print(f"FAILED  {name}: {row.attrs['status']} {row.attrs['reason']}")
                failed += 1
                continue
            if suite != "finetune" and row.attrs["loss_kernel"] != "fused":
                print(f"FAILED  {name}: its head and loss are {row.attrs['loss_kernel']}, not fused")
                failed += 1
                continue
            difference = np.abs(row["loss"][:] - file[suite][other]["0"]["loss"][:]).max()
            bad = not difference < LARGEST_DIFFERENCE
            failed += bad
            print(f"{'FAILED' if bad else 'ok':7} {name}: losses within {difference:.5f} of {other}")
    return failed


def main() -> int:
    """Exit status."""
    failed = 0
    for path in sys.argv[1:]:
        with h5py.File(path) as file:
            failed += check(file)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
