"""jobs/run.sh over a hostfile: two hosts that exchange over real interfaces."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Iterator

import h5py
import numpy as np
import pytest
from conftest import PROJECT, column, text
from hosts import Hosts

RUN = PROJECT / "jobs/run.sh"
STEPS = 6
WORK = ["ddp", "--case", "plain", "--steps", str(STEPS - 1), "--warmup", "1"]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    both = Hosts(tmp_path)
    try:
        both.start()
        yield both
    finally:
        both.stop()


def losses(path: Path) -> np.ndarray:
    """[ranks][steps] of the plain case."""
    with h5py.File(path) as file:
        return file["ddp/tiny-plain/0/loss"][...]


def test_two_hosts_train_over_the_interface_that_was_named(hosts: Hosts, tmp_path: Path) -> None:
    before = hosts.sent_bytes("h2")
    done = hosts.job(RUN, "-np", "4", *WORK, "--interface", "fabric0", "--out", "two.h5")
    assert done.returncode == 0, done.stdout + done.stderr
    sent = {name: now - before[name] for name, now in hosts.sent_bytes("h2").items()}
    with h5py.File(tmp_path / "two.h5") as file:
        run, row = file["runs/0"], file["ddp/tiny-plain/0"]
        assert sorted(zip(column(run["ranks"], "host"), column(run["ranks"], "local_rank"))) == [
            ("h1", 0), ("h1", 1), ("h2", 0), ("h2", 1)]
        assert column(run["hosts"], "host") == ["h1", "h2"]
        assert text(run.attrs["env_OMPI_MCA_btl_tcp_if_include"]) == "fabric0"
        assert text(run.attrs["env_NCCL_SOCKET_IFNAME"]) == "=fabric0"
        assert text(row.attrs["interface"]) == "fabric0"
        # What a host of two must send at least for each all-reduce: its half of the sum.
        payload = STEPS * 4 * int(row.attrs["parameters_total"]) // 2
    assert sent["fabric0"] > payload, sent
    assert sent["other0"] < payload / 10, sent
    single = subprocess.run(
        ["mpirun", "-q", "-np", "4", os.environ["TRAINSUITE_BINARY"], *WORK, "--out", "one.h5"],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""}, cwd=tmp_path, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=200, check=False)
    assert single.returncode == 0, single.stderr
    np.testing.assert_allclose(losses(tmp_path / "two.h5"), losses(tmp_path / "one.h5"), rtol=1e-4)


def test_an_interface_that_one_host_lacks_is_named(hosts: Hosts, tmp_path: Path) -> None:
    done = hosts.job(RUN, "-np", "2", *WORK, "--interface", "alone0", "--out", "two.h5")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "--interface alone0: this host has no such network interface" in done.stderr
    assert "fabric0" in done.stderr
    assert not (tmp_path / "two.h5").exists()


def test_hosts_that_were_started_differently_are_named(hosts: Hosts, tmp_path: Path) -> None:
    binary = os.environ["TRAINSUITE_BINARY"]
    done = hosts.mpirun("-np", "1", "--host", "h1", binary, *WORK,
                        ":", "-np", "2", "--host", "h2:2", binary, *WORK, "--seed", "7")
    assert done.returncode == 2, done.stdout + done.stderr
    (line,) = [one for one in done.stderr.splitlines() if one.startswith("trainsuite: ")]
    assert "seed differs: 1 on rank 0; 7 on ranks 1, 2" in line
    assert "hosts: h1 on rank 0; h2 on ranks 1, 2" in line
    assert not (tmp_path / "results").exists()
