"""The output folder: files appear in it whole or not at all, and what cannot be written is said in one sentence."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from conformance.whole_file import whole_file

JOURNAL = "journal.jsonl"
RESULTS = "results.json"
JUNIT = "junit.xml"
ROWS = "rows"
LOCK = ".lock"

_ROWS_FILE = re.compile(r"[0-9a-f]{16}\.safetensors")
_PART = re.compile(r"\.(journal\.jsonl|results\.json|junit\.xml|[0-9a-f]{16}\.safetensors)(\.\w+)?\.part")
_FOREIGN = "the folder holds a file of that name which is not a former run's; give --output a new folder"
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # some network file systems have none

_REMEDIES = {
    errno.ENOSPC: "the disk is full; free space on it or give --output a folder on another one",
    errno.EDQUOT: "the disk quota is used up; free space or give --output a folder on another disk",
    errno.EFBIG: "the file may not grow further; raise the file size limit (ulimit -f)",
    errno.EACCES: "permission is denied; give --output a folder that you may write to",
    errno.EPERM: "permission is denied; give --output a folder that you may write to",
    errno.EROFS: "the file system is read-only; give --output a folder that you may write to",
    errno.ENOTDIR: "a part of the path is not a folder; give --output a folder",
    errno.EEXIST: "it is not a folder; give --output a folder",
}


class OutputError(Exception):
    """Something could not be written to the output folder; the message names the path and what to do."""

    def __init__(self, path: Path | str, what: str) -> None:
        super().__init__(f"cannot write {path}: {what}")
        self.path = Path(path)

    @classmethod
    def from_os(cls, path: Path | str, error: OSError) -> OutputError:
        """The sentence for an operating system's error."""
        remedy = _REMEDIES.get(error.errno or 0)
        return cls(path, remedy or f"{error.strerror or error}; check the folder given to --output")


def make_folder(folder: Path) -> Path:
    """Create `folder` with its parents; raises `OutputError`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError.from_os(folder, error) from error
    return folder


@contextlib.contextmanager
def claimed(output: Path) -> Iterator[None]:
    """Create the folder of a run, and own it among runs while the context lasts.

    Raises `OutputError` where it cannot be had, which leaves what others wrote there as it was.
    """
    path = make_folder(output) / LOCK
    try:
        # Never deleted: whoever has opened a file that is deleted then would own another lock than whoever comes next.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise OutputError.from_os(path, error) from error
    try:
        _own(descriptor, path)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # the kernel frees the lock; the id is only for the message
                os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _own(descriptor: int, path: Path) -> None:
    try:
        holder = os.pread(descriptor, 32, 0).decode("ascii", errors="replace").strip()
        if holder and not holder.isdecimal():
            raise OutputError(path, _FOREIGN)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(
                path.parent, f"another run (process {holder or '?'}) is writing there; give --output another folder"
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        raise OutputError.from_os(path, error) from error


def remove_former_run(output: Path) -> None:
    """Remove the files of an earlier run, and nothing else; raises `OutputError`.

    A results.json that outlives its run would be taken for the new run's where that is killed before its end. Only
    a folder whose journal begins as a run's does holds an earlier run; files of the same names in any other folder
    are somebody else's and an error.
    """
    ours = holds_a_run(output)
    if not ours:
        for name in (RESULTS, JUNIT, JOURNAL):
            if os.path.lexists(output / name):
                raise OutputError(output / name, _FOREIGN)
    try:
        remove_parts(output)
        if not ours:
            return
        for name in (RESULTS, JUNIT):
            (output / name).unlink(missing_ok=True)
        for file in rows_files(output):
            file.unlink()
        _remove_if_empty(output / ROWS)
        (output / JOURNAL).unlink()  # last: without it a removal that was cut short could not be taken up again
    except OSError as error:
        raise OutputError.from_os(error.filename or output, error) from error


def move_run(output: Path, folder: Path) -> None:
    """Move the journal and the rows of the run in `output` to the new `folder`; what was made from them is removed.

    Raises `OutputError`.
    """
    try:
        for name in (RESULTS, JUNIT):
            (output / name).unlink(missing_ok=True)
        remove_parts(output)
        folder.mkdir()
        for file in rows_files(output):
            (folder / ROWS).mkdir(exist_ok=True)
            file.rename(folder / ROWS / file.name)
        _remove_if_empty(output / ROWS)
        (output / JOURNAL).rename(folder / JOURNAL)
    except OSError as error:
        raise OutputError.from_os(error.filename or output, error) from error


def rows_files(output: Path) -> list[Path]:
    """The rows that a run has written below `output`, and no other file there."""
    rows = output / ROWS
    if not rows.is_dir() or rows.is_symlink():
        return []
    return [file for file in rows.iterdir() if _ROWS_FILE.fullmatch(file.name)]


def remove_parts(output: Path) -> None:
    """Remove what a killed run was about to write; raises `OutputError`."""
    try:
        for folder in (output, output / ROWS):
            if folder.is_dir() and not (folder != output and folder.is_symlink()):
                for file in folder.iterdir():
                    if _PART.fullmatch(file.name):
                        file.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError.from_os(error.filename or output, error) from error


def part_of(path: Path) -> Path:
    """Where a file is written before it appears at `path`."""
    return path.with_name(f".{path.name}.part")


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
        folder.rmdir()


def holds_a_run(output: Path) -> bool:
    """Whether `output` has a journal that begins as a run's does; raises `OutputError` where it cannot be read."""
    path = output / JOURNAL
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            header = json.loads(file.readline())
    except OSError as error:
        raise OutputError.from_os(path, error) from error
    except (ValueError, RecursionError):
        return False
    return isinstance(header, dict) and header.get("kind") == "run" and {"plan_hash", "planned"} <= set(header)


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to `path`, whole or not at all, and make its folder. Raises `OutputError`."""
    make_folder(path.parent)
    try:
        with whole_file(path, suffix=".part") as file:
            file.write(data)
    except OSError as error:
        raise OutputError.from_os(path, error) from error
