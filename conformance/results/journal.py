"""The journal: one JSON object a line, so that whatever ends a run, everything finished before it is on disk.

Line 1 is `{"kind": "run", ...}` (the header); then `{"kind": "started", "id": ...}` before each case that is
launched, `{"kind": "finished", "result": {...}}` for each verdict, and `{"kind": "target", "target": ...}` where
everything so far was forced to the disk. A line is one write to the file, without a buffer in this process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from conformance.results.output import JOURNAL, OutputError, make_folder, remove_former_run
from conformance.results.record import CaseResult, RecordError, to_plain

NO_ESTIMATE = {"duration_s": 0.0, "learnt_s": 0.0, "cases_without": 0}


class JournalError(ValueError):
    """A journal is damaged in a way that a killed run cannot explain; the message names the file and the line."""


@dataclass(frozen=True)
class RunHeader:
    """What a run is, known before its first case."""

    backend: str
    profile_path: str
    profile_sha256: str
    plan_hash: str
    planned: tuple[str, ...]  # the ids of all cases of the plan, in its order
    argv: tuple[str, ...]
    version: str  # of conformance
    started: str  # ISO 8601, UTC
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    budget_minutes: float | None = None  # after which no further case is started
    estimate: Mapping[str, Any] = dataclasses.field(default_factory=lambda: dict(NO_ESTIMATE))

    def to_json(self) -> dict[str, Any]:
        """A mapping of JSON types only."""
        return {field.name: to_plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> RunHeader:
        """The header that `to_json` wrote; raises `RecordError`."""
        names = {field.name: field.type for field in dataclasses.fields(RunHeader)}
        if set(data) != set(names):
            raise RecordError(f"the run's header has {sorted(data)}; exactly {sorted(names)} belong there")
        values: dict[str, Any] = {}
        for name, kind in names.items():
            value = data[name]
            if kind == "str" and isinstance(value, str):
                values[name] = value
            elif kind == "tuple[str, ...]" and isinstance(value, list) and all(isinstance(v, str) for v in value):
                values[name] = tuple(value)
            elif name in ("facts", "estimate") and isinstance(value, Mapping):
                values[name] = dict(value)
            elif name == "budget_minutes" and (value is None or isinstance(value, (int, float))):
                values[name] = value
            else:
                raise RecordError(f"the run's header: {name} is {value!r}, which is no {kind}")
        return RunHeader(**values)


def _unchanged(value: Any) -> Any:
    return value


class Journal:
    """The journal of a run that is going on. One process writes it; lines are whole or (the last one) torn."""

    def __init__(self, path: Path, descriptor: int, redact: Callable[[Any], Any]) -> None:
        self.path = path
        self._descriptor = descriptor
        self._redact = redact
        self._length = 0  # bytes of whole lines

    @classmethod
    def create(
        cls,
        output: Path | str,
        header: RunHeader,
        *,
        redact: Callable[[Any], Any] = _unchanged,
        replace: bool = False,
    ) -> Journal:
        """Start the journal of a new run in `output`, which is created where it is missing.

        `redact` is applied to every line before it is written (`Redactor`). With `replace` the files of an earlier
        run in that folder are removed first; without it they make this an `OutputError`, as does a folder that
        cannot be written.
        """
        folder = make_folder(Path(output))
        if replace:
            remove_former_run(folder)
        path = folder / JOURNAL
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except FileExistsError as error:
            raise OutputError(path, "the folder holds another run; give --output a new folder") from error
        except OSError as error:
            raise OutputError.from_os(path, error) from error
        journal = cls(path, descriptor, redact)
        try:
            journal._append({"kind": "run", **header.to_json()})
            journal._force_to_disk()
        except OutputError:
            journal._abandon()
            with contextlib.suppress(OSError):  # without a header nobody could tell whose file it is
                path.unlink()
            raise
        return journal

    def started(self, case_id: str) -> None:
        """Say that a case is about to be launched, before it is: it is in flight until `finished`."""
        self._append({"kind": "started", "id": case_id})

    def finished(self, result: CaseResult) -> None:
        """Record a verdict. A case that was decided without being launched needs no `started`."""
        self._append({"kind": "finished", "result": result.to_json()})

    def sync(self, target: str) -> None:
        """Force everything to the disk when a target is done; afterwards even a dead host keeps it."""
        self._append({"kind": "target", "target": target})
        self._force_to_disk()

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

    def _take_back(self) -> None:
        """Cut a half-written line off and write no more: a line after it would make the journal unreadable."""
        try:
            os.ftruncate(self._descriptor, self._length)
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


@dataclass(frozen=True)
class JournalContent:
    """What a journal says. `in_flight` are the cases that were launched and never got a verdict."""

    header: RunHeader
    results: tuple[CaseResult, ...]
    in_flight: tuple[str, ...]
    synced: tuple[str, ...]  # targets that were forced to the disk
    torn: bool  # whether the last line was cut off, as a killed run leaves it


def read_journal(output: Path | str) -> JournalContent:
    """Read the journal in the folder `output`. A torn last line is dropped; every other fault is a `JournalError`."""
    path = Path(output) / JOURNAL
    try:
        data = path.read_bytes()
    except OSError as error:
        raise JournalError(f"cannot read {path}: {error.strerror}") from error
    *lines, tail = data.split(b"\n")
    if not lines:
        raise JournalError(f"{path}: not even the run's header is complete; nothing was recorded")
    header: RunHeader | None = None
    results: dict[str, CaseResult] = {}
    launched: dict[str, None] = {}
    synced: list[str] = []
    for number, line in enumerate(lines, start=1):
        where = f"{path}, line {number}"
        entry = _entry(line, where)
        kind = entry.pop("kind")
        if (kind == "run") != (number == 1):
            raise JournalError(f"{where}: kind {kind!r}; the first line, and no other, is the run's header")
        try:
            if kind == "run":
                header = RunHeader.from_json(entry)
            elif kind == "started":
                case = str(entry["id"])
                if case in results:
                    raise JournalError(f"{where}: {case!r} is launched again after its verdict")
                launched[case] = None  # a second time before its verdict is another attempt
            elif kind == "finished":
                result = CaseResult.from_json(entry["result"])
                if result.id in results:
                    raise JournalError(f"{where}: {result.id!r} gets a second verdict")
                results[result.id] = result
            elif kind == "target":
                synced.append(str(entry["target"]))
            else:
                raise JournalError(f"{where}: kind {kind!r} is none of 'started', 'finished', 'target'")
        except RecordError as error:
            raise JournalError(f"{where}: {error}") from error
        except KeyError as error:
            raise JournalError(f"{where}: a line of kind {kind!r} without {error}") from error
    assert header is not None  # line 1 is the header or an error
    in_flight = tuple(case for case in launched if case not in results)
    return JournalContent(header, tuple(results.values()), in_flight, tuple(synced), torn=bool(tail))


def _entry(line: bytes, where: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise JournalError(f"{where}: no JSON ({error}); only the last line of a killed run may be cut off") from error
    if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str):
        raise JournalError(f"{where}: a JSON object with a 'kind' belongs there")
    return entry
