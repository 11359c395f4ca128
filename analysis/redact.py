"""Result files that may leave the house: no hosts, UUIDs, paths, users, job ids or addresses.

The same thing gets the same stand-in everywhere, so rows of one host still show as such. What a
file says of its work (cases, kernels, versions, cards, CPU models, commit) stays.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence

from results_reader import load
from results_rewrite import rewrite

# Words of the suite itself; a host or user of such a name must not blank them.
SAFE = frozenset((
    "schema", "unit", "status", "suite", "size", "recipe", "implementation", "compile_mode",
    "communicator", "kernels", "precision", "wire", "link", "attention", "comm", "device",
    "device_name", "cpu_model", "kernel", "virtualisation", "pci_bus_id", "cores", "planned",
    "result_names", "created_utc", "git_commit", "affinity", "instrumentation", "block_kernel",
    "loss_kernel", "attention_kernel", "file_id", "order", "execution"))
PATH_FLAGS = ("out", "model", "data", "save", "compile_cache", "ceilings")
ENDINGS = (".h5", ".hdf5", ".json", ".jsonl", ".toml", ".py", ".safetensors", ".txt", ".log",
           ".csv")
UUID = re.compile(r"\b(?:GPU|MIG)-[0-9A-Fa-f][0-9A-Fa-f-]{6,}|"
                  r"\b[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\b")
ABSOLUTE_PATH = re.compile(r"(?<![\w<>.)\]])(?:~|[A-Za-z]:(?=\\)|(?=[/\\]))"
                           r"(?:[/\\][^\s:;,'\"()/\\]+)+[/\\]?")
HOME = re.compile(r"/(?:home|Users)/([^/\s:;,'\"]+)")
ADDRESS = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])|"
                     r"\b(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}\b|\b[\w.+-]+@[\w-]+\.[\w.-]+\b")
JOB = re.compile(r"^(?:env_)?slurm_.*(?:id|name|user|account|partition|nodelist)$", re.IGNORECASE)
USER = re.compile(r"^(?:env_)?(?:user|logname|username|slurm_job_user)$", re.IGNORECASE)


class Redactor:
    """Remembers what it has seen, over several files."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, str]] = {}  # kind -> secret -> stand-in
        self._patterns: list[tuple[re.Pattern, dict[str, str]]] | None = None

    def _stand_in(self, kind: str, secret: str) -> str:
        known = self._known.setdefault(kind, {})
        if secret not in known:
            known[secret] = f"{kind}-{len(set(known.values())) + 1}"
            self._patterns = None
        return known[secret]

    def learn(self, path: str) -> None:
        """Finds the names in a result file that free text elsewhere may repeat."""
        file = load(path)
        for run in file.runs:
            for one in [*run.ranks, *run.hosts, *run.gpus, *run.networks]:
                self._learn_host(one["host"])
            for name, value in run.attributes.items():
                self._learn_value(name, str(value))
            self._arguments(run.argv)
        for case in file.cases:
            for name, value in case.settings.items():
                if name in PATH_FLAGS and isinstance(value, str) and value:
                    self._path(value)

    def _learn_host(self, host: str) -> None:
        if not host:
            return
        stand_in = self._stand_in("host", host)
        short = host.split(".")[0]
        if short != host and not short.isdigit():
            self._known["host"].setdefault(short, stand_in)

    def _learn_value(self, name: str, value: str) -> None:
        for user in HOME.findall(value):
            self._stand_in("user", user)
        if USER.match(name) and value:
            self._stand_in("user", value)
        elif JOB.match(name) and len(value) >= 4:  # a task's number 3 is no name
            self._stand_in("job", value)

    def _path(self, path: str) -> str:
        """<path-1>.h5: the ending says what it was."""
        for user in HOME.findall(path):
            self._stand_in("user", user)
        ending = os.path.splitext(path)[1]
        ending = ending if ending in ENDINGS else ""
        return f"<{self._stand_in('path', path)}>{ending}"

    def _arguments(self, arguments: Sequence[str]) -> list[str]:
        """A command line: the program by its own name, paths and what follows path flags not."""
        made, after_path_flag = [], False
        for index, argument in enumerate(arguments):
            flag, equals, value = argument.partition("=")
            is_flag = argument.startswith("--")
            path_flag = is_flag and flag[2:].replace("-", "_") in PATH_FLAGS
            if index == 0 and re.fullmatch(r"trainsuite|[a-z_]+\.py", os.path.basename(argument)):
                if "/" in argument:
                    self._path(argument)
                made.append(os.path.basename(argument))
            elif is_flag and equals and (path_flag or "/" in value):
                made.append(f"{flag}={self._path(value)}")
            elif not is_flag and (after_path_flag or "/" in argument or "\\" in argument):
                made.append(self._path(argument) if argument else argument)
            else:
                made.append(self._free(argument))
            after_path_flag = path_flag and not equals
        return made

    def texts(self, name: str, values: list[str]) -> list[str]:
        """The texts of an attribute, column or dataset of that name, redacted."""
        if name in SAFE or name.endswith("_version") or name.endswith("_hash"):
            return values
        if name == "argv":
            return self._arguments(values)
        return [self._one(name, value) if value else value for value in values]

    def _one(self, name: str, value: str) -> str:
        if name == "host" or name.endswith("_host") or name == "hostname":
            self._learn_host(value)
            return self._known["host"][value]
        if name in ("uuid", "serial"):
            return self._stand_in("GPU", value)
        if name in PATH_FLAGS:
            return self._path(value)
        if USER.match(name):
            return f"<{self._stand_in('user', value)}>"
        if JOB.match(name):
            return f"<{self._stand_in('job', value)}>"
        return self._free(value)

    def _free(self, text: str) -> str:
        """Text that people or programs wrote."""
        text = UUID.sub(lambda found: self._stand_in("GPU", found[0]), text)
        for pattern, known in self._compiled():
            text = pattern.sub(lambda found, known=known: known[found[0].lower()], text)
        text = ABSOLUTE_PATH.sub(lambda found: self._path(found[0]), text)
        return ADDRESS.sub("<address>", text)

    def _compiled(self) -> list[tuple[re.Pattern, dict[str, str]]]:
        """One pattern a kind, longest names first."""
        if self._patterns is None:
            self._patterns = []
            for kind in ("path", "host", "user", "job"):
                known = {secret.lower(): stand_in if kind == "host" else f"<{stand_in}>"
                         for secret, stand_in in self._known.get(kind, {}).items()}
                if known:
                    words = "|".join(map(re.escape, sorted(known, key=len, reverse=True)))
                    self._patterns.append((re.compile(
                        rf"(?<![\w-])(?:{words})(?![\w-])", re.IGNORECASE), known))
        return self._patterns


def copy(path: str, out: str, redactor: Redactor | None = None) -> None:
    """Creates `out` exclusively: `path` redacted. Raises ResultError."""
    redactor = redactor or Redactor()
    redactor.learn(path)
    rewrite(path, out, redactor.texts)


@contextlib.contextmanager
def copies(paths: Sequence[str]) -> Iterator[list[str]]:
    """Redacted copies, named file-1.h5, ..., while the context lasts; other files (.toml) as they
    are. What all of them repeat is learned before the first is written."""
    redactor = Redactor()
    hdf5 = [path for path in paths if not path.endswith(".toml")]
    for path in hdf5:
        redactor.learn(path)
    with tempfile.TemporaryDirectory(prefix="trainsuite-redacted-") as folder:
        made = []
        for path in paths:
            if path in hdf5:
                out = os.path.join(folder, f"file-{len(made) + 1}.h5")
                rewrite(path, out, redactor.texts)
                made.append(out)
            else:
                made.append(path)
        yield made
