"""Findings added up: how many faults were found, how often correct engines were accused, and the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.false_alarms import upper_bound
from conformance.selftest.elsewhere import RULES
from conformance.selftest.trial import OURS, Finding, Result

UNCOVERED_ALLOWED = 3
"""So many faults may lie below what these inputs can show."""

FAULT_RESULTS = (Result.FOUND, Result.MISSED, Result.NOT_COVERED, Result.NOT_APPLICABLE, Result.NOT_MEASURED)
_COUNTED = (Result.FOUND, Result.MISSED, Result.NOT_COVERED)


@dataclass(frozen=True)
class Rate:
    """`count` of `total`; `bound` is the upper end of the one-sided 95% interval of the rate (exact binomial)."""

    count: int
    total: int

    @property
    def bound(self) -> float:
        """1 where nothing was counted: nothing is known then."""
        return upper_bound(self.count, self.total)

    def to_json(self) -> dict[str, Any]:
        """A mapping of JSON types only."""
        return {"count": self.count, "total": self.total, "bound": round(self.bound, 6)}


@dataclass(frozen=True)
class RuleTally:
    """One rule: the faults that it finds of those whose outputs it looks at, and its false alarms."""

    rule: str
    detected: Rate
    alarms: Rate

    def to_json(self) -> dict[str, Any]:
        """A mapping of JSON types only."""
        return {"rule": self.rule, "detected": self.detected.to_json(), "false_alarms": self.alarms.to_json()}


@dataclass(frozen=True)
class Cell:
    """The trials of one suite, tier (dtype) and family together; an empty name stands for all."""

    suite: str
    dtype: str
    family: str
    results: Mapping[Result, int]
    smallest: float | None  # effect that would have been seen, of the faults that were not covered
    rules: tuple[RuleTally, ...]  # ours first

    @property
    def ours(self) -> RuleTally:
        """The suite's own judgements."""
        return self.rules[0]

    def to_json(self) -> dict[str, Any]:
        """A mapping of JSON types only."""
        return {
            "suite": self.suite,
            "dtype": self.dtype,
            "family": self.family,
            **{result.value.replace(" ", "_"): self.results.get(result, 0) for result in FAULT_RESULTS},
            "smallest_effect": None if self.smallest is None else round(self.smallest, 6),
            "rules": [rule.to_json() for rule in self.rules],
        }


def cell(findings: Sequence[Finding], suite: str = "", dtype: str = "", family: str = "") -> Cell:
    """Add up the findings of a suite, dtype and family of faults, or of all; false alarms know no fault's family."""
    here = [one for one in findings if suite in ("", one.suite) and dtype in ("", one.dtype)]
    faults = [one for one in here if one.kind == "fault" and family in ("", one.family)]
    correct = [one for one in here if one.kind != "fault"]
    uncovered = [one.effect.smallest for one in faults if one.effect and one.result is Result.NOT_COVERED]
    return Cell(
        suite,
        dtype,
        family,
        Counter(one.result for one in faults),
        min(uncovered, default=None),
        tuple(_tally(rule, faults, correct) for rule in (OURS, *(rule.id for rule in RULES))),
    )


def cells(findings: Sequence[Finding]) -> list[Cell]:
    """One for each suite, dtype and family of faults, in alphabetical order."""
    keys = {(one.suite, one.dtype, one.family) for one in findings if one.kind == "fault"}
    return [cell(findings, *key) for key in sorted(keys)]


def suite_cells(findings: Sequence[Finding]) -> list[Cell]:
    """One for each suite and dtype."""
    return [cell(findings, *key) for key in sorted({(one.suite, one.dtype) for one in findings})]


def _tally(rule: str, faults: Iterable[Finding], correct: Iterable[Finding]) -> RuleTally:
    counted = [one for one in faults if one.result in _COUNTED]
    if rule == OURS:
        detected = [one.result is Result.FOUND for one in counted]
    else:
        detected = [one.alarms[rule] for one in counted if rule in one.alarms]
    outputs: dict[str, bool] = {}  # bit-identical ones count once
    for one in correct:
        for ruling in one.rulings:
            if ruling.rule == rule:
                outputs[ruling.key] = outputs.get(ruling.key, False) or ruling.alarm
    return RuleTally(rule, Rate(sum(detected), len(detected)), Rate(sum(outputs.values()), len(outputs)))


@dataclass(frozen=True)
class Verdict:
    """Whether the instrument works: `reasons` says what speaks against it; empty where nothing does."""

    reasons: tuple[str, ...]
    exit_code: int


def conclude(findings: Sequence[Finding], *, interrupted: bool = False, any_faults: bool = True) -> Verdict:
    """0 where every fault was found but for at most three that could not be seen, and nothing correct was accused.

    1 otherwise, 2 where it was interrupted, 5 where nothing was tried, or no fault although `any_faults` were wanted.
    """
    faults = [one for one in findings if one.kind == "fault"]
    tried = [one for one in findings if one.result is not Result.NOT_APPLICABLE]
    reasons = [
        *_named(findings, Result.ALARM, "correct engine was accused", "correct engines were accused"),
        *_named(faults, Result.MISSED, "fault was missed", "faults were missed"),
        *_named(findings, Result.NOT_MEASURED, "trial showed nothing", "trials showed nothing"),
    ]
    uncovered = {one.name for one in faults if one.result is Result.NOT_COVERED}
    if len(uncovered) > UNCOVERED_ALLOWED:
        said = f"{len(uncovered)} faults are not covered, but at most {UNCOVERED_ALLOWED} may be"
        reasons.append(f"{said}: {', '.join(sorted(uncovered))}")
    if interrupted:
        return Verdict(tuple(reasons), 2)
    if not tried:
        return Verdict(("nothing was tried",), 5)
    if any_faults and not any(one.kind == "fault" for one in tried):
        return Verdict((*reasons, "no fault was tried"), 1 if reasons else 5)
    return Verdict(tuple(reasons), 1 if reasons else 0)


def _named(findings: Iterable[Finding], result: Result, one: str, several: str) -> list[str]:
    names = [_name(each) for each in findings if each.result is result]
    if not names:
        return []
    return [f"{len(names)} {one if len(names) == 1 else several}: {', '.join(names)}"]


def _name(finding: Finding) -> str:
    what = finding.name or "the unchanged engine"
    return f"{what} ({finding.suite}, {finding.model}, {finding.target})"
