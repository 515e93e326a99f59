"""A results.json that a person names, by file or by its run's folder: checked whole, or refused in a few lines."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.names import UsageError
from conformance.results.going_on import resume_command
from conformance.results.journal import JournalError, read_journal
from conformance.results.output import JOURNAL, RESULTS
from conformance.results.validation import DocumentError, parse_document

LARGEST = 512 * 2**20  # bytes: a thousand times what a run of the embedded models writes
_SHOWN = 8  # faults of one file


@dataclass(frozen=True)
class Record:
    """A results.json that was read and found right."""

    path: Path  # of the file, as it was named
    sha256: str
    document: dict[str, Any]


def read_record(path: Path) -> Record:
    """Read the results.json at `path`, or in the folder `path`; raises UsageError."""
    file = path
    try:
        file = path / RESULTS if path.is_dir() else path
        if file.exists() and not file.is_file():
            raise UsageError(f"{file} is no file; a results.json, or the folder of a run, belongs there")
        if file.stat().st_size > LARGEST:
            raise UsageError(f"{file} has {file.stat().st_size} bytes; no results.json has more than {LARGEST}")
        data = file.read_bytes()
    except FileNotFoundError:
        raise UsageError(_absent(path, file)) from None
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise UsageError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        document = parse_document(data, str(file))
    except DocumentError as error:
        faults = str(error).splitlines()
        rest = len(faults) - _SHOWN
        raise UsageError(*faults[:_SHOWN], *([f"{file}: {rest} more faults like these"] if rest > 0 else [])) from error
    return Record(file, hashlib.sha256(data).hexdigest(), document)


def _absent(path: Path, file: Path) -> str:
    if file == path:
        return f"there is no file {path}"
    if (path / JOURNAL).exists():
        said = f"{path} holds no {RESULTS}, but a {JOURNAL}: the run in it has not ended, or was killed before its end"
        try:
            argv = read_journal(path).header.argv
        except JournalError as error:
            return f"{said}; it cannot be resumed: {error}"
        return f"{said}; if it is not at work any more, `--resume` goes on: {resume_command(argv, path)}"
    return f"{path} holds no {RESULTS}; name the folder that a run wrote (--output), or the file"
