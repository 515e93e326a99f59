"""Quirks: documented, dated, evidenced deviations that change how a case runs."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from conformance import predicate
from conformance.target import Target

SHRINKING = ("skip", "max_tokens", "batch_size", "dtype", "attention", "vision")
"""Effects after which less is covered than the case promises: the quirk has to say what."""


@dataclass(frozen=True)
class Quirk:
    """One quirk as the profile has it. `effect` holds only the effects that `combine` applies."""

    id: str
    kind: str
    when: Mapping[str, Any]
    effect: Mapping[str, Any]
    reason: str
    evidence: tuple[Mapping[str, Any], ...]
    link: str
    owner: str
    added: datetime.date
    expires: datetime.date
    uncovered: str = ""

    def expired(self, as_of: datetime.date) -> bool:
        """Whether the quirk no longer holds on that day; on the day it expires it still does."""
        return as_of > self.expires


@dataclass(frozen=True)
class Change:
    """What a set of quirks makes of one case. `skip` names the quirk that skips it; `conflicts` are sentences."""

    skip: Quirk | None = None
    dtype: str | None = None
    attention: str | None = None
    vision: str | None = None
    settings: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    conflicts: tuple[str, ...] = ()

    def retarget(self, target: Target) -> Target:
        """The target that runs once other attention backends or another dtype are in place."""
        attention = self.attention or target.attention
        axes = dict(target.axes)
        if self.vision is not None:
            axes["vision"] = self.vision
        if axes.get("vision") == attention:
            del axes["vision"]
        return replace(target, attention=attention, dtype=self.dtype or target.dtype, axes=tuple(axes.items()))


def combine(quirks: Iterable[Quirk]) -> Change:
    """Put the effects of all quirks that apply to one case together.

    Of caps (max_tokens, batch_size) the smallest holds, of top_k the largest. Two quirks that want different values
    of anything else contradict each other.
    """
    skip: Quirk | None = None
    settings: dict[str, int] = {}
    chosen: dict[tuple[str, str], tuple[Any, str]] = {}
    conflicts: list[str] = []

    def choose(table: str, key: str, value: Any, quirk: Quirk) -> None:
        first, by = chosen.setdefault((table, key), (value, quirk.id))
        if first != value:
            name = f"{table}.{key}" if key else table
            conflicts.append(f"quirks {by!r} and {quirk.id!r} both apply and set {name} to {first!r} and to {value!r}")

    for quirk in quirks:
        for effect, value in quirk.effect.items():
            if effect == "skip":
                skip = skip or quirk
            elif effect == "top_k":
                settings[effect] = max(value, settings.get(effect, value))
            elif effect in ("max_tokens", "batch_size"):
                settings[effect] = min(value, settings.get(effect, value))
            elif effect in ("dtype", "attention", "vision"):
                choose(effect, "", value, quirk)
            else:
                for key, each in value.items():
                    choose(effect, key, each, quirk)
    tables: dict[str, dict[str, Any]] = {"options": {}, "environment": {}}
    for (table, key), (value, _) in chosen.items():
        if table in tables:
            tables[table][key] = value
    return Change(
        skip,
        chosen.get(("dtype", ""), (None, ""))[0],
        chosen.get(("attention", ""), (None, ""))[0],
        chosen.get(("vision", ""), (None, ""))[0],
        settings,
        tables["options"],
        tables["environment"],
        tuple(conflicts),
    )


def parse_quirk(entry: Mapping[str, Any], place: str, faults: list[str]) -> Quirk | None:
    """A quirk from a table whose structure is right; what else is wrong with it is added to `faults`."""
    found = [f"{place}.when.{fault}" for fault in predicate.faults(entry["when"])]
    added, expires = _date(entry["added"]), _date(entry["expires"])
    if expires <= added:
        found.append(f"{place}.expires: {expires} is not after `added` ({added}); give the day it is re-tested by")
    shrinking = [effect for effect in entry["effect"] if effect in SHRINKING]
    if shrinking and "uncovered" not in entry:
        found.append(
            f"{place}: 'uncovered' is missing; {shrinking[0]} shrinks what is tested, so say what no longer is"
        )
    faults.extend(found)
    if found:
        return None
    return Quirk(
        id=entry["id"],
        kind=entry["kind"],
        when=entry["when"],
        effect=entry["effect"],
        reason=entry["reason"],
        evidence=tuple(entry["evidence"]),
        link=entry["link"],
        owner=entry["owner"],
        added=added,
        expires=expires,
        uncovered=entry.get("uncovered", ""),
    )


def _date(value: datetime.date | str) -> datetime.date:
    if isinstance(value, datetime.datetime):
        return value.date()
    return value if isinstance(value, datetime.date) else datetime.date.fromisoformat(value)
