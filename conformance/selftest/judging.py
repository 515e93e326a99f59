"""From what a trial's cases showed to its finding: found by what, missed with which effect, accused or not."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from conformance.criteria.arrays import Triple
from conformance.criteria.ratio import errors
from conformance.execution.outcome import Outcome
from conformance.judgement import Figure, Judgement, accusing
from conformance.plan import Case
from conformance.results.margin import margin
from conformance.selftest.elsewhere import RULES, Numbers, is_compared, rows_to_outputs
from conformance.selftest.kernel_rows import KERNELS, eager_answer
from conformance.selftest.trial import OURS, Effect, Evidence, Finding, Result, Ruling, Trial
from conformance.verdict import Verdict

POOLED = "pooled ratio"
"""The figure by which the effect of a fault is weighed."""

ROUNDING = 1.0
"""An effect as large as honest rounding's own error must be seen, whatever the limits are."""

LITTLE = 4
"""A test asks for little where it asks for no more than so many times the cheapest that compares numbers."""

Place = tuple[str, int]
"""A judgement of a suite: its test, and which of the test's judgements it is."""


@dataclass(frozen=True)
class Shown:
    """What one case showed."""

    case: Case
    outcome: Outcome
    judgements: tuple[Judgement, ...] = ()


@dataclass(frozen=True)
class Again:
    """What comes of judging the clean engine's observations again.

    `eager` are the answers of the same model, in the same dtype, with eager attention; `work` says what each test's
    largest question costs, in passes times prompts.
    """

    eager: Mapping[Place, Numbers] = field(default_factory=dict)
    work: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Clean:
    """What the engine showed without any change: the cases that passed, and the numbers that were compared.

    `eager` are the answers of the same model, in the same dtype, with eager attention.
    """

    passed: tuple[str, ...]  # tests, in the order in which a fault is looked for
    compared: Mapping[Place, Judgement] = field(default_factory=dict)
    cheap: frozenset[str] = frozenset()  # of the tests that compare numbers: those of little work; all if none does
    eager: Mapping[Place, Numbers] = field(default_factory=dict)


def clean_of(shown: Sequence[Shown], again: Again) -> Clean:
    """What the others are held against, from a clean trial whose every case was run.

    Faults are looked for first by the tests that compare numbers, as those see most, and then by the others; but first
    of all by those of either kind that ask for little, measured by the least of those that compare numbers.
    """
    passed = [one for one in shown if one.outcome.verdict is Verdict.PASS]
    compared = {place: judgement for one in passed for place, judgement in _compared(one)}
    sharp = {test for test, _ in compared}
    works = [again.work[test] for test in sharp if again.work.get(test)]
    little = LITTLE * min(works, default=0)
    dear = {one.case.test for one in passed if again.work.get(one.case.test, 0) > little}
    order = sorted((one.case.test for one in passed), key=lambda test: (test in dear, test not in sharp))
    cheap = sharp - dear if sharp else set(order)  # an engine held against itself is compared with no reference
    return Clean(tuple(order), compared, frozenset(cheap), again.eager)


def finding_of(trial: Trial, shown: Sequence[Shown], clean: Clean, seconds: float) -> Finding:
    """What a trial came to; `shown` are the cases that ran, of those that the clean engine passes."""
    result, reason, evidence, effect = _result(trial, shown, clean)
    first = trial.group.first
    return Finding(
        trial.kind,
        trial.name,
        trial.family,
        trial.suite,
        first.role,
        first.model.name,
        first.effective_target.id,
        trial.dtype,
        trial.structural,
        result,
        reason,
        evidence,
        effect,
        tuple(_rulings(trial, shown, clean)),
        seconds,
    )


def without_measuring(trial: Trial, result: Result, reason: str) -> Finding:
    """The finding of a trial that was not run."""
    first = trial.group.first
    place = (trial.suite, first.role, first.model.name, first.effective_target.id, trial.dtype)
    return Finding(trial.kind, trial.name, trial.family, *place, trial.structural, result, reason)


def _result(trial: Trial, shown: Sequence[Shown], clean: Clean) -> tuple[Result, str, Evidence | None, Effect | None]:
    failed = next((one for one in shown if one.outcome.verdict is Verdict.FAIL), None)
    broken = next((one for one in shown if one.outcome.verdict not in (Verdict.PASS, Verdict.FAIL)), None)
    if trial.kind != "fault":
        accused = failed or broken
        if accused is not None:
            return Result.ALARM, _said(accused), evidence_of(accused), None
        return (Result.QUIET, "", None, None) if shown else (Result.NOT_MEASURED, "no case was run", None, None)
    if failed is not None:
        return Result.FOUND, "", evidence_of(failed), None
    if not shown:
        return Result.NOT_MEASURED, "the clean engine passes no case here, so nothing can be shown", None, None
    if broken is not None:
        return Result.NOT_MEASURED, _said(broken), None, None
    effect = max(_effects(shown, clean), key=lambda one: one.size / max(one.smallest, 1e-9), default=None)
    if effect is None or effect.size == 0:
        return Result.MISSED, "nothing that the suite compares has changed", None, effect
    told = f"it moves what {effect.test} compares by {effect.size:.3g} times honest rounding's error"
    least = min(effect.smallest, ROUNDING)
    if effect.size >= least:
        return Result.MISSED, f"{told}; from {least:.3g} on it must be seen", None, effect
    told += f"; {effect.smallest:.3g} would have been seen"
    if trial.structural:
        return Result.MISSED, f"{told}, but a structural fault must be found in every tier", None, effect
    return Result.NOT_COVERED, told, None, effect


def _said(one: Shown) -> str:
    return f"{one.case.test}: {one.outcome.verdict}: {one.outcome.reason}"


def evidence_of(one: Shown) -> Evidence:
    """The figure of a failing case that went furthest beyond its limit."""
    worst: tuple[float, str, Figure] | None = None
    for judgement in one.judgements:
        for figure in judgement.figures:
            share = margin(figure)
            if share is not None and not figure.holds and (worst is None or share > worst[0]):
                worst = share, judgement.criterion, figure
    message = one.outcome.reason
    last = one.judgements[-1].criterion if one.judgements else ""
    if worst is None:
        return Evidence(one.case.test, one.case.requirement_id, last, "", None, None, None, message)
    share, criterion, figure = worst
    place = one.case.test, one.case.requirement_id, criterion
    return Evidence(*place, figure.name, figure.value, figure.limit, share, message)


def _effects(shown: Sequence[Shown], clean: Clean) -> Iterable[Effect]:
    """What a missed fault did to the numbers of each comparison, and what would have been seen."""
    for one in shown:
        for place, judgement in _compared(one):
            before, after = clean.compared.get(place), judgement.rows
            if before is None or "x" not in after or np.shape(after["x"]) != np.shape(before.rows["x"]):
                continue
            pooled = next((figure for figure in before.figures if figure.name == POOLED), None)
            if pooled is None or pooled.limit is None or not _same_question(before, judgement):
                continue
            numbers = Triple(*(np.asarray(before.rows[name], np.float64) for name in ("x", "r", "e")))
            allowed = errors(numbers, one.case.effective_target.dtype).allowed
            moved = float(np.linalg.norm(np.asarray(after["x"], np.float64) - numbers.x))
            size = moved / (float(np.linalg.norm(allowed)) or np.inf)
            yield Effect(one.case.test, size, float(np.sqrt(max(pooled.limit**2 - pooled.value**2, 0.0))))


def _same_question(before: Judgement, after: Judgement) -> bool:
    """Whether two judgements kept the numbers of one question: some keep those of their worst call only."""
    one, other = before.rows, after.rows
    return "e" in one and "r" in other and np.array_equal(one["r"], other["r"])


def _rulings(trial: Trial, shown: Sequence[Shown], clean: Clean) -> Iterable[Ruling]:
    first = trial.group.first
    for one in shown:
        standing = {id(judgement) for judgement in accusing(one.judgements)}
        for judgement in one.judgements:
            # What compares no numbers (tokens, what ran) counts where it accuses: the other rules see numbers only.
            if judgement.rows or id(judgement) in standing:
                yield Ruling(OURS, _key(trial, one.case.test, judgement), id(judgement) in standing)
        for place, judgement in _compared(one):
            key = _key(trial, one.case.test, judgement)
            eager = clean.eager.get(place)
            if judgement.criterion == KERNELS:
                eager = eager_answer(judgement.rows, trial.dtype)
            found = rows_to_outputs(judgement.criterion, first.role, trial.dtype, judgement.rows, eager)
            refused = found is None and judgement.verdict is Verdict.FAIL and place in clean.compared
            if refused:  # no numbers, or not as many: a rule that would have looked at them is taken to have seen it
                rows = clean.compared[place].rows
                found = rows_to_outputs(judgement.criterion, first.role, trial.dtype, rows, eager)
            for rule in RULES if found is not None else ():
                alarm = rule.alarms(found) if found is not None else None
                if alarm is not None:
                    yield Ruling(rule.id, key, alarm or refused)


def _compared(one: Shown) -> list[tuple[Place, Judgement]]:
    return [
        ((one.case.test, index), judgement)
        for index, judgement in enumerate(one.judgements)
        if is_compared(judgement.criterion)
    ]


def _key(trial: Trial, test: str, judgement: Judgement) -> str:
    """Equal for bit-identical outputs to one question."""
    digest = hashlib.sha256(repr((trial.place, test, judgement.criterion)).encode())
    values: Any = judgement.rows.get("x")
    if values is None:
        digest.update(repr((judgement.figures, judgement.message)).encode())
    else:
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()
