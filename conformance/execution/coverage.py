"""What a PASS of a plan does not cover, as sentences for the end of every report."""

from __future__ import annotations

from collections.abc import Iterable

from conformance.criteria.covered import uncovered
from conformance.plan import Plan
from conformance.profile import Profile
from conformance.results.record import CaseResult
from conformance.verdict import Verdict


def _unseen_faults(plan: Plan, results: Iterable[CaseResult]) -> list[str]:
    """The known faults whose directions were too weak to be covered, with the suites and dtypes where that is so."""
    targets = {case.id: f"{case.suite} in {case.effective_target.dtype}" for case in plan.cases if case.directed}
    unseen: dict[str, set[str]] = {}
    for result in results:
        for judgement in result.judgements if result.id in targets else ():
            for fault in uncovered(judgement):
                unseen.setdefault(fault, set()).add(targets[result.id])
    if not unseen:
        return []
    said = "; ".join(f"{fault} ({', '.join(sorted(where))})" for fault, where in sorted(unseen.items()))
    return [f"Known faults that are too small there for their direction to show: {said}."]


_UNSEEN = {
    "undisclosed": "the engine tells nobody what ran: device, dtype and kernels are the word of whoever runs it, and a "
    "PASS is one of its numbers alone",
    "resolved": "which kernels ran is what the engine resolved for its layers; no call of theirs was seen",
}
"""What is not known of what ran, by the kind of evidence."""


def _unseen_kernels(results: Iterable[CaseResult]) -> list[str]:
    """The targets of which it is not known, or not from calls, what ran."""
    targets: dict[str, set[str]] = {evidence: set() for evidence in _UNSEEN}
    for result in results:
        if result.effective is not None and result.effective.evidence in targets:
            targets[result.effective.evidence].add(str(result.target))
    return [f"{', '.join(sorted(those))}: {_UNSEEN[evidence]}." for evidence, those in targets.items() if those]


def not_covered(plan: Plan, profile: Profile, results: Iterable[CaseResult]) -> list[str]:
    """One sentence for each thing that a reader of these results could think was covered.

    Targets, models and quirks of cases that never ran are left out: nobody thinks that those were covered.
    """
    results = list(results)
    verdicts = {result.id: result.verdict for result in results}
    executed = [case for case in plan.cases if case.id in verdicts and verdicts[case.id].is_executed]
    sentences = []
    eager = sorted({f"{case.effective_target}" for case in executed if case.precision == "eager"})
    if plan.device == "cpu" and eager:
        sentences.append(
            f"{', '.join(eager)}: on a CPU this is the yardstick itself, so a ratio near 1 is no evidence there."
        )
    towers = sorted(
        {
            f"{case.effective_target}"
            for case in executed
            if case.vision is not None
            and case.precision != "eager"
            and case.vision.precision[case.effective_target.dtype] == "eager"
        }
    )
    if plan.device == "cpu" and towers:
        sentences.append(
            f"{', '.join(towers)}: on a CPU the vision tower is the yardstick's own, so a ratio of its features near 1 "
            "is no evidence there."
        )
    if any(case.model.tier == "embedded" for case in executed):
        sentences.append(
            "The embedded models are tiny: shapes of full-size models, long contexts, large batches were not reached."
        )
    figures = [figure for result in results for judgement in result.judgements for figure in judgement.figures]
    provisional = sorted({figure.limit_name for figure in figures if figure.standing == "provisional"})
    if provisional:
        sentences.append(
            f"No {plan.device} device has been measured for these limits, which are provisional here: "
            f"{', '.join(provisional)} (`calibrate` measures them)."
        )
    local = sorted({case.model.name for case in executed if not case.model.answers})
    if local:
        sentences.append(
            f"{', '.join(local)}: no right answers are known, so what reference and engine get wrong alike is not seen."
        )
    ran = {case.model.name for case in executed}
    if without := [name for name in plan.models_without_directions if name in ran]:
        sentences.append(
            f"{', '.join(without)}: nothing was looked for along the directions of known faults, as none were "
            "shipped or asked for; --directions computes them."
        )
    sentences += _unseen_faults(plan, results)
    sentences += _unseen_kernels(results)
    applied = {name for case in executed for name in case.quirks}
    applied |= {name for case in plan.cases if verdicts.get(case.id) is Verdict.SKIPPED for name in case.quirks}
    sentences += [
        f"Quirk {quirk.id} was applied, so this is not covered: {quirk.uncovered}."
        for quirk in profile.quirks
        if quirk.id in applied and quirk.uncovered
    ]
    sentences += [f"Quirk {name} has expired and was not applied." for name in plan.expired_quirks]
    sentences += [
        f"The profile disclaims {each.what} ({each.engine}"
        f"{'/' + each.attention if each.attention else ''}{'/' + each.dtype if each.dtype else ''}): {each.reason}"
        for each in profile.disclaimed
        if each.engine in {case.target.engine for case in plan.cases}
    ]
    if plan.claims_not_installed:
        sentences.append(f"Claimed, but not installed here and so not run: {', '.join(plan.claims_not_installed)}.")
    sentences += [f"No model was there for the suite {name}." for name in plan.suites_without_model]
    return sentences
