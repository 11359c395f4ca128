"""Clocks and gauges: recorded in the loop, read after it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

import torch

PHASES = ("data", "forward", "backward", "exposed_sync", "optimizer")
LAST_PHASE = "optimizer"  # ends where the next step starts, so the phases make up the step


@dataclass
class Measured:
    """What one rank measured: values a step, and scalars."""

    series: dict[str, list[float]] = field(default_factory=dict)
    facts: dict[str, int | float | str] = field(default_factory=dict)


class StepClock:
    """Times the phases of steps; a mark says what the work since the previous mark was.

    On CUDA a mark is an event on the current stream, elsewhere the steady clock.
    """

    def __init__(self, device: torch.device, steps: int, marks_per_step: int) -> None:
        self._cuda = device.type == "cuda"
        self._labels: list[str] = []
        self._times: list[float] = []
        self._host: list[float] = []
        self._starts: list[int] = []  # indices of marks
        self._events: list[torch.cuda.Event] = []
        if self._cuda:
            self._events = [
                torch.cuda.Event(enable_timing=True)
                for _ in range(steps * marks_per_step + 1)
            ]
            for event in self._events:
                event.record()  # creates it, which is then not part of the loop
            torch.cuda.synchronize(device)

    def mark(self, label: str) -> None:
        """The work since the previous mark belonged to phase `label`."""
        if self._cuda:
            self._events[len(self._labels)].record()
        else:
            self._times.append(time.perf_counter())
        self._labels.append(label)

    def boundary(self) -> None:
        """Start of a step and end of the one before; after the last step the end of the loop."""
        self._host.append(time.perf_counter())
        self._starts.append(len(self._labels))
        self.mark(LAST_PHASE)

    def read(self) -> dict[str, list[float]]:
        """Seconds a step, by series name; call it once the device is done."""
        if self._cuda:
            events = self._events[: len(self._labels)]
            times = [0.0]  # summed from neighbours: long differences are read in coarse floats
            for before, after in zip(events, events[1:]):
                times.append(times[-1] + before.elapsed_time(after) / 1e3)
        else:
            times = self._times
        steps = list(zip(self._starts, self._starts[1:]))
        seconds = {
            "step_seconds": [times[end] - times[start] for start, end in steps],
            "host_seconds": [after - before for before, after in zip(self._host, self._host[1:])],
        }
        for phase in PHASES:
            if phase in self._labels:
                seconds[f"{phase}_seconds"] = [
                    sum(
                        times[index] - times[index - 1]
                        for index in range(start + 1, end + 1)
                        if self._labels[index] == phase
                    )
                    for start, end in steps
                ]
        return seconds


    def issuing(self) -> str:
        """The phase whose work the host is giving out."""
        after = {"optimizer": "data", "data": "forward", "forward": "backward"}
        return after.get(self._labels[-1] if self._labels else "optimizer", "optimizer")


class NoClock:
    """A clock that records nothing."""

    def mark(self, label: str) -> None:
        """Does nothing."""


class MemoryGauge:
    """Peaks of the CUDA allocator; silent on other devices."""

    def __init__(self, device: torch.device) -> None:
        self._device = device if device.type == "cuda" else None
        self.allocated: list[int] = []
        self.reserved: list[int] = []
        self.before = (0, 0)  # peaks of what came before the first step
        if self._device is not None:
            self.reset()

    def reset(self) -> None:
        """Starts a new interval whose floor is what is now live."""
        torch.cuda.reset_peak_memory_stats(self._device)

    def _peaks(self) -> tuple[int, int]:
        stats = torch.cuda.memory.memory_stats_as_nested_dict(self._device)
        return stats["allocated_bytes"]["all"]["peak"], stats["reserved_bytes"]["all"]["peak"]

    def begin_loop(self) -> None:
        """Keeps the peaks of the set-up and starts the first step's interval."""
        if self._device is not None:
            self.before = self._peaks()
            self.reset()

    def end_step(self) -> None:
        """Keeps the peaks of a step; host side only."""
        if self._device is None:
            return
        allocated, reserved = self._peaks()
        self.allocated.append(allocated)
        self.reserved.append(reserved)
        self.reset()

    def series(self) -> dict[str, list[int]]:
        """Bytes a step, by series name; empty on a CPU."""
        if self._device is None:
            return {}
        return {
            "allocated_peak_bytes": self.allocated,
            "reserved_peak_bytes": self.reserved,
        }

    def facts(self, warmup: int) -> dict[str, int]:
        """Peaks after the warm-up and of the whole case, in bytes; empty on a CPU."""
        if self._device is None:
            return {}
        return {
            "peak_allocated_bytes": max(self.allocated[warmup:]),
            "peak_reserved_bytes": max(self.reserved[warmup:]),
            "case_peak_allocated_bytes": max(self.before[0], *self.allocated),
            "case_peak_reserved_bytes": max(self.before[1], *self.reserved),
        }


@contextmanager
def memory_exhaustion(phase: Callable[[], str], device: torch.device) -> Iterator[None]:
    """Says in which phase memory ran out, and beside how many bytes, in trainsuite's words."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        held = ""
        if device.type == "cuda":
            allocated = torch.cuda.max_memory_allocated(device)
            reserved = torch.cuda.max_memory_reserved(device)
            held = f" beside {allocated} bytes allocated and {reserved} reserved"
        request = str(error).partition(". GPU")[0]
        raise MemoryError(f"out of memory in {phase()}{held}: {request}") from None


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Keeps Python's collector, which stops the host at random, out of what is measured."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def synchronize(device: torch.device) -> None:
    """Waits until the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def host_launch_seconds(step: Callable[[], None], device: torch.device, count: int = 20) -> float:
    """Median host seconds until `step` returns, each begun on an idle device."""
    seconds = []
    for _ in range(count):
        synchronize(device)
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    synchronize(device)
    return median(seconds)
