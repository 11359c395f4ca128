"""kill -9 of a rank or of mpirun at random moments: what the program said is finished is kept."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from conftest import Program
from running import Running, is_complete, rows

KILLS = int(os.environ.get("TRAINSUITE_TEST_KILLS", "6"))  # by hand, for the fault table: 60
MANY = ["ddp", "--case", "plain", "--steps", "2", "--warmup", "1"]


def test_kill_9_at_random_moments(program: Program, tmp_path: Path) -> None:
    chance = random.Random(20261130)
    for number in range(KILLS):
        out = tmp_path / f"{number}.h5"
        run = Running(tmp_path, *MANY, "--repeats", "9000", "--out", out)
        first = chance.randrange(1, 8)
        run.wait_for(lambda first=first, run=run: f"[{first}/9000]" in run.said())
        time.sleep(chance.uniform(0, 0.3))
        processes = [run.process.pid, *run.ranks()]
        os.kill(chance.choice(processes), signal.SIGKILL)
        assert run.end() != 0
        for pid in processes[1:]:  # an orphan ends by itself when it misses mpirun
            run.wait_until_gone(pid)
        told = run.said().count("tiny-plain ok")
        kept = rows(out)
        finished = [name for name, row in kept.items() if row["status"] == "ok"]
        assert told >= first
        assert len(finished) >= told, "a row that was told is lost"
        assert {f"tiny-plain/{n}" for n in range(len(finished))} == set(finished)
        assert not is_complete(out)
        if number == 0:
            wanted = str(len(finished) + 1)
            again = program(*MANY, "--repeats", wanted, "--out", out, "--resume", ranks=2,
                            timeout=280)
            assert again.returncode == 0, again
            assert is_complete(out)
