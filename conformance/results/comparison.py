"""Two runs' verdicts side by side: which failures are new, which were there before, which are gone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from conformance.verdict import Verdict


@dataclass(frozen=True)
class Change:
    """One case, and its verdicts in the earlier run and in the later one; None where a run has none for it."""

    case: str
    before: Verdict | None
    now: Verdict | None

    def to_json(self) -> dict[str, Any]:
        """A mapping of JSON types only."""
        return {
            "case": self.case,
            "before": None if self.before is None else self.before.value,
            "now": None if self.now is None else self.now.value,
        }


@dataclass(frozen=True)
class Comparison:
    """Every case that fails in one of two runs, exactly once."""

    new: tuple[Change, ...]  # fails now and did not before, or was not there
    known: tuple[Change, ...]  # fails now and did before, in whatever way
    fixed: tuple[Change, ...]  # failed before, and was executed now without failing
    unseen: tuple[Change, ...]  # failed before, and was not executed now

    def to_json(self) -> dict[str, Any]:
        """A mapping of JSON types only."""
        return {
            field.name: [change.to_json() for change in getattr(self, field.name)]
            for field in dataclasses.fields(Comparison)
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Comparison:
        """The comparison that `to_json` wrote; other keys of `data` are passed over."""
        return Comparison(
            **{
                field.name: tuple(_change(entry) for entry in data[field.name])
                for field in dataclasses.fields(Comparison)
            }
        )

    def is_of(self, now: Mapping[str, Verdict]) -> bool:
        """Whether these are the changes to the later run's verdicts `now` from what they say of the earlier run."""
        every = (*self.new, *self.known, *self.fixed, *self.unseen)
        before = {change.case: change.before for change in every if change.before is not None}
        return _unordered(compare(before, now)) == _unordered(self)


def verdicts(document: Mapping[str, Any]) -> dict[str, Verdict]:
    """The verdicts of a results.json's content by case id, in its order."""
    return {case["id"]: Verdict(case["verdict"]) for case in document["cases"]}


def compare(before: Mapping[str, Verdict], now: Mapping[str, Verdict]) -> Comparison:
    """Compare two runs' verdicts by case id. Cases that fail in neither are left out."""
    failing = [Change(case, before.get(case), verdict) for case, verdict in now.items() if verdict.is_failure]
    failed = [
        Change(case, verdict, now.get(case))
        for case, verdict in before.items()
        if verdict.is_failure and not _fails(now.get(case))
    ]
    return Comparison(
        new=tuple(change for change in failing if not _fails(change.before)),
        known=tuple(change for change in failing if _fails(change.before)),
        fixed=tuple(change for change in failed if change.now is not None and change.now.is_executed),
        unseen=tuple(change for change in failed if change.now is None or not change.now.is_executed),
    )


def _fails(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.is_failure


def _change(data: Mapping[str, Any]) -> Change:
    before, now = (None if data[key] is None else Verdict(data[key]) for key in ("before", "now"))
    return Change(data["case"], before, now)


def _unordered(comparison: Comparison) -> list[list[Change]]:
    groups = (comparison.new, comparison.known, comparison.fixed, comparison.unseen)
    return [sorted(group, key=lambda change: change.case) for group in groups]
