"""The two-sided audit of a profile after a run: what it claims and nothing showed, what was seen and it does not claim.

    {"exit_code", "claims": [...], "mismatches": [...], "disclaimed": [...], "under_claimed": [...],
     "never_exercised": [...]}

A pure function of profile, plan and results; `results.schema.json` describes its answer, which is JSON.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from conformance import disclaimed
from conformance.exercised import claimed_features, exercised_features
from conformance.inventory import Suite
from conformance.obstacles import missing_engine
from conformance.plan import Case, Plan
from conformance.profile import Claim, EngineClaims, Profile
from conformance.results.record import CaseResult
from conformance.verdict import Verdict

SHOWN, MISMATCH, FAILED = "shown", "mismatch", "failed"
NOT_EXECUTED, ENVIRONMENT = "not executed", "environment"


@dataclass(frozen=True)
class _Pair:
    """A planned case and what became of it; None where the run ended before it."""

    case: Case
    result: CaseResult | None

    @property
    def is_executed(self) -> bool:
        return self.result is not None and self.result.verdict.is_executed

    @property
    def passes(self) -> bool:
        return self.result is not None and self.result.verdict is Verdict.PASS

    def runs_on(self, claim: Claim, dtype: str) -> bool:
        """Whether the model, or its vision tower, was to run on what is claimed."""
        case = self.case
        if case.effective_target.dtype != dtype or case.effective_target.engine != claim.engine:
            return False
        tower = None if case.vision is None else case.vision.attention
        return claim.attention in (case.effective_target.attention, tower)

    def was_asked_on(self, claim: Claim, dtype: str) -> bool:
        """The same of the target that the case certifies, which quirks may have changed."""
        target = self.case.target
        return (target.engine, target.attention, target.dtype) == (claim.engine, claim.attention, dtype)


def audit(
    profile: Profile, plan: Plan, results: Iterable[CaseResult], facts: Mapping[str, Any], *, suites: Iterable[Suite]
) -> dict[str, Any]:
    """The profile held against what was executed, in both directions; JSON types only.

    `exit_code` is 1 where something else ran than was requested, 6 where a claim has no executed PASS, otherwise 0.
    """
    found = {result.id: result for result in results}
    pairs = [_Pair(case, found.get(case.id)) for case in plan.cases]
    probes = [pair for pair in pairs if pair.case.suite == disclaimed.SUITE.name]
    pairs = [pair for pair in pairs if pair.case.suite != disclaimed.SUITE.name]
    mismatches = list(_mismatches(pairs))
    claims = [
        _claim(engine, claim, dtype, pairs, facts)
        for engine in profile.engines.values()
        for claim in engine.attention.values()
        for dtype in claim.precision
    ]
    return {
        "exit_code": audit_exit_code(claims, mismatches),
        "claims": claims,
        "mismatches": mismatches,
        "disclaimed": [_disclaimed(profile, index, probes) for index in range(len(profile.disclaimed))],
        "under_claimed": [*_unclaimed(profile, pairs), *_answered(probes)],
        "never_exercised": _never_exercised(profile, pairs, {suite.path: suite for suite in suites}),
    }


def audit_exit_code(claims: Iterable[Mapping[str, Any]], mismatches: Sequence[Mapping[str, Any]]) -> int:
    """What the audit alone makes of a run."""
    if mismatches:
        return 1
    return 0 if all(claim["status"] == SHOWN for claim in claims) else 6


def _claim(
    engine: EngineClaims,
    claim: Claim,
    dtype: str,
    every: Sequence[_Pair],
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """What was seen of one engine, attention backend and dtype."""
    pairs = [pair for pair in every if pair.runs_on(claim, dtype)]
    executed = [pair for pair in pairs if pair.is_executed]
    passed = sum(pair.passes for pair in executed)
    missing = missing_engine(engine, facts)
    differing = dict.fromkeys(
        f"{what} {ran} ran, but {requested} was requested"
        for pair in executed
        for what, requested, ran in _differences(pair)
        if what == "dtype" or requested == claim.attention
    )
    if differing:
        status, reason = MISMATCH, "; ".join(differing)
    elif passed:
        status, reason = SHOWN, ""
    elif executed:
        status, reason = FAILED, f"{len(executed)} executed, none PASS: {_most_common(executed)}"
    elif missing:
        status, reason = ENVIRONMENT, _with_extra(missing, engine.name)
    elif pairs:
        verdicts = {pair.result.verdict for pair in pairs if pair.result is not None}
        status = ENVIRONMENT if verdicts == {Verdict.ENVIRONMENT} else NOT_EXECUTED
        reason = _most_common(pairs)
    else:
        status, reason = NOT_EXECUTED, _not_planned(claim, dtype, every)
    return {
        "engine": claim.engine,
        "attention": claim.attention,
        "dtype": dtype,
        "precision": claim.precision[dtype],
        "status": status,
        "executed": len(executed),
        "passed": passed,
        "effective": _effective(executed),
        "reason": reason,
    }


def _effective(pairs: Sequence[_Pair]) -> list[dict[str, Any]]:
    """What ran in these cases, and how that is known, each with the number of cases."""
    seen: Counter[tuple[str, str, str, str]] = Counter()
    for pair in pairs:
        ran = pair.result.effective if pair.result is not None else None
        if ran is not None:
            tower = "" if ran.vision is None else ran.vision.attention
            seen[ran.attention, ran.dtype, tower, ran.evidence] += 1
    names = ("attention", "dtype", "vision", "evidence")
    return [{**dict(zip(names, key, strict=True)), "cases": count} for key, count in sorted(seen.items())]


def _mismatches(pairs: Iterable[_Pair]) -> Iterator[dict[str, Any]]:
    """Where another dtype or attention backend ran than was requested, once for each target."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for pair in pairs:
        for what, requested, effective in _differences(pair):
            found.setdefault((pair.case.target.id, what, requested, effective), []).append(pair.case.id)
    for (target, what, requested, effective), cases in found.items():
        yield {"target": target, "what": what, "requested": requested, "effective": effective, "cases": cases}


def _differences(pair: _Pair) -> Iterator[tuple[str, str, str]]:
    """What differs between what a case requested and what ran: which of it, and both names."""
    case, ran = pair.case, pair.result.effective if pair.result is not None else None
    if ran is None or ran.evidence == "undisclosed":
        return
    asked = [
        ("dtype", case.effective_target.dtype, ran.dtype),
        ("attention backend", case.effective_target.attention, ran.attention),
    ]
    if case.vision is not None and ran.vision is not None:
        asked.append(("vision attention backend", case.vision.attention, ran.vision.attention))
    yield from (each for each in asked if each[1] != each[2])


def _disclaimed(profile: Profile, index: int, probes: Sequence[_Pair]) -> dict[str, Any]:
    """One entry under [[disclaimed]], and what became of calling it (`--probe-disclaimed`)."""
    entry = profile.disclaimed[index]
    called = [
        pair
        for pair in probes
        if entry.attention is not None
        and entry.covers(pair.case.target.engine, pair.case.target.attention, pair.case.target.dtype)
        and pair.result is not None
        and pair.result.verdict.is_executed
    ]
    outcome = {Verdict.PASS: "refused", Verdict.XPASS: "answered"}
    seen = {outcome.get(pair.result.verdict, "lost") for pair in called if pair.result is not None}
    name = "/".join(part for part in (entry.engine, entry.attention, entry.dtype) if part)
    return {
        "name": name,
        "what": entry.what,
        "reason": entry.reason,
        "probe": " and ".join(sorted(seen)) or "not called",
    }


def _unclaimed(profile: Profile, pairs: Iterable[_Pair]) -> Iterator[dict[str, Any]]:
    """Kernels, attention backends and dtypes that were seen where nothing claims them."""
    seen: dict[tuple[str, str], list[str]] = {}
    for pair in pairs:
        case, ran = pair.case, pair.result.effective if pair.result is not None else None
        if ran is None:
            continue
        engine, dtype = case.effective_target.engine, case.effective_target.dtype
        vision = () if case.vision is None else case.vision.kernels.get(dtype, ())
        for kernel, calls in ran.kernels.items():
            if calls > 0 and not _matches(kernel, (*case.kernels, *vision)):
                owners = [
                    other.name
                    for other in profile.engines[engine].attention.values()
                    if _matches(kernel, other.kernels.get(dtype, ()))
                ]
                whose = f", which is claimed of {' and '.join(owners)}" if owners else ", which no claim names"
                seen.setdefault((case.target.id, f"kernel {kernel} ran{whose}"), []).append(case.id)
        actual = profile.claim(engine, ran.attention)
        if ran.evidence != "undisclosed" and (actual is None or ran.dtype not in actual.precision):
            what = f"attention backend {ran.attention} ran in {ran.dtype}, which no claim names"
            seen.setdefault((case.target.id, what), []).append(case.id)
    for (target, what), cases in seen.items():
        yield {"target": target, "what": what, "cases": cases}


def _answered(probes: Iterable[_Pair]) -> Iterator[dict[str, Any]]:
    """What is disclaimed and answered when it was called."""
    for pair in probes:
        if pair.result is not None and pair.result.verdict is Verdict.XPASS:
            yield {"target": pair.case.target.id, "what": pair.result.reason, "cases": [pair.case.id]}


def _never_exercised(profile: Profile, pairs: Sequence[_Pair], suites: Mapping[str, Suite]) -> list[dict[str, Any]]:
    """Claimed features that no executed case used, of the claims that were executed at all."""
    found = []
    for engine in profile.engines.values():
        for claim in engine.attention.values():
            executed = [
                pair for pair in pairs if pair.is_executed and pair.runs_on(claim, pair.case.effective_target.dtype)
            ]
            used = {feature for pair in executed for feature in exercised_features(pair.case, claim, suites)}
            if executed and (rest := [each for each in claimed_features(engine, claim) if each not in used]):
                found.append({"claim": claim.name, "features": rest})
    return found


def _not_planned(claim: Claim, dtype: str, every: Iterable[_Pair]) -> str:
    changed = {
        (name, str(pair.case.effective_target))
        for pair in every
        if pair.was_asked_on(claim, dtype)
        for name in pair.case.quirks
    }
    if changed:
        return "; ".join(f"quirk {name} runs its cases as {target}" for name, target in sorted(changed))
    option = "--attention" if claim.text else "--vision-attention"
    return f"no case was planned; --engine {claim.engine} {option} {claim.attention} --dtype {dtype} asks for some"


def _most_common(pairs: Sequence[_Pair]) -> str:
    said = Counter(
        "the run ended before it" if pair.result is None else f"{pair.result.verdict}: {pair.result.reason}"
        for pair in pairs
    )
    (first, count), *_ = said.most_common()
    return first if count == len(pairs) else f"{first} ({count} of {len(pairs)} cases)"


def _with_extra(reason: str, engine: str) -> str:
    from conformance.extras import NAME, own_requirements

    extra = f"{NAME}[{engine}]"
    return reason if extra in reason or engine not in own_requirements() else f"{reason}; pip install '{extra}'"


def _matches(kernel: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(kernel, pattern) for pattern in patterns)
