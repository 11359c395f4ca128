"""Whole files that appear at once and stay: write beside, sync, rename, sync the folder."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from results_records import ResultError


def sync_folder(folder: str) -> None:
    """Makes renames in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cannot_write(path: str, error: OSError) -> ResultError:
    """The one line for a failed write."""
    return ResultError(f"cannot write {path}: {error.strerror}; "
                       "the cases recorded before are kept")


def cannot_create(path: str, error: OSError) -> ResultError:
    """The one line for a file that was not made."""
    return ResultError(f"cannot create {path}: {error.strerror}; nothing is recorded")


def temporary_name(path: str) -> str:
    """A new name beside `path`, of the form that is written to first: it is longer than `path`."""
    folder, base = os.path.split(path)
    return os.path.join(folder, f".{base}.{os.getpid()}.{secrets.token_hex(4)}.tmp")


def write_temporary(path: str, image: bytes) -> str:
    """A synced file of that content beside `path`; returns its name. Nothing stays on failure.
    Raises OSError."""
    temporary = temporary_name(path)
    try:
        with open(temporary, "xb") as file:
            file.write(image)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with contextlib.suppress(OSError):  # of a name that cannot be, even this fails
            Path(temporary).unlink()
        raise
    return temporary


def create_exclusively(path: str, image: bytes) -> bool:
    """Creates `path` with that content, durably; False when the name is taken."""
    try:
        temporary = write_temporary(path, image)
    except OSError as error:
        raise cannot_create(path, error) from error
    try:
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError:  # no hard links here: claim the name, then put the content in its place
            try:
                open(path, "xb").close()
            except FileExistsError:
                return False
            os.replace(temporary, path)
        sync_folder(os.path.dirname(path) or ".")
    except OSError as error:
        raise cannot_create(path, error) from error
    finally:
        Path(temporary).unlink(missing_ok=True)
    return True


def replace_durably(path: str, image: bytes) -> None:
    """Puts that content at `path`, durably; on failure what was there is still there."""
    try:
        temporary = write_temporary(path, image)
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        os.replace(temporary, path)
        sync_folder(os.path.dirname(path) or ".")
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise cannot_write(path, error) from error
