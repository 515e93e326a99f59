"""Writes the journal (`journal` has its form): a line is one write, without a buffer in this process."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from conformance.results.journal import JournalContent, RunHeader, Start
from conformance.results.output import JOURNAL, JUNIT, RESULTS, OutputError, make_folder, part_of
from conformance.results.planted import Planted
from conformance.results.record import CaseResult, Counters


def _unchanged(value: Any) -> Any:
    return value


class Journal:
    """The journal of a run that is going on. One process writes it; lines are whole or (the last one) torn."""

    def __init__(self, path: Path, descriptor: int, redact: Callable[[Any], Any], length: int = 0) -> None:
        self.path = path
        self._descriptor = descriptor
        self._redact = redact
        self._length = length  # bytes of whole lines
        self._decided = length  # bytes of the lines before the case in flight
        self._began = time.monotonic()

    @classmethod
    def create(cls, output: Path | str, header: RunHeader, *, redact: Callable[[Any], Any] = _unchanged) -> Journal:
        """Start the journal of a new run in `output`, which is created where it is missing.

        `redact` is applied to every line before it is written (`Redactor`). Raises `OutputError` where the folder
        holds a run or cannot be written. The file appears with its header in it: one without would be nobody's.
        """
        folder = make_folder(Path(output))
        path, part = folder / JOURNAL, part_of(folder / JOURNAL)
        if os.path.lexists(path):
            raise OutputError(path, "the folder holds another run; give --output a new folder")
        try:
            part.unlink(missing_ok=True)
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise OutputError.from_os(path, error) from error
        journal = cls(path, descriptor, redact)
        try:
            journal._append({"kind": "run", **header.to_json()})
            journal._force_to_disk()
            _put_in_place(part, path)
        except OutputError:
            journal._abandon()
            with contextlib.suppress(OSError):
                part.unlink()
            raise
        return journal

    @classmethod
    def resume(
        cls, output: Path | str, content: JournalContent, start: Start, *, redact: Callable[[Any], Any] = _unchanged
    ) -> Journal:
        """Go on with the journal in `output`, whose content was read before: a torn last line is cut off first.

        What was made from it is removed: it tells of less than the journal soon will. Raises `OutputError` where
        something cannot be written.
        """
        path = Path(output) / JOURNAL
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise OutputError.from_os(path, error) from error
        journal = cls(path, descriptor, redact, content.length)
        try:
            os.ftruncate(descriptor, content.length)
            journal._append(
                {"kind": "resumed", "started": start.started, "argv": list(start.argv), "boot_id": start.boot_id}
            )
            journal._force_to_disk()
            for name in (RESULTS, JUNIT):
                path.with_name(name).unlink(missing_ok=True)
        except OSError as error:
            journal._abandon()
            raise OutputError.from_os(path, error) from error
        except OutputError:
            journal._abandon()
            raise
        return journal

    def started(self, case_id: str) -> None:
        """Say that a case is about to be launched, before it is: it is in flight until `finished`.

        On the disk by then: a case that takes the host down must be found again.
        """
        decided = self._length
        self._append({"kind": "started", "id": case_id, "at": self._seconds()})
        self._decided = decided
        self._force_to_disk()

    def finished(self, result: CaseResult) -> None:
        """Record a verdict. A case that was decided without being launched needs no `started`."""
        self._append({"kind": "finished", "result": result.to_json(), "at": self._seconds()})

    def planted(self, planted: Planted) -> None:
        """Record what became of a planted fault."""
        self._append({"kind": "planted", "planted": planted.to_json(), "at": self._seconds()})

    def sync(self, target: str, counters: Counters) -> None:
        """Force everything to the disk when a target is done; `counters` are those of this process so far."""
        self._append(
            {"kind": "target", "target": target, "counters": dataclasses.asdict(counters), "at": self._seconds()}
        )
        self._force_to_disk()

    def ended(self, counters: Counters, *, interrupted: bool) -> float:
        """Say that the run came to its own end, and answer how many seconds this process took.

        What was in flight when the run was interrupted is not to blame for its end.
        """
        cost, seconds = dataclasses.asdict(counters), self._seconds()
        self._append({"kind": "ended", "interrupted": interrupted, "counters": cost, "at": seconds})
        self._force_to_disk()
        return seconds

    def close(self) -> None:
        """Force everything to the disk and close the file; harmless when repeated."""
        if self._descriptor >= 0:
            try:
                self._force_to_disk()
            finally:
                self._abandon()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _seconds(self) -> float:
        return round(time.monotonic() - self._began, 3)

    def _append(self, entry: Mapping[str, Any]) -> None:
        if self._descriptor < 0:
            raise OutputError(self.path, "the journal is closed, or a line could not be written before")
        line = (json.dumps(self._redact(entry), allow_nan=False) + "\n").encode("ascii")
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            self._take_back()
            raise OutputError.from_os(self.path, error) from error
        self._length += len(line)
        self._decided = self._length

    def _take_back(self) -> None:
        """Cut a half-written line off and write no more: a line after it would make the journal unreadable.

        The case in flight goes with it. It ended, and must not be found among those that ended the run.
        """
        try:
            os.ftruncate(self._descriptor, self._decided)
        except OSError:
            pass  # a torn last line is what the reader tolerates
        finally:
            self._abandon()

    def _force_to_disk(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise OutputError.from_os(self.path, error) from error

    def _abandon(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _put_in_place(part: Path, path: Path) -> None:
    try:
        part.rename(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise OutputError.from_os(path, error) from error
    with contextlib.suppress(OSError):  # not every file system has folders that can be forced to the disk
        os.fsync(folder)
    os.close(folder)
