"""Peaks of fine-tuning rows: measured beside foretold, logits in chunks beside whole.

    python3 tests/gpu/check_finetune_memory.py default.h5 whole-logits.h5

Exit status 1 where a peak is more than 5% from what was foretold, or chunks save nothing.
"""

import argparse
import sys

import h5py

GIB = float(1 << 30)


def peaks(path: str) -> dict[str, tuple[float, float]]:
    """Measured and foretold GiB of every case that ended well."""
    with h5py.File(path) as file:
        rows = {name: dict(case["0"].attrs) for name, case in file["finetune"].items()}
    return {name: (row["peak_allocated_bytes"] / GIB, row["predicted_bytes"] / GIB)
            for name, row in rows.items() if row["status"] == "ok"}


def main() -> int:
    """Prints a line a case; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("chunks")
    parser.add_argument("whole")
    options = parser.parse_args()
    chunks, whole = peaks(options.chunks), peaks(options.whole)
    failures = 0
    for path, rows in ((options.chunks, chunks), (options.whole, whole)):
        for name, (measured, foretold) in rows.items():
            near = abs(measured - foretold) <= 0.05 * measured
            saves = path == options.whole or name not in whole or measured < whole[name][0]
            failures += not (near and saves)
            print(f"{path} {name}: {measured:.2f} GiB, foretold {foretold:.2f}"
                  f"{'' if near else ' FAILED: not within 5%'}"
                  f"{'' if saves else ' FAILED: chunks save nothing'}")
    return 1 if failures or not chunks else 0


if __name__ == "__main__":
    sys.exit(main())
