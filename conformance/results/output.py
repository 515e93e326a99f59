"""The output folder: files appear in it whole or not at all, and what cannot be written is said in one sentence."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

JOURNAL = "journal.jsonl"
RESULTS = "results.json"
JUNIT = "junit.xml"
ROWS = "rows"

_REMEDIES = {
    errno.ENOSPC: "the disk is full; free space on it or give --output a folder on another one",
    errno.EDQUOT: "the disk quota is used up; free space or give --output a folder on another disk",
    errno.EFBIG: "the file may not grow further; raise the file size limit (ulimit -f)",
    errno.EACCES: "permission is denied; give --output a folder that you may write to",
    errno.EPERM: "permission is denied; give --output a folder that you may write to",
    errno.EROFS: "the file system is read-only; give --output a folder that you may write to",
    errno.ENOTDIR: "a part of the path is a file; give --output a folder",
    errno.EEXIST: "it exists already; give --output a new folder",
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


def remove_former_run(output: Path) -> None:
    """Remove the files of an earlier run, and nothing else; raises `OutputError`.

    A results.json that outlives its run would be taken for the new run's where that is killed before its end.
    """
    try:
        for name in (RESULTS, JUNIT, JOURNAL):
            (output / name).unlink(missing_ok=True)
        if (output / ROWS).is_dir() and not (output / ROWS).is_symlink():
            shutil.rmtree(output / ROWS)
    except OSError as error:
        raise OutputError.from_os(error.filename or output, error) from error


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to `path` by way of a temporary file beside it: readers see the old file or the new one whole.

    Raises `OutputError`; the old file is then untouched and no temporary file is left.
    """
    make_folder(path.parent)
    temporary: Path | None = None
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        temporary = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())  # mkstemp's 0600 would hide the file from a CI system's collector
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise OutputError.from_os(path, error) from error


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
