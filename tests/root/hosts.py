"""Two hosts on this machine: namespaces with a host name and a network each, joined by two links.

No /run/netns and no mounts, so that it also works within a chroot: each host is held by a process.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

HOSTS = ("h1", "h2")
LINKS = ("fabric0", "other0")  # both between the hosts; "alone0" is on h1 only


def command(*words: str) -> str:
    """Output of a command that must work."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    done = subprocess.run(words, env=os.environ | {"PATH": path}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout


class Hosts:
    """h1 (10.77.L.1) and h2 (10.77.L.2), L the link's number, and mpirun's way between them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._holders: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Makes both hosts; each holder says a line once its namespaces exist."""
        for host in HOSTS:
            holder = subprocess.Popen(
                ["unshare", "--net", "--uts", "sh", "-c", 'hostname "$0" && echo up && exec sleep 1h',
                 host], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self._holders[host] = holder
            assert holder.stdout and holder.stderr
            if holder.stdout.readline() != b"up\n":
                why = holder.stderr.read().decode().strip()
                raise AssertionError(f"this machine lets nobody make network namespaces: {why}")
        first, second = (str(self._holders[host].pid) for host in HOSTS)
        for number, link in enumerate(LINKS):
            command("ip", "link", "add", link, "netns", first, "type", "veth",
                    "peer", "name", link, "netns", second)
            for place, host in enumerate(HOSTS, 1):
                self.on(host, "ip", "address", "add", f"10.77.{number}.{place}/24", "dev", link)
        command("ip", "link", "add", "alone0", "netns", first, "type", "veth",
                "peer", "name", "alone1", "netns", first)
        for host in HOSTS:
            for link in ("lo", *LINKS):
                self.on(host, "ip", "link", "set", link, "up")
        agent = self._folder / "agent"  # in ssh's place
        agent.write_text("#!/bin/sh\ncase $1 in\n" + "".join(
            f"{host}) pid={holder.pid} ;;\n" for host, holder in self._holders.items()
        ) + 'esac\nshift\nexec nsenter --target "$pid" --net --uts sh -c "$*"\n', encoding="utf-8")
        agent.chmod(0o755)
        (self._folder / "hostfile").write_text("h1 slots=2\nh2 slots=2  # the other\n",
                                               encoding="utf-8")

    def stop(self) -> None:
        """The namespaces and their links end with the last process in them."""
        for holder in self._holders.values():
            holder.kill()
            holder.wait()

    def entered(self, host: str) -> list[str]:
        """The words that run what follows them on the host."""
        return ["nsenter", "--target", str(self._holders[host].pid), "--net", "--uts"]

    def on(self, host: str, *words: str) -> str:
        return command(*self.entered(host), *words)

    def sent_bytes(self, host: str) -> dict[str, int]:
        """What each interface of the host has sent so far."""
        links = json.loads(self.on(host, "ip", "-json", "-statistics", "link"))
        return {link["ifname"]: link["stats64"]["tx"]["bytes"] for link in links}

    def job(self, script: Path, *words: str) -> subprocess.CompletedProcess[str]:
        """A job script on h1 with both hosts in its hostfile."""
        return self._run(str(script), "--hostfile", str(self._folder / "hostfile"), *words)

    def mpirun(self, *words: str) -> subprocess.CompletedProcess[str]:
        """mpirun on h1."""
        return self._run("mpirun", "-q", *words)

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {
            "CUDA_VISIBLE_DEVICES": "",
            "OMPI_MCA_plm_rsh_agent": str(self._folder / "agent"),
            "OMPI_MCA_odls_base_sigkill_timeout": "2",
        }
        return subprocess.run(
            [*self.entered("h1"), *words], env=environment, cwd=self._folder,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200, check=False)
