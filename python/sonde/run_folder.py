"""The folder of a run: reserved when it is named, and numbered if a run is there already.

A folder is reserved by a file in it, which names the job: other ranks of the job find it and
join the run, whichever of them comes first, and every other program takes the next number. The
file is removed when the watch that wrote it closes.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from typing import Any

from . import _sonde

_MARK = "run.json.reserved"  # a recorder takes no offence at run.json.*
_JOB = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT")


class Folder:
    """The folder of a run. path: as it is used."""

    def __init__(self, path: str, reserved: bool = False, made: bool = False):
        self.path, self.reserved, self.made = path, reserved, made

    def release(self) -> None:
        """Removes the reservation, and a folder that was made and is still empty."""
        if self.reserved:
            self.reserved = False
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.path, _MARK))
            if self.made:
                with contextlib.suppress(OSError):
                    os.rmdir(self.path)


def take(path: str, *, overwrite: bool, resume: str | None, rank: int, world: int) -> Folder:
    """Reserves a folder for a run: the one of this path, or the first free one with a number.

    BadValueError: the path is a file, or holds something other than a run. StateError: the run
    to overwrite is being written. StorageError: the folder cannot be made."""
    if overwrite and resume is not None:
        raise _bad("SONDE_EINVAL", "overwrite", "resume is given too", "one of them")
    if "://" in path or resume is not None:
        if overwrite:
            raise _bad("SONDE_EINVAL", path, "overwrite of an address", "a folder")
        return Folder(path)
    path = path.rstrip("/") or path
    try:
        parent = os.path.dirname(os.path.abspath(path))
        os.makedirs(parent, exist_ok=True)
        with _alone(parent):
            return _take(path, overwrite, rank, world)
    except (FileExistsError, NotADirectoryError):
        raise _bad("SONDE_EEXIST", path, "there is a file of that name", "a folder") from None
    except OSError as problem:
        if isinstance(problem, _sonde.SondeError):
            raise
        raise _error(_sonde.StorageError, "SONDE_EIO", path, f"cannot be made: {problem.strerror}",
                     "") from None


def _take(path: str, overwrite: bool, rank: int, world: int) -> Folder:
    for number in itertools.count(1):
        folder = path if number == 1 else f"{path}-{number}"
        names = _names(folder)
        if names is not None and world > 1 and _joins(folder, names, rank, world, overwrite):
            return Folder(folder)
        if names and number == 1:
            _check_kind(path, names)
            if overwrite and names != [_MARK]:
                _remove(path)
                names = None
        if (not names or _is_left(folder, names)) and _reserve(folder):
            if number > 1:
                print(f"sonde: a run is in {path} already: this one is {folder}", file=sys.stderr)
            return Folder(folder, True, names is None)
    raise AssertionError


def _names(folder: str) -> list[str] | None:
    """What is in a folder; None: there is none."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return None


def _check_kind(path: str, names: list[str]) -> None:
    """A folder that is named and holds something holds a run, or a reservation."""
    if _MARK not in names and "sonde_run" not in _read(os.path.join(path, "run.json")):
        raise _bad("SONDE_EEXIST", path, "the folder is not empty, and holds no run",
                   "a path that is new, an empty folder or a run")


def _reserve(folder: str) -> bool:
    """Whether the folder became this process's. Another machine may be faster."""
    os.makedirs(folder, exist_ok=True)
    mark = os.path.join(folder, _MARK)
    temporary = f"{mark}.{os.getpid()}.{socket.gethostname()}"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump({"pid": os.getpid(), **_job()}, file)
    try:
        os.link(temporary, mark)  # complete from the start
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)
    if set(os.listdir(folder)) - {_MARK}:  # a run began between two looks
        os.unlink(mark)
        return False
    return True


def _is_left(folder: str, names: list[str]) -> bool:
    """Removes the reservation of a process that ended before its first step."""
    if names != [_MARK]:
        return False
    mark = _read(os.path.join(folder, _MARK))
    if mark.get("host") != socket.gethostname() or not isinstance(mark.get("pid"), int):
        return False
    try:
        os.kill(mark["pid"], 0)
    except ProcessLookupError:
        os.unlink(os.path.join(folder, _MARK))
        return True
    except OSError:
        pass
    return False


# --- several ranks --------------------------------------------------------------------------


def _job() -> dict[str, Any]:
    """What the ranks of one job have in common."""
    return {"job": [os.environ.get(name, "") for name in _JOB], "host": socket.gethostname(),
            "parent": os.getppid()}


def _joins(folder: str, names: list[str], rank: int, world: int, overwrite: bool) -> bool:
    """Whether the folder has this rank's place in a run of this job."""
    if f"w{rank:04d}" in names or "end.json" in names:
        return False
    mark = _read(os.path.join(folder, _MARK)) if _MARK in names else None
    if mark is not None:
        own = _job()
        launched = "TORCHELASTIC_RUN_ID" in os.environ  # one parent on each machine
        return mark.get("job") == own["job"] and not (
            launched and mark.get("host") == own["host"] and mark.get("parent") != own["parent"])
    return not overwrite and "run.json" in names and \
        _read(os.path.join(folder, "run.json")).get("world") == world


@contextlib.contextmanager
def _alone(parent: str) -> Iterator[None]:
    """One process of this machine at a time; where folders take no lock, the file decides."""
    lock = None
    try:
        lock = os.open(parent, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError:
        pass
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


# --- overwriting ----------------------------------------------------------------------------


def _remove(path: str) -> None:
    """Removes a run that nobody writes."""
    from .reading import open as open_run
    try:
        status = open_run(path).status
    except _sonde.SondeError:
        status = "damaged"
    if status == "running":
        raise _error(_sonde.StateError, "SONDE_EBUSY", path, "another process writes this run",
                     "a run that has ended")
    shutil.rmtree(path)


# --- files and errors -----------------------------------------------------------------------


def _read(path: str) -> dict[str, Any]:
    """The JSON object that a file begins with; empty: there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            found, _ = json.JSONDecoder().raw_decode(file.read())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _error(kind: type[Any], code: str, where: str, found: str, expected: str) -> Any:
    problem = kind(f"{where}: {found}" + (f" (expected {expected})" if expected else ""))
    problem.code, problem.where, problem.found, problem.expected = code, where, found, expected
    return problem


def _bad(code: str, where: str, found: str, expected: str) -> Any:
    return _error(_sonde.BadValueError, code, where, found, expected)
