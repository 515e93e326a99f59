"""One trial of selftest, and what came of it: the cases of one suite on one target and one model, with one change.

The change is an injected fault, which must be found, a correct variation (a null), which must not be accused, or
none at all: the clean trial, against which the others are held.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from conformance.execution.group import Group
from conformance.results.plain import number_to_json

Kind = Literal["clean", "fault", "null"]

OURS = "conformance"
"""The name under which the suites' own judgements stand beside the rules in use elsewhere."""


class Result(str, enum.Enum):
    """What became of a trial."""

    FOUND = "found"  # a fault: a case FAILs that the clean engine passes
    MISSED = "missed"  # a fault: no case FAILs
    NOT_COVERED = "not covered"  # a fault: missed, and its effect was below what these inputs can show
    NOT_APPLICABLE = "not applicable"  # the model, or the engine, has no place for it
    NOT_MEASURED = "not measured"  # the engine crashed or raised, or the clean engine fails: nothing is shown
    QUIET = "no alarm"  # a null, or the clean engine: every case passes
    ALARM = "false alarm"  # a null, or the clean engine: a case does not pass

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Trial:
    """What is run. `name` is an injection's text or a null's id, empty for the clean trial.

    The group's cases carry the engine's options that make the change. A `structural` fault is one that must be found
    in 16 bit too, so a miss of it is never excused.
    """

    kind: Kind
    name: str
    family: str
    group: Group
    engine_class: str
    structural: bool = False

    @property
    def suite(self) -> str:
        """The suite's name."""
        return self.group.first.suite

    @property
    def dtype(self) -> str:
        """The tier."""
        return self.group.first.effective_target.dtype

    @property
    def place(self) -> tuple[str, str, str]:
        """What a trial shares with the clean one that it is held against: suite class, target, model."""
        first = self.group.first
        return first.suite_path, first.effective_target.id, first.model.name


@dataclass(frozen=True)
class Evidence:
    """What decided: the test, and the figure that went furthest beyond its limit, or the message where none did."""

    test: str
    requirement_id: str
    criterion: str
    figure: str
    value: float | None
    limit: float | None
    margin: float | None  # value / limit, as in every report
    message: str

    def to_json(self) -> dict[str, Any]:
        """A mapping of JSON types only."""
        return {
            name: number_to_json(value) if isinstance(value, float) else value
            for name, value in dataclasses.asdict(self).items()
        }


@dataclass(frozen=True)
class Effect:
    """How far a fault moved what one test compares, in units of honest rounding's error (rms over rms).

    `smallest` is the least such effect that the test's pooled ratio would have shown.
    """

    test: str
    size: float
    smallest: float

    def to_json(self) -> dict[str, Any]:
        """A mapping of JSON types only."""
        return {"test": self.test, "size": number_to_json(self.size), "smallest": number_to_json(self.smallest)}


@dataclass(frozen=True)
class Ruling:
    """What one rule said of one output: `key` tells outputs apart, so that bit-identical ones count once."""

    rule: str
    key: str
    alarm: bool


@dataclass(frozen=True)
class Finding:
    """A trial's result. `rulings` are all judgements, ours and those of the rules elsewhere."""

    kind: Kind
    name: str
    family: str
    suite: str
    role: str
    model: str
    target: str
    dtype: str
    structural: bool
    result: Result
    reason: str = ""
    evidence: Evidence | None = None
    effect: Effect | None = None
    rulings: tuple[Ruling, ...] = field(default=(), repr=False)
    seconds: float = 0.0

    @property
    def alarms(self) -> Mapping[str, bool]:
        """Of every rule that said anything: whether it raised an alarm."""
        found: dict[str, bool] = {}
        for ruling in self.rulings:
            found[ruling.rule] = found.get(ruling.rule, False) or ruling.alarm
        return found

    def to_json(self) -> dict[str, Any]:
        """A mapping of JSON types only."""
        return {
            "kind": self.kind,
            "name": self.name,
            "family": self.family,
            "suite": self.suite,
            "role": self.role,
            "model": self.model,
            "target": self.target,
            "dtype": self.dtype,
            "structural": self.structural,
            "result": self.result.value,
            "reason": self.reason,
            "evidence": None if self.evidence is None else self.evidence.to_json(),
            "effect": None if self.effect is None else self.effect.to_json(),
            "elsewhere": {rule: alarm for rule, alarm in self.alarms.items() if rule != OURS},
            "judgements": sum(ruling.rule == OURS for ruling in self.rulings),
            "seconds": round(self.seconds, 3),
        }
