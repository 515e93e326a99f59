"""Planted faults in the record of a run: what was injected to see whether it is found, and what became of it.

A run whose planted fault was not found is VOID: it could not have seen that fault in the engine under test either.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from conformance.results.plain import RecordError, exactly, list_at, text_at

Fate = Literal["found", "missed", "not planted"]


@dataclass(frozen=True)
class Planted:
    """One fault in one suite on one target; `fault` is the injection's text, empty where nothing could be planted."""

    suite: str
    role: str
    target: str
    model: str
    fault: str
    fate: Fate
    reason: str  # what found it, or why it was not

    @property
    def place(self) -> tuple[str, str, str]:
        """Where it was planted: one fault for each."""
        return self.suite, self.role, self.target

    @property
    def name(self) -> str:
        """As messages name it."""
        return f"{self.fault or 'none'} in {self.suite} ({self.role}) on {self.target} with {self.model}"

    def to_json(self) -> dict[str, str]:
        """A mapping of JSON types only."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(data: Any, where: str = "a planted fault") -> Planted:
        """The entry that `to_json` wrote; raises `RecordError`."""
        names = [field.name for field in dataclasses.fields(Planted)]
        fields = exactly(data, names, where)
        if fields["fate"] not in get_args(Fate):
            raise RecordError(f"{where}: fate is {fields['fate']!r}, but is one of {', '.join(get_args(Fate))}")
        return Planted(**{name: text_at(fields[name], f"{where}, {name}") for name in names})  # type: ignore[arg-type]


def void_reasons(planted: Iterable[Planted]) -> list[str]:
    """Why a run is VOID, a sentence for each planted fault that was missed; empty for a run that counts."""
    return [f"the planted fault {one.name} was not found: {one.reason}" for one in planted if one.fate == "missed"]


def block(planted: Sequence[Planted]) -> dict[str, Any]:
    """What results.json has under `planted`."""
    return {"void": void_reasons(planted), "faults": [one.to_json() for one in planted]}


def planted_of(document: Mapping[str, Any]) -> list[Planted]:
    """The planted faults of a results.json's content; none where it planted none. Raises `RecordError`."""
    return [Planted.from_json(one) for one in list_at(document.get("planted", {}).get("faults", []), "planted.faults")]


def is_void(document: Mapping[str, Any]) -> bool:
    """Whether the run of a results.json's content is VOID."""
    return bool(document.get("planted", {}).get("void"))


def summary(planted: Sequence[Planted]) -> str:
    """One line: how many were found, and how many could not be planted."""
    found, missed = (sum(one.fate == fate for one in planted) for fate in ("found", "missed"))
    absent = len(planted) - found - missed
    told = f"planted faults: {found} of {found + missed} found"
    return f"{told}; nothing could be planted in {absent} more places, which results.json names" if absent else told
