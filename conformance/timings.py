"""How long suites took in earlier runs: a file in the cache folder that runs add to and estimates are read from.

What is remembered is one suite on one target and one model, loading included, because that is what a run can leave
out. Two runs that end at once may cost one of them its entries: that makes an estimate older, and no verdict wrong.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from conformance.target import Target
from conformance.whole_file import whole_file

FILE = "timings.json"
VERSION = 1
KEPT = 5
"""So many of the latest runs count for each suite, target and model."""

_TEXTS = ("backend", "target", "model", "suite", "device", "ended")
_WENT_WELL = frozenset({"PASS", "FAIL", "UNDERPOWERED", "XPASS", "XFAIL", "INTERMITTENT"})
"""Verdicts of cases that ran to their end. A crash, a time-out or an engine's error says nothing of the next run."""


@dataclass(frozen=True)
class Timing:
    """One suite on one target and one model in one run; `tests` are those that ran. `device` is empty if unknown."""

    backend: str
    target: str
    model: str
    suite: str
    device: str
    tests: tuple[str, ...]  # sorted
    seconds: float  # of all of them together
    ended: str  # ISO 8601, UTC

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What an estimate asks for."""
        return self.backend, self.target, self.model, self.suite


@dataclass(frozen=True)
class Timings:
    """What is remembered, oldest first; `fault` says why nothing is where the file is damaged."""

    entries: tuple[Timing, ...] = ()
    fault: str = ""
    _by_key: dict[tuple[str, str, str, str], list[Timing]] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for entry in self.entries:
            self._by_key.setdefault(entry.key, []).append(entry)

    def seconds(self, key: tuple[str, str, str, str], tests: Iterable[str], device: str) -> float | None:
        """The median of the last runs of these tests, or None where there was none.

        Runs on the device of that name come first, where there are any; so do runs of exactly these tests. A run
        of these and others gives an upper bound: how the time is shared among them nobody measured.
        """
        import statistics

        wanted = set(tests)
        found = [entry for entry in self._by_key.get(key, []) if wanted <= set(entry.tests)]
        found = [entry for entry in found if entry.device == device] or found
        found = [entry for entry in found if len(entry.tests) == len(wanted)] or found
        return statistics.median_low([entry.seconds for entry in found[-KEPT:]]) if found else None

    def with_run(self, document: Mapping[str, Any]) -> Timings:
        """These, and those of a finished run; of each suite, target and model the oldest are dropped."""
        entries = [*self.entries, *timings_of(document)]
        newest: dict[tuple[str, str, str, str], int] = {}
        kept = []
        for entry in reversed(entries):
            newest[entry.key] = newest.get(entry.key, 0) + 1
            if newest[entry.key] <= 2 * KEPT:  # runs of a part of the tests must not push out those of all
                kept.append(entry)
        return Timings(tuple(reversed(kept)))


def timings_of(document: Mapping[str, Any]) -> list[Timing]:
    """What the content of a results.json says about time: groups in which every case that was started ran to its end.

    The first case of a group holds the loading. What computing references took is in no case's time.
    """
    run = document["run"]
    device = str(document["facts"].get("device", {}).get("name") or "")
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for case in document["cases"]:
        if case["attempts"] > 0:
            target = case["target"]
            axes = tuple(target["axes"].items())
            name = Target(target["engine"], target["attention"], target["dtype"], axes).id
            groups.setdefault((name, case["model"], case["suite"]), []).append(case)
    found = []
    for (target_id, model, suite), cases in groups.items():
        seconds = sum(float(case["duration_s"]) for case in cases)
        if seconds > 0 and all(case["verdict"] in _WENT_WELL and case["attempts"] == 1 for case in cases):
            tests = tuple(sorted(case["test"] for case in cases))
            found.append(
                Timing(
                    run["backend"],
                    target_id,
                    model,
                    suite,
                    device,
                    tests,
                    max(0.001, round(seconds, 3)),
                    run["finished"],
                )
            )
    return found


def load(folder: Path) -> Timings:
    """What the cache folder remembers; a file that is missing, unreadable or damaged remembers nothing."""
    path = folder / FILE
    try:
        document = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return Timings()
    except (OSError, ValueError, RecursionError) as error:
        return Timings(fault=f"{path} cannot be read ({error}), so nothing was learnt from earlier runs")
    try:
        if document["version"] != VERSION:
            raise ValueError(f"its version is {document['version']!r}, and {VERSION} is known")
        return Timings(tuple(_entry(each) for each in document["timings"]))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        said = f"{type(error).__name__} {error}" if isinstance(error, (KeyError, TypeError)) else str(error)
        return Timings(fault=f"{path} is damaged ({said}), so nothing was learnt from earlier runs; delete it")


def save(folder: Path, timings: Timings) -> None:
    """Replace what the cache folder remembers, whole or not at all. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"version": VERSION, "timings": [asdict(each) for each in timings.entries]}
    with whole_file(folder / FILE) as file:
        file.write(json.dumps(content, separators=(",", ":")).encode("ascii"))


def _entry(data: Mapping[str, Any]) -> Timing:
    texts = {name: data[name] for name in _TEXTS}
    tests, seconds = data["tests"], data["seconds"]
    if not all(isinstance(text, str) for text in [*texts.values(), *tests]) or not isinstance(tests, list):
        raise ValueError("a name is no text")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
        raise ValueError(f"{seconds!r} is no number of seconds above 0")
    return Timing(**texts, tests=tuple(tests), seconds=float(seconds))
