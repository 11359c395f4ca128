"""Fine-tuning rows in CUDA graphs beside their eager rows.

    python3 tests/gpu/check_finetune_graph.py --again again.h5 FILE...   # losses
    python3 tests/gpu/check_finetune_graph.py --rates FILE...

Losses: every X-graph has those of X in the same file, of the same batches; the first step's to the
last bit. Attention's backward adds in no fixed order, so that later ones differ as two eager runs do:
--again holds a case once more, whose distance is printed. Exit status 1 where a pair is missing, a row
is not ok, no micro-batch was replayed, or losses are further apart than 0.01.
"""

import argparse
import sys

import h5py
import numpy as np

LARGEST_DIFFERENCE = 0.01  # of losses near 12, in bf16
SUITE = "finetune"


def losses(case: h5py.Group) -> np.ndarray:
    """[steps] of rank 0."""
    return case["0"]["loss"][0]


def check(file: h5py.File) -> int:
    """Prints each pair; the number that fail."""
    failed = pairs = 0
    for name in file[SUITE]:
        if not name.endswith("-graph"):
            continue
        row, other = file[SUITE][name]["0"], name.removesuffix("-graph")
        pairs += 1
        if row.attrs["status"] != "ok" or other not in file[SUITE]:
            print(f"FAILED  {name}: {row.attrs['status']} {row.attrs.get('reason', '')}")
            failed += 1
            continue
        away = np.abs(losses(file[SUITE][name]) - losses(file[SUITE][other]))
        bad = away[0] != 0 or not away.max() < LARGEST_DIFFERENCE
        bad = bad or row.attrs["graph_micro_batches"] == 0
        failed += bad
        print(f"{'FAILED' if bad else 'ok':7} {name}: first loss {away[0]:.7f} and all within "
              f"{away.max():.5f} of {other}; {row.attrs['graphs']} graphs, "
              f"{row.attrs['graph_micro_batches']} micro-batches replayed, "
              f"{row.attrs['eager_micro_batches']} eager")
    return failed + (pairs == 0)


def show_rates(file: h5py.File) -> None:
    """Non-padding tokens/s of the median step and of the whole training, and peaks."""
    for name, case in file[SUITE].items():
        row = case["0"]
        if row.attrs["status"] != "ok":
            print(f"{name}: {row.attrs['status']} {row.attrs.get('reason', '')}")
            continue
        tokens, seconds = row["effective_tokens"][0], row["step_seconds"][0]
        print(f"{name}: {np.median(tokens / seconds):,.0f} tokens/s (median step), "
              f"{tokens.sum() / row.attrs['train_seconds']:,.0f} (all), step "
              f"{1e3 * np.median(seconds):.1f} ms, host {1e3 * np.median(row['host_seconds'][0]):.1f}"
              f" ms, padded {row['tokens'][0].sum() / tokens.sum():.2f} x, peak "
              f"{row.attrs['peak_allocated_bytes'] / 2**30:.2f} GiB allocated, "
              f"{row.attrs['peak_reserved_bytes'] / 2**30:.2f} reserved")


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again")
    parser.add_argument("--rates", action="store_true")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    failed = 0
    for path in options.files:
        with h5py.File(path) as file:
            if options.rates:
                show_rates(file)
            else:
                failed += check(file)
            if options.again and path == options.files[-1]:
                with h5py.File(options.again) as again:
                    for name in again[SUITE]:
                        away = np.abs(losses(again[SUITE][name]) - losses(file[SUITE][name])).max()
                        print(f"        {name}, eager twice: losses within {away:.5f}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
