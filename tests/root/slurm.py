"""A Slurm of its own: munged, slurmctld and two slurmd under a folder, with free ports.

Each slurmd has a host name of its own (a UTS namespace), so MPI and Slurm see two machines.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Callable

FINAL = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY"}
CONF = """\
ClusterName=test
SlurmctldHost=control(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
SlurmctldPort={controller}
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n/spool
TmpFS={folder}/%n/tmp
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n/pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n/log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
NodeName=n1 NodeAddr=127.0.0.1 Port={first} CPUs=4 State=UNKNOWN
NodeName=n2 NodeAddr=127.0.0.1 Port={second} CPUs=4 State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Slurm:
    """The daemons, and the commands that speak to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._daemons: list[subprocess.Popen[bytes]] = []
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_"))}
        self._environment = clean | {
            "SLURM_CONF": str(folder / "slurm.conf"),
            "CUDA_VISIBLE_DEVICES": "",
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
        }

    def start(self) -> None:
        """Starts the daemons and waits until both nodes are idle."""
        for tool in ("munged", "slurmctld", "slurmd", "sbatch"):
            assert shutil.which(tool, path=self._environment["PATH"]), (
                f"no {tool} here; jobs/setup.sh --tests installs slurm-wlm and munge"
            )
        for part in ("state", "n1/spool", "n1/tmp", "n2/spool", "n2/tmp"):
            (self.folder / part).mkdir(parents=True)
        controller, first, second = free_ports(3)
        (self.folder / "slurm.conf").write_text(
            CONF.format(folder=self.folder, controller=controller, first=first, second=second),
            encoding="utf-8",
        )
        # Nothing of cgroups is used, and this plugin does not ask for them when it starts.
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n", encoding="utf-8")
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        part = f"{self.folder}/munge"
        self._daemon("munged", "--foreground", "--force", f"--key-file={key}",
                     f"--socket={part}.socket", f"--pid-file={part}.pid",
                     f"--log-file={part}.log", f"--seed-file={part}.seed")
        self.until("munged listens", (self.folder / "munge.socket").exists)
        self._daemon("slurmctld", "-D", host="control")
        for node in ("n1", "n2"):
            self._daemon("slurmd", "-D", "-N", node, host=node)
        self.until("both nodes are idle",
                    lambda: self.command("sinfo", "-h", "-o", "%T %D").stdout.strip() == "idle 2")

    def stop(self) -> None:
        """Ends jobs and daemons; what does not go is killed."""
        if len(self._daemons) > 1:
            self.command("scancel", "--user=root", "--full")
            deadline = time.monotonic() + 20
            while self.command("squeue", "-h").stdout.strip() and time.monotonic() < deadline:
                time.sleep(0.2)
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in reversed(self._daemons):
            try:
                daemon.wait(timeout=15)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def command(self, *words: str, timeout: float = 60,
                **more: str) -> subprocess.CompletedProcess[str]:
        """Runs a command in the cluster's environment; `more` are environment variables."""
        return subprocess.run(words, env=self._environment | more, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=timeout, check=False)

    def submit(self, folder: Path, *words: str, **more: str) -> str:
        """sbatch with `folder` as its working directory and output in <job>.out there: the job."""
        done = subprocess.run(
            ["sbatch", "--parsable", f"--output={folder}/%j.out", *words], cwd=folder,
            env=self._environment | more, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def facts(self, job: str) -> list[dict[str, str]]:
        """What `scontrol show job` knows; one entry for each task of an array."""
        lines = self.command("scontrol", "--oneliner", "show", "job", job).stdout.splitlines()
        return [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines]

    def wait(self, job: str, seconds: float = 300) -> list[dict[str, str]]:
        """Waits until the job, or all tasks of the array, ended."""
        def ended() -> bool:
            facts = self.facts(job)
            return bool(facts) and all(one["JobState"] in FINAL for one in facts)

        self.until(f"job {job} ends", ended, seconds)
        return self.facts(job)

    def until(self, what: str, holds: Callable[[], bool], seconds: float = 60) -> None:
        """Polls `holds`; on the deadline, or where a daemon ended, fails with all logs."""
        deadline = time.monotonic() + seconds
        while not holds():
            gone = [daemon.args for daemon in self._daemons if daemon.poll() is not None]
            if gone or time.monotonic() > deadline:
                raise AssertionError(
                    f"waited up to {seconds:.0f} s until {what}; ended: {gone}\n{self._logs()}")
            time.sleep(0.2)

    def _daemon(self, name: str, *words: str, host: str = "") -> None:
        named = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host] if host else []
        with (self.folder / f"{host or name}.out").open("wb") as output:
            self._daemons.append(subprocess.Popen(
                [*named, name, *words], env=self._environment, stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT))

    def _logs(self) -> str:
        paths = [*self.folder.glob("*.out"), *self.folder.glob("*.log"), *self.folder.glob("n?/log")]
        return "\n".join(f"== {path}\n{path.read_text(errors='replace')[-3000:]}" for path in paths)
