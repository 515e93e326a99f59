"""How long a plan will take: learnt from earlier runs where there are any, declared by suites and profile elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.catalogue import NO_MODEL
from conformance.duration import clock
from conformance.inventory import Suite
from conformance.plan import Case, Plan
from conformance.profile import Profile
from conformance.timings import Timings


@dataclass(frozen=True)
class Part:
    """One suite on one target and one model, as far as it is to be run. `seconds` is None where nobody knows."""

    suite: str
    target: str
    model: str
    cases: int
    seconds: float | None
    is_learnt: bool = False


@dataclass(frozen=True)
class Estimate:
    """The parts of a plan that are to be run, in its order."""

    parts: tuple[Part, ...] = ()

    @property
    def seconds(self) -> float:
        """Of all parts that have an estimate."""
        return sum(part.seconds for part in self.parts if part.seconds is not None)

    @property
    def learnt_seconds(self) -> float:
        """What of it was learnt from earlier runs."""
        return sum(part.seconds for part in self.parts if part.seconds is not None and part.is_learnt)

    @property
    def cases_without(self) -> int:
        """How many cases are in parts without an estimate."""
        return sum(part.cases for part in self.parts if part.seconds is None)

    def of(self, suite: str) -> Estimate:
        """The part of it that is one suite's."""
        return Estimate(tuple(part for part in self.parts if part.suite == suite))

    def record(self) -> dict[str, Any]:
        """As results.json has it."""
        return {
            "duration_s": round(self.seconds, 3),
            "learnt_s": round(self.learnt_seconds, 3),
            "cases_without": self.cases_without,
        }


def estimate(plan: Plan, suites: Iterable[Suite], profile: Profile, timings: Timings, device: str) -> Estimate:
    """The estimate of what a plan runs; `device` is the name of the device that it runs on, empty if unknown."""
    seconds = {suite.path: suite.seconds for suite in suites}
    parts: dict[tuple[str, str, str], list[Case]] = {}
    for case in plan.cases:
        if case.verdict is None:
            parts.setdefault((case.suite, case.target.id, case.model.name), []).append(case)
    found = []
    referenced: set[tuple[str, str]] = set()
    for (suite, target, model), cases in parts.items():
        learnt = timings.seconds((plan.backend, target, model, suite), {case.test for case in cases}, device)
        declared = profile.estimates.get(cases[0].model.tier, {}).get(suite)
        if declared is None and cases[0].model.tier in ("embedded", NO_MODEL):
            declared = _sum(seconds.get(path) for path in {case.suite_path for case in cases})
        if declared is None and (fit := cases[0].fit) is not None:
            computes = (suite, model) not in referenced  # the reference, once for all targets
            declared = (fit.engine_s or 0.0) + (fit.reference_s if computes else 0.0)
            referenced.add((suite, model))
        found.append(
            Part(suite, target, model, len(cases), declared if learnt is None else learnt, is_learnt=learnt is not None)
        )
    return Estimate(tuple(found))


def beyond_budget(found: Estimate, budget: float) -> str:
    """What to say before a run whose estimate exceeds its budget (seconds): what to drop, or how much more it needs."""
    if found.seconds <= budget:
        return ""
    by_suite = {part.suite: found.of(part.suite).seconds for part in found.parts}
    dropped, rest = _drop(by_suite, budget)
    said = (
        f"the estimate of {clock(found.seconds)} exceeds the budget of {clock(budget)}: "
        "what has not started by then will be NOT_RUN. "
    )
    if rest:
        left = " ".join(f"--suite {suite}" for suite in rest)
        said += (
            f"Without {', '.join(f'{suite} ({clock(by_suite[suite])})' for suite in dropped)}, "
            f"the run would take {clock(sum(by_suite[suite] for suite in rest))}: {left}; or "
        )
    else:
        said += "No suite fits in whole: ask for fewer targets (--attention, --dtype), or "
    return said + f"give it --budget {math.ceil(found.seconds / 60)}"


def _drop(by_suite: Mapping[str, float], budget: float) -> tuple[list[str], list[str]]:
    """The longest suites, dropped until the rest fits; and the rest, in its order."""
    rest = dict(by_suite)
    dropped: list[str] = []
    for suite in sorted(by_suite, key=lambda suite: (-by_suite[suite], suite)):
        if sum(rest.values()) <= budget:
            break
        dropped.append(suite)
        del rest[suite]
    return dropped, list(rest)


def _sum(seconds: Iterable[float | None]) -> float | None:
    known: Sequence[float | None] = list(seconds)
    return None if None in known else sum(each for each in known if each is not None)
