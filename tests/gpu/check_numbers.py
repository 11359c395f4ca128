#!/usr/bin/env python3
"""Whether the numbers can be trusted, on a GPU: check_numbers.py --binary build/trainsuite
[--ranks N] [--only NAME]...

ceilings    bf16 products and device copies within 3% of PyTorch's own, in this one command
energy      the driver's counter within 5% of the integral of power samples over a load of 30 s
telemetry   sampling changes the median step by 0.3% at most; five samples a second or more
overhead    --self-check: instrumentation costs 0.5% at most at 124M
states      the table gpus says what nvidia-smi says, topology what `nvidia-smi topo -m` says
bus         collectives over N ranks: correct results, bus bandwidth (printed, judged by the reader)
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "analysis"))
import results  # noqa: E402
import results_ceilings  # noqa: E402

CEILING_TOLERANCE, ENERGY_TOLERANCE = 0.03, 0.05
TELEMETRY_LIMIT, OVERHEAD_LIMIT = 0.003, 0.005
REPETITIONS, WARMUP = 50, 10
trapezoid = getattr(np, "trapezoid", None) or np.trapz  # its name before numpy 2


class Checks:
    """Runs the program and tells what holds."""

    def __init__(self, binary: str, ranks: int, folder: Path) -> None:
        self.binary, self.ranks, self.folder = binary, ranks, folder
        self.failed = 0

    def judge(self, name: str, holds: bool, text: str) -> None:
        """One line a check."""
        print(f"{'ok     ' if holds else 'FAILED '} {name}: {text}", flush=True)
        self.failed += not holds

    def run(self, name: str, *flags: str, ranks: int = 1) -> results.Results:
        """The file of one run."""
        out = self.folder / f"{name}.h5"
        launcher = ["mpirun", "-q", "-np", str(ranks)] if ranks > 1 else []
        subprocess.run([*launcher, self.binary, *flags, "--out", str(out)], check=True,
                       stdout=subprocess.DEVNULL, timeout=580)
        return results.load(str(out))

    def ceilings(self) -> None:
        """Ours first, then PyTorch's, then ours again: the clocks drift."""
        flags = ("ceilings", "--case", "matmul-bf16", "--case", "copy-device", "--steps",
                 str(REPETITIONS), "--warmup", str(WARMUP))
        first = self.run("ceilings-1", *flags)
        # In a process of its own: a context that stays would be another process on the GPU.
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            theirs = {"matmul-bf16": pool.apply(torch_products),
                      "copy-device": pool.apply(torch_copies)}
        second = self.run("ceilings-2", *flags)
        for recipe, rates in theirs.items():
            ours = [results_ceilings.best(file.case(f"full-{recipe}")).rate
                    for file in (first, second)]
            gap = np.mean(ours) / max(rates.values()) - 1
            self.judge(f"ceiling {recipe}", abs(gap) <= CEILING_TOLERANCE,
                       f"ours {ours[0]:.4g} and {ours[1]:.4g}, PyTorch {max(rates.values()):.4g} "
                       f"({gap:+.2%})")

    def energy(self) -> None:
        """A loop of about 30 s on an H200."""
        case = self.run("energy", "ddp", "--size", "124m", "--case", "1gpu", "--steps",
                        "1700").cases[0]
        seconds = case.telemetry["sample_seconds"].values[0]
        power = case.telemetry["power_watts"].values[0]
        begin, end = (case.facts[f"telemetry_loop_{edge}_seconds"].values[0]
                      for edge in ("begin", "end"))
        inside = (seconds >= begin) & (seconds <= end) & ~np.isnan(power)
        grid = np.concatenate([[begin], seconds[inside], [end]])
        joules = float(trapezoid(np.interp(grid, seconds[inside], power[inside]), grid))
        counted = case.value("loop_energy_joules")
        gap = None if counted is None else counted / joules - 1
        self.judge("energy", gap is not None and abs(gap) <= ENERGY_TOLERANCE,
                   f"{end - begin:.1f} s, counter {counted}, integral {joules:.0f} J, gap {gap}")
        self.judge("samples a second", inside.sum() / (end - begin) >= 5,
                   f"{inside.sum() / (end - begin):.2f}")
        self.judge("nobody else", case.value("other_processes") == 0,
                   f"other processes {case.value('other_processes')}, "
                   f"throttled {case.value('throttled')} ({case.value('throttle_reasons')})")

    def telemetry(self) -> None:
        """On and off in turn, the median of the rounds' medians."""
        steps: dict[str, list[float]] = {"on": [], "off": []}
        for number in range(4):
            for state in ("on", "off") if number % 2 == 0 else ("off", "on"):
                file = self.run(f"telemetry-{state}-{number}", "ddp", "--size", "124m", "--case",
                                "1gpu", "--steps", "200", "--telemetry", state)
                steps[state].append(file.cases[0].median("step_seconds"))
        change = np.median(steps["on"]) / np.median(steps["off"]) - 1
        self.judge("telemetry on/off", abs(change) <= TELEMETRY_LIMIT,
                   f"{change:+.3%} of the median step; on {steps['on']}, off {steps['off']}")

    def overhead(self) -> None:
        """The program's own statement."""
        done = subprocess.run([self.binary, "ddp", "--size", "124m", "--case", "1gpu",
                               "--self-check", "--steps", "100", "--json", "--out",
                               str(self.folder / "self.h5")], check=True, text=True,
                              capture_output=True, timeout=580)
        (found,) = json.loads(done.stdout)["self_check"]
        self.judge("overhead of instrumentation", found["share"] <= OVERHEAD_LIMIT, str(found))

    def states(self) -> None:
        """Of every GPU that nvidia-smi lists."""
        run = self.run("states", "ddp", "--size", "tiny", "--case", "1gpu", "--steps", "2").runs[0]
        query = "uuid,power.limit,ecc.mode.current,pcie.link.width.max"
        told = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"],
                              check=True, text=True, capture_output=True).stdout.splitlines()
        smi = {cells[0]: cells[1:] for cells in ([cell.strip() for cell in line.split(",")]
                                                 for line in told)}
        for gpu in run.gpus:
            limit, ecc, width = smi[gpu["uuid"]]
            holds = abs(float(limit) - gpu["power_limit_watts"]) < 1 \
                and (ecc == "Enabled") == (gpu["ecc"] == "on") \
                and int(width) == gpu["pcie_width_max"]
            self.judge(f"state of GPU {gpu['gpu']}", holds, f"{gpu} and nvidia-smi {smi[gpu['uuid']]}")
        matrix = subprocess.run(["nvidia-smi", "topo", "-m"], check=True, text=True,
                                capture_output=True).stdout
        rows = [line.split() for line in matrix.splitlines() if line.startswith("GPU")]
        for one in run.topology:
            theirs = rows[one["gpu_a"]][one["gpu_b"] + 1]
            self.judge(f"link {one['gpu_a']}-{one['gpu_b']}", theirs == one["link"],
                       f"{one['link']}, nvidia-smi {theirs}")
        self.judge("tables", len(run.gpus) == len(smi), f"{len(run.gpus)} GPUs of {len(smi)}")

    def bus(self) -> None:
        """The largest sizes' bandwidths."""
        file = self.run("bus", "ceilings", "--case", "all-*", "--case", "reduce-scatter",
                        ranks=self.ranks)
        for case in file.cases:
            found = results_ceilings.points(case)
            holds = case.status == "ok" and all(point.wrong_values == 0 for point in found)
            rates = ", ".join(f"{point.size / 2**20:.3g} MiB {(point.bus_rate or 0) / 1e9:.1f}"
                              for point in found[-3:])
            self.judge(case.name, holds, f"bus GB/s over {self.ranks} ranks: {rates}")


def seconds_of(work) -> float:
    """Median of events around repetitions issued back to back, as the program measures them."""
    import torch
    events = [torch.cuda.Event(enable_timing=True) for _ in range(WARMUP + REPETITIONS + 1)]
    torch.cuda.synchronize()
    for event in events[:-1]:
        event.record()
        work()
    events[-1].record()
    torch.cuda.synchronize()
    times = [a.elapsed_time(b) * 1e-3 for a, b in zip(events, events[1:])]
    return float(np.median(times[WARMUP:]))


def torch_products() -> dict[int, float]:
    """FLOP/s of square bf16 products of random data."""
    import torch
    rates = {}
    for size in (2048, 4096, 8192, 16384):
        a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        out = torch.empty_like(a)
        rates[size] = 2 * size**3 / seconds_of(lambda: torch.mm(a, b, out=out))
    return rates


def torch_copies() -> dict[int, float]:
    """Bytes/s read and written of copies within the device."""
    import torch
    rates = {}
    for size in (1 << 26, 1 << 28, 1 << 30, 1 << 32):
        source = torch.arange(size // 8, device="cuda")
        target = torch.empty_like(source)
        rates[size] = 2 * size / seconds_of(lambda: target.copy_(source))
    return rates


def main() -> int:
    """Exit status 1 when a check fails."""
    names = ("ceilings", "energy", "telemetry", "overhead", "states", "bus")
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--only", action="append", choices=names)
    options = parser.parse_args()
    os.environ.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
    os.environ.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    with tempfile.TemporaryDirectory() as folder:
        checks = Checks(options.binary, options.ranks, Path(folder))
        for name in options.only or names:
            try:
                getattr(checks, name)()
            except (subprocess.SubprocessError, KeyError, ValueError, TypeError) as error:
                checks.judge(name, False, repr(error))
    print(f"{checks.failed} failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
