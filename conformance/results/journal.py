"""The journal: one JSON object a line, so that whatever ends a run, everything finished before it is on disk.

Line 1 is `{"kind": "run", ...}` (the header); then `{"kind": "started", "id": ...}` before each case that is
launched, `{"kind": "finished", "result": {...}}` for each verdict, `{"kind": "target", "target": ...}` where
everything so far was forced to the disk, `{"kind": "ended"}` where the run came to its own end,
`{"kind": "planted", ...}` for each planted fault, and `{"kind": "resumed", ...}` where a later process went on. `at`
in a line is in seconds since the process began to write, on the clock that never jumps. `journal_writer` writes it.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.results.output import JOURNAL
from conformance.results.plain import RecordError, number_from_json, to_plain
from conformance.results.planted import Planted
from conformance.results.record import CaseResult, Counters
from conformance.verdict import Verdict

RUN_AGAIN = (Verdict.ENVIRONMENT, Verdict.NOT_RUN)
"""Verdicts that a resumed run drops: nothing was measured, and what stood in the way may be gone."""

NO_ESTIMATE = {"duration_s": 0.0, "learnt_s": 0.0, "cases_without": 0}


_CENTURY = 3.2e9  # seconds


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
    boot_id: str = ""  # of the host, another after each boot; empty where it has none
    models: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # what tells changed files of a model's folder
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
            elif name in ("models", "facts", "estimate") and isinstance(value, Mapping):
                values[name] = dict(value)
            elif name == "budget_minutes" and (value is None or isinstance(value, (int, float))):
                values[name] = value
            else:
                raise RecordError(f"the run's header: {name} is {value!r}, which is no {kind}")
        return RunHeader(**values)


@dataclass(frozen=True)
class Start:
    """A process that worked on a run: the one that began it, or one that resumed it."""

    started: str  # ISO 8601, UTC
    argv: tuple[str, ...]
    boot_id: str = ""
    seconds: float = 0.0  # until its last line
    counters: Counters = dataclasses.field(default_factory=Counters)
    interrupted: bool = False

    @property
    def ended(self) -> str:
        """When its last line was written, ISO 8601, UTC: the clock's time at its start, and the seconds since."""
        end = _time(self.started) + datetime.timedelta(seconds=self.seconds)
        return end.isoformat(timespec="milliseconds")


def _time(text: str) -> datetime.datetime:
    """Raises RecordError."""
    try:
        time = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise RecordError(f"'started' is {text!r}, but should be a time like 2026-11-30T10:00:00.000+00:00")
    return time


@dataclass(frozen=True)
class JournalContent:
    """What a journal says."""

    header: RunHeader
    starts: tuple[Start, ...]  # the first, and one for each resume
    results: tuple[CaseResult, ...]  # without those that the last resume dropped (`RUN_AGAIN`)
    launches: Mapping[str, tuple[int, ...]]  # case without a verdict -> the starts that it was in flight at the end of
    synced: tuple[str, ...]  # targets that were forced to the disk
    torn: bool  # whether the last line was cut off, as a killed run leaves it
    length: int  # bytes of whole lines
    planted: tuple[Planted, ...] = ()  # faults that were planted, and what became of them

    @property
    def in_flight(self) -> tuple[str, ...]:
        """The cases that were launched and never got a verdict."""
        return tuple(self.launches)

    @property
    def kept(self) -> tuple[CaseResult, ...]:
        """The results that a resume keeps."""
        return tuple(result for result in self.results if result.verdict not in RUN_AGAIN)

    @property
    def pending(self) -> tuple[str, ...]:
        """The planned cases that a resume has to bring to a verdict, those among them that could not run before."""
        settled = {result.id for result in self.kept}
        return tuple(case for case in self.header.planned if case not in settled)


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
    reading = _Reading()
    for number, line in enumerate(lines, start=1):
        where = f"{path}, line {number}"
        entry = _entry(line, where)
        kind = entry.pop("kind")
        if (kind == "run") != (number == 1):
            raise JournalError(f"{where}: kind {kind!r}; the first line, and no other, is the run's header")
        take = reading.takers.get(kind)
        if take is None:
            raise JournalError(f"{where}: kind {kind!r} is none of {', '.join(map(repr, reading.takers))}")
        try:
            take(entry)
        except RecordError as error:
            raise JournalError(f"{where}: {error}") from error
        except KeyError as error:
            raise JournalError(f"{where}: a line of kind {kind!r} without {error}") from error
    return reading.content(torn=bool(tail), length=len(data) - len(tail))


class _Reading:
    """What the lines up to here say. Its methods raise RecordError and KeyError, the latter for a missing key."""

    def __init__(self) -> None:
        self.takers: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
            "run": self._run,
            "started": self._started,
            "finished": self._finished,
            "target": self._target,
            "ended": self._ended,
            "resumed": self._resumed,
            "planted": self._planted_fault,
        }
        self._header: RunHeader | None = None
        self._ids: frozenset[str] = frozenset()
        self._starts: list[Start] = []
        self._results: dict[str, CaseResult] = {}
        self._launches: dict[str, list[int]] = {}
        self._synced: list[str] = []
        self._planted_faults: list[Planted] = []

    def content(self, *, torn: bool, length: int) -> JournalContent:
        assert self._header is not None  # line 1 is the header or an error
        return JournalContent(
            self._header,
            tuple(self._starts),
            tuple(self._results.values()),
            {case: tuple(starts) for case, starts in self._launches.items()},
            tuple(self._synced),
            torn,
            length,
            tuple(self._planted_faults),
        )

    def _run(self, entry: Mapping[str, Any]) -> None:
        header = self._header = RunHeader.from_json(entry)
        _time(header.started)
        self._ids = frozenset(header.planned)
        self._starts.append(Start(header.started, header.argv, header.boot_id))

    def _started(self, entry: Mapping[str, Any]) -> None:
        case, now = self._planned(entry["id"]), len(self._starts) - 1
        self._pass_time(entry)
        if case in self._results:
            raise RecordError(f"{case!r} is launched again after its verdict")
        launches = self._launches.setdefault(case, [])
        if now not in launches:  # a second time in the same process is another attempt
            launches.append(now)

    def _finished(self, entry: Mapping[str, Any]) -> None:
        result = CaseResult.from_json(entry["result"])
        self._pass_time(entry)
        if self._planned(result.id) in self._results:
            raise RecordError(f"{result.id!r} gets a second verdict")
        self._results[result.id] = result
        self._launches.pop(result.id, None)

    def _target(self, entry: Mapping[str, Any]) -> None:
        self._synced.append(str(entry["target"]))
        self._pass_time(entry, counters=Counters.from_json(entry["counters"], "counters"))

    def _ended(self, entry: Mapping[str, Any]) -> None:
        counters = Counters.from_json(entry["counters"], "counters")
        self._pass_time(entry, counters=counters, interrupted=bool(entry["interrupted"]))
        now = len(self._starts) - 1
        left = {case: [start for start in starts if start != now] for case, starts in self._launches.items()}
        self._launches = {case: starts for case, starts in left.items() if starts}

    def _resumed(self, entry: Mapping[str, Any]) -> None:
        started, argv, boot_id = entry["started"], entry["argv"], entry["boot_id"]
        if not (isinstance(started, str) and isinstance(boot_id, str) and isinstance(argv, list)):
            raise RecordError("'started' and 'boot_id' should be text, and 'argv' a list")
        _time(started)
        self._starts.append(Start(started, tuple(map(str, argv)), boot_id))
        self._results = {case: result for case, result in self._results.items() if result.verdict not in RUN_AGAIN}

    def _planted_fault(self, entry: Mapping[str, Any]) -> None:
        self._planted_faults.append(Planted.from_json(entry["planted"]))
        self._pass_time(entry)

    def _planned(self, case: Any) -> str:
        if not isinstance(case, str) or case not in self._ids:
            raise RecordError(f"{case!r} is no case of the plan that the header lists")
        return case

    def _pass_time(self, entry: Mapping[str, Any], **changes: Any) -> None:
        seconds = number_from_json(entry["at"], "at")
        if not 0 <= seconds < _CENTURY:
            raise RecordError(f"at: {seconds} is no number of seconds that a run may take")
        self._starts[-1] = dataclasses.replace(self._starts[-1], seconds=seconds, **changes)


def _entry(line: bytes, where: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise JournalError(f"{where}: no JSON ({error}); only the last line of a killed run may be cut off") from error
    if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str):
        raise JournalError(f"{where}: a JSON object with a 'kind' belongs there")
    return entry
