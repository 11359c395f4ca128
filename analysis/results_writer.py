"""Writes result files that survive kill -9: a finished case is never lost.

The rules of src/result/result_file.h: while the file is small each new case makes a new copy,
synced and renamed over the path; beyond that cases lie as part files in `<path>.parts/` and are
joined when they have grown to half of the main file, and at the end. HDF5 works on images in
memory only, so a full disk or a kill never meets a half-written HDF5 file.
"""

from __future__ import annotations

import datetime
import errno
import glob
import os
import re
import secrets
from pathlib import Path
from typing import BinaryIO

import h5py

from results_durable import (cannot_write, create_exclusively, replace_durably, sync_folder,
                             temporary_name)
from results_layout import put_case, put_root, put_run
from results_reader import load, part_paths
from results_records import CaseRecord, ResultError, RunRecord

SMALL_FILE_BYTES = 8 << 20


def default_path(suite: str, folder: str = "results") -> str:
    """results/<suite>-<UTC time>[-<Slurm job>[_<array task>]].h5, with a suffix on collision;
    makes the folder."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    stem = f"{folder}/{suite}-{now}{slurm_suffix()}"
    number, path = 1, f"{stem}.h5"
    while os.path.lexists(path) or os.path.lexists(path + ".parts"):
        number += 1
        path = f"{stem}-{number}.h5"
    return path


def slurm_id(name: str) -> str:
    """A Slurm id without characters that a file name should not have."""
    return re.sub("[^A-Za-z0-9._-]", "", os.environ.get(name, ""))


def slurm_suffix() -> str:
    """-<job>, or -<array job>_<task> within an array; empty outside Slurm."""
    task, job = slurm_id("SLURM_ARRAY_TASK_ID"), slurm_id("SLURM_JOB_ID")
    if task:
        return f"-{slurm_id('SLURM_ARRAY_JOB_ID') or job}_{task}"
    return f"-{job}" if job else ""


def check_creatable(path: str) -> None:
    """Raises ResultError, before anything is measured, when `path` cannot be created."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise ResultError(f"--out {path}: the folder '{folder}' does not exist; create it first")
    if os.path.lexists(path):
        raise ResultError(f"--out {path}: the file exists and is never overwritten; "
                          "name another or remove it")
    if os.path.lexists(path + ".parts"):
        raise ResultError(f"--out {path}: '{path}.parts' of an earlier run exists; "
                          "name another file or remove it")
    temporary = temporary_name(path)
    try:  # os.access would say yes to root where nothing can be made
        open(temporary, "xb").close()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise ResultError(f"--out {path}: the name is too long (while written, "
                              f"{len(temporary) - len(path)} bytes are added to it); "
                              "give a shorter one") from error
        raise ResultError(f"--out {path}: the folder '{folder}' is not writable "
                          f"({error.strerror}); choose another folder") from error
    os.unlink(temporary)


def new_image(fill) -> bytes:
    """The bytes of a new HDF5 file that `fill(file)` has filled."""
    with h5py.File(secrets.token_hex(8), "w", driver="core", backing_store=False) as file:
        fill(file)
        file.flush()
        return file.id.get_file_image()


def changed_image(image: bytes, change) -> bytes:
    """The bytes of the HDF5 file in `image` after `change(file)`."""
    with h5py.File(h5py.h5f.open_file_image(image, flags=1)) as file:  # 1: writable copy
        change(file)
        file.flush()
        return file.id.get_file_image()


def copy_cases(source: h5py.File, target: h5py.File) -> None:
    """Copies every case of `source` that `target` lacks."""
    for suite in source:
        if suite == "runs":
            continue
        for case in source[suite]:
            for repeat in source[f"{suite}/{case}"]:
                path = f"{suite}/{case}/{repeat}"
                if path not in target:
                    source.copy(path, target.require_group(f"{suite}/{case}"), name=repeat)


def join_parts(file: h5py.File, paths: list[str]) -> None:
    """Copies the cases of the part files into `file`."""
    for path in paths:
        with h5py.File(h5py.h5f.open_file_image(Path(path).read_bytes())) as part:
            copy_cases(part, file)


class ResultWriter:
    """Creates `path` exclusively and adds cases durably.

    Raises ResultError when the path exists, its folder is missing or not writable.
    """

    def __init__(self, path: str, run: RunRecord):
        check_creatable(path)
        self.path = path
        self._parts_folder = path + ".parts"
        self._planned = set(run.planned)
        self._seen: set[str] = set()
        self._rows: set[tuple[str, str, int]] = set()
        self._parts: list[str] = []
        self._parts_made = 0
        self._parts_bytes = 0
        self._held: BinaryIO | None = None
        self._file_id = secrets.token_hex(16)

        def fill(file: h5py.File) -> None:
            put_root(file, self._file_id)
            put_run(file, 0, run)

        image = new_image(fill)
        if not create_exclusively(path, image):
            check_creatable(path)
        self._remember(image)

    def append(self, record: CaseRecord) -> None:
        """Adds one row durably: on return it survives kill -9."""
        row = (record.suite, record.name, record.repeat)
        if row in self._rows:
            raise ResultError(f"{record.suite}/{record.name}/{record.repeat} is already recorded")
        if self._main_bytes < SMALL_FILE_BYTES:
            image = self._image or Path(self.path).read_bytes()
            self._replace(changed_image(image, lambda file: put_case(file, 0, record)))
        else:
            self._append_part(record)
        self._rows.add(row)
        self._seen.add(record.name)
        if self._parts and 2 * self._parts_bytes >= self._main_bytes:
            try:
                self._join()
            except ResultError:
                pass  # the row is safe in its part; finish() joins again and reports

    def finish(self) -> None:
        """Joins the parts; marks the file complete if every planned name has a result."""
        try:
            self._join(complete=self._planned <= self._seen)
        except ResultError as error:
            if not self._parts:
                raise
            raise ResultError(f"{error} (also in {self._parts_folder}; "
                              f"`trainsuite-results join {self.path}` joins them)") from error
        self._held.close()

    def _remember(self, image: bytes) -> None:
        self._main_bytes = len(image)
        self._image = image if len(image) < SMALL_FILE_BYTES else None
        if self._held is not None:
            self._held.close()
        self._held = open(self.path, "rb")  # so that its number is not given to another file

    def _check_ours(self) -> None:
        """Another run's file at our path must not be overwritten."""
        try:
            same = os.path.samestat(os.stat(self.path), os.fstat(self._held.fileno()))
        except FileNotFoundError:
            same = False
        if not same:
            raise ResultError(f"{self.path} was removed or replaced by another program during "
                              "this run; it is left as it is")

    def _replace(self, image: bytes) -> None:
        self._check_ours()
        replace_durably(self.path, image)
        self._remember(image)

    def _append_part(self, record: CaseRecord) -> None:
        def fill(file: h5py.File) -> None:
            put_root(file, self._file_id)
            put_case(file, 0, record)

        if self._parts_made == 0:
            try:
                os.makedirs(self._parts_folder, exist_ok=True)
                sync_folder(os.path.dirname(self.path) or ".")
            except OSError as error:
                raise cannot_write(self._parts_folder, error) from error
        image = new_image(fill)
        part = os.path.join(self._parts_folder, f"{self._parts_made}.h5")
        replace_durably(part, image)
        self._parts_made += 1
        self._parts.append(part)
        self._parts_bytes += len(image)

    def _join(self, complete: bool = False) -> None:
        """One file again. The parts go only after the joined file is durable."""
        if not self._parts and not complete:
            return

        def change(file: h5py.File) -> None:
            join_parts(file, self._parts)
            file.attrs.modify("complete", int(complete))

        self._replace(changed_image(self._image or Path(self.path).read_bytes(), change))
        for part in self._parts:
            os.unlink(part)
        self._parts, self._parts_bytes = [], 0
        if self._parts_made:
            os.rmdir(self._parts_folder)
            self._parts_made = 0


def join_file(path: str) -> int:
    """Joins the part files of a run that was killed into its file; returns how many there were.

    Only for a run that has ended: what it left half-written is removed. The file becomes complete
    if every planned name has a result.
    """
    results = load(path)  # refuses what is not ours, and parts of other files
    parts = part_paths(path)
    complete = not results.missing()

    def change(file: h5py.File) -> None:
        join_parts(file, parts)
        file.attrs.modify("complete", int(complete))

    if parts or complete != results.complete:
        replace_durably(path, changed_image(Path(path).read_bytes(), change))
    folder, parts_folder = Path(path).parent, Path(path + ".parts")
    leftovers = [*folder.glob(f".{glob.escape(Path(path).name)}.*.tmp"),
                 *parts_folder.glob(".*.h5.*.tmp")]
    for leftover in [*parts, *leftovers]:
        os.unlink(leftover)
    if parts_folder.is_dir() and not any(parts_folder.iterdir()):
        parts_folder.rmdir()
    return len(parts)
