"""A run that is killed at any moment leaves every row it was told is safe."""

import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import results

KILLS = 24
STEPS = 2000
COPIES, PARTS = 1 << 40, 1  # below so many bytes each row makes a new copy; beyond, a part file
DEADLINE_SECONDS = 120

PYTHON_STREAM = textwrap.dedent("""
    import sys
    import results, results_writer
    path, small, rows, steps = sys.argv[1], *map(int, sys.argv[2:])
    results_writer.SMALL_FILE_BYTES = small
    run = results.RunRecord("2026-01-02T03:04:05Z", planned=["tiny-stream"])
    writer = results.ResultWriter(path, run)
    print("created", flush=True)
    for number in range(rows):
        loss = [1000.0 * number + step + 1 for step in range(steps)]
        record = results.CaseRecord("ddp", "tiny-stream", number, ranks=[
            results.RankRecord(0, [results.RankSeries("loss", "1", loss)])])
        writer.append(record)
        print(number, flush=True)
    writer.finish()
""")


def wait_for(path: Path) -> None:
    """Returns once `path` was seen to exist."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not path.exists():
        assert time.monotonic() < end, f"{path} never appeared"


def killed_after(command: list[str], rows: int, seconds: float, awaited: Path) -> list[str]:
    """What the program said before it was killed, `seconds` after it said that `rows` rows are
    safe and `awaited` was there."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            lines = [process.stdout.readline().strip() for _ in range(rows + 1)]
            assert lines[0] == "created"
            wait_for(awaited)
            time.sleep(seconds)
        finally:
            process.send_signal(signal.SIGKILL)
        lines += process.stdout.read().split()
    return lines[1:]


@pytest.mark.parametrize("language", ["c++", "python"])
def test_killed_at_random_moments(language: str, tmp_path: Path, result_sample: str) -> None:
    chance = random.Random(20260102)
    folder = Path(results.__file__).parent
    for kill in range(KILLS):
        path = tmp_path / f"{kill}.h5"
        program = [result_sample, "stream"] if language == "c++" else \
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder)!r})\n"
             + PYTHON_STREAM]
        parts = Path(f"{path}.parts")
        small, awaited = (PARTS, parts) if kill % 2 else (COPIES, path)
        told = killed_after([*program, str(path), str(small), "100000", str(STEPS)],
                            rows=chance.randrange(50), seconds=chance.uniform(0, 0.03),
                            awaited=awaited)
        assert small == PARTS or not parts.exists()
        read = results.load(path)
        repeats = [case.repeat for case in read.cases]
        assert repeats == list(range(len(repeats)))
        assert len(repeats) in (len(told), len(told) + 1)  # the last may be safe, but unsaid
        assert not read.complete
        for case in read.cases:
            np.testing.assert_array_equal(case.series["loss"].values,
                                          [1000 * case.repeat + np.arange(STEPS) + 1])
        results.join_file(str(path))
        assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
        assert len(results.load(path).cases) == len(repeats)
        path.unlink()
