"""One constant by which criteria judge: what it is, what was measured for it, and how it is read from a TOML table."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from conformance.names import did_you_mean
from conformance.results.printable import one_line

Standing = Literal["measured", "provisional", ""]
"""What a constant is on a class of device: measured there, measured elsewhere or nowhere, or a rule."""

ROOM = 1.1
"""A limit may be so many times the greatest p99.9 that was measured, or its floor where that is more."""


@dataclass(frozen=True)
class Measured:
    """What correct variations reach on one class of device ("cpu", "cuda" ...), on the scale of the constant."""

    device: str
    p999: float
    worst: float
    samples: int
    on: tuple[str, ...]  # attention backends
    when: datetime.date
    command: str


@dataclass(frozen=True)
class Limit:
    """One constant: its value, where that comes from, and the release that set it.

    `floor` is None for a rule. Otherwise the value rests on what was `measured`: at least the greatest p99.9 of correct
    variations, and at most 1.1 times it or the floor, the value that is wide enough whatever was measured so far.
    """

    name: str
    value: float
    provenance: str
    since: str
    floor: float | None = None
    measured: tuple[Measured, ...] = ()

    def standing(self, device: str) -> Standing:
        """What the constant is on this class of device."""
        if self.floor is None:
            return ""
        return "measured" if any(each.device == device for each in self.measured) else "provisional"

    @property
    def widest(self) -> float:
        """The greatest value that the measurements allow; no end for a rule."""
        if self.floor is None:
            return math.inf
        return max([self.floor, *(ROOM * each.p999 for each in self.measured)])


@dataclass(frozen=True)
class Series:
    """A constant that is a list of numbers, in ascending or descending order."""

    name: str
    values: tuple[float, ...]
    provenance: str
    since: str


_GREATEST = 2**63
_KEYS = ("value", "provenance", "since")
_OPTIONAL = ("floor", "measured")
_MEASURED = ("p999", "worst", "samples", "on", "when", "command")


def name_faults(what: str, given: Any, known: Iterable[str]) -> list[str]:
    """One sentence for each name in the table `given` that is unknown, and for each that is missing."""
    names = list(known)
    if not isinstance(given, Mapping):
        return [f"{what}: {given!r} must be a table with {', '.join(names)}"]
    return [f"unknown {what}: {name!r}; {did_you_mean(name, names)}" for name in given if name not in names] + [
        f"missing {what}: {name!r}" for name in names if name not in given
    ]


def read_entry(name: str, table: Any, *, series: bool) -> tuple[Limit | Series | None, list[str]]:
    """The constant `name` from its table, a list of numbers where `series`; or None, and every fault."""
    if not isinstance(table, Mapping):
        return None, [f"{name} must be a table with {', '.join(_KEYS)}"]
    faults = name_faults(f"key of {name}", {key: table[key] for key in table if series or key not in _OPTIONAL}, _KEYS)
    if faults:
        return None, faults
    value, provenance, since = table["value"], table["provenance"], table["since"]
    if not (isinstance(provenance, str) and provenance.strip() and isinstance(since, str) and since.strip()):
        faults.append(f"{name} needs a provenance and the release that set it, both as text")
    if series:
        numbers = value if isinstance(value, list) else []
        if not numbers or not all(_is_number(number) for number in numbers):
            faults.append(f"{name}.value={value!r} must be a list of finite numbers")
        return (None if faults else Series(name, tuple(map(float, numbers)), provenance, since)), faults
    faults += [
        f"{name}.{key}={one_line(repr(table[key]), 80)} must be a finite number"
        for key in ("value", "floor")
        if key in table and not _is_number(table[key])
    ]
    measured, found = _measurements(name, table.get("measured", {}))
    faults += found
    if "floor" not in table and "measured" in table:
        faults.append(f"{name} is measured, so it needs a floor: the value that is wide enough whatever was measured")
    if faults:
        return None, faults
    floor = float(table["floor"]) if "floor" in table else None
    limit = Limit(name, float(value), provenance, since, floor, measured)
    return limit, _range_faults(limit)


def _measurements(name: str, table: Any) -> tuple[tuple[Measured, ...], list[str]]:
    if not isinstance(table, Mapping):
        return (), [f"{name}.measured={table!r} must be a table of device classes, as in [{name}.measured.cpu]"]
    measured: list[Measured] = []
    faults: list[str] = []
    for device, entry in table.items():
        where = f"{name}.measured.{device}"
        found = name_faults(f"key of {where}", entry, _MEASURED)
        if not found:
            on, when, samples = entry["on"], entry["when"], entry["samples"]
            p999, worst = entry["p999"], entry["worst"]
            wrong = {
                "p999": not (_is_number(p999) and p999 >= 0),
                "worst": not (_is_number(worst) and (not _is_number(p999) or worst >= p999)),
                "samples": not (isinstance(samples, int) and not isinstance(samples, bool) and samples > 0),
                "on": not (isinstance(on, list) and on and all(isinstance(each, str) and each for each in on)),
                "when": not isinstance(when, datetime.date) or isinstance(when, datetime.datetime),
                "command": not (isinstance(entry["command"], str) and entry["command"].strip()),
            }
            found = [
                f"{where}.{key}={entry[key]!r} must be {_MUST[key]}" for key, is_wrong in wrong.items() if is_wrong
            ]
        faults += found
        if not found:
            measured.append(Measured(device, float(p999), float(worst), samples, tuple(on), when, entry["command"]))
    return tuple(measured), faults


_MUST = {
    "p999": "a number of at least 0",
    "worst": "a number that is not below p999",
    "samples": "a whole number above 0",
    "on": "a list of attention backends",
    "when": "a date, as in 2026-11-30",
    "command": "the command that measured it",
}


def _range_faults(limit: Limit) -> list[str]:
    faults = []
    if limit.value > limit.widest:
        greatest = max(limit.measured, key=lambda each: each.p999, default=None)
        said = f"{ROOM:g} times its p99.9, {greatest.p999:g} on {greatest.device}" if greatest else "not measured"
        faults.append(
            f"{limit.name}.value={limit.value:g} is looser than measured: at most {limit.widest:g} is allowed, the "
            f"greater of its floor, {limit.floor:g}, and of what was measured ({said})"
        )
    faults += [
        f"{limit.name}.value={limit.value:g} would accuse correct variations: their p99.9 on {each.device} is "
        f"{each.p999:g} ({each.command})"
        for each in limit.measured
        if limit.value < each.p999
    ]
    return faults


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) <= _GREATEST  # whole numbers have no end
