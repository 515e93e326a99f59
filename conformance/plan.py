"""The plan: what the profile claims, times the suites, times the models. A pure function of data; no torch.

The ids of a plan depend on suites, profile, catalogue and selection only. Facts decide what becomes of a case (it is
to be run, or it already has a verdict), so a run plans once with what is known without an engine, and again with the
facts of its worker, and finds the same ids.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from conformance import __version__, predicate
from conformance.candidates import Candidate, candidates, vision_attention
from conformance.catalogue import Catalogue, Model
from conformance.inventory import Suite
from conformance.models.fit import Fit, fit
from conformance.names import UsageError
from conformance.obstacles import (
    missing_device,
    missing_engine,
    missing_server,
    not_supported,
    offered,
    unusable_model,
)
from conformance.profile import Claim, EngineClaims, Products, Profile, Variation
from conformance.quirks import Quirk, combine
from conformance.selection import Selection, resolve
from conformance.target import Target
from conformance.verdict import Verdict


@dataclass(frozen=True)
class Case:
    """One test method on one target and one model.

    `target` is what the case certifies, `effective_target` what runs once quirks have changed it; `claim` is the
    profile's for the latter, `precision` and `kernels` what it says of the dtype, `products` what is claimed beside
    attention. `verdict` is None for a case that is to be run; otherwise `reason` says why it is not. `undecided` names
    conditions that wait for facts. `settings` may hold max_tokens, top_k, batch_size.
    """

    id: str
    suite: str
    suite_path: str
    test: str
    requirement_id: str
    statement: str
    role: str
    needs: tuple[str, ...]
    target: Target
    effective_target: Target
    model: Model
    precision: str
    kernels: tuple[str, ...]
    claim: Claim
    vision: Claim | None  # what is claimed of the vision tower's attention backend; None without a tower
    products: Products
    directed: bool  # it looks along the directions of known faults
    start: str
    python: str = ""  # the interpreter that has the engine; empty: the suite's own
    variants: Mapping[str, Variation] = field(default_factory=dict)  # of its engine
    quirks: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    settings: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    fit: Fit | None = None
    verdict: Verdict | None = None
    reason: str = ""


@dataclass(frozen=True)
class Plan:
    """All cases, in the order in which they are planned: by target, model and suite.

    `budget_minutes` is the selection's or the named run's, if there is one. `suites_without_model` are selected suites
    (name and role) that no selected model of the catalogue can be tested by, so that they have no case.
    `models_without_directions` are planned models that come without directions, so that a suite does not look along
    known faults there.
    """

    backend: str
    profile_path: Path
    device: str
    cases: tuple[Case, ...]
    claims_not_installed: tuple[str, ...]
    suites_without_model: tuple[str, ...]
    models_without_directions: tuple[str, ...]
    expired_quirks: tuple[str, ...]
    budget_minutes: float | None
    hash: str


def make_plan(
    suites: Sequence[Suite],
    profile: Profile,
    catalogue: Catalogue,
    facts: Mapping[str, Any],
    selection: Selection,
) -> Plan:
    """Plan everything that `selection` takes.

    Raises UsageError, with every fault, for unknown names, for two cases with one id, and for quirks that contradict
    each other or lead to a target that the profile does not claim.
    """
    matrix = resolve(selection, profile, suites, catalogue)
    faults: list[str] = []
    cases = []
    for candidate in candidates(suites, profile, catalogue, matrix):
        if selection.takes(candidate.id):
            cases.append(_decide(candidate, profile, facts, selection, faults))
    repeated = [each for each, count in Counter(case.id for case in cases).items() if count > 1]
    faults.extend(f"{each}: two cases have this id; rename a test, a suite or a model" for each in repeated)
    if faults:
        raise UsageError(*dict.fromkeys(faults))
    return Plan(
        backend=profile.name,
        profile_path=profile.path,
        device=profile.device,
        cases=tuple(cases),
        claims_not_installed=tuple(
            claim.name
            for engine in profile.engines.values()
            if missing_engine(engine, facts)
            for claim in engine.attention.values()
        ),
        suites_without_model=tuple(
            f"{suite.name} ({suite.role})"
            for suite in suites
            if suite.name in matrix.suites
            and (matrix.roles is None or suite.role in matrix.roles)
            and not any(matrix.plays(model, suite.role) for model in catalogue.models)
        ),
        models_without_directions=_without_directions(suites, cases),
        expired_quirks=tuple(quirk.id for quirk in profile.quirks if quirk.expired(selection.as_of)),
        budget_minutes=_budget(profile, selection),
        hash=_hash(suites, profile, catalogue, selection),
    )


def _decide(
    candidate: Candidate, profile: Profile, facts: Mapping[str, Any], selection: Selection, faults: list[str]
) -> Case:
    """The case that a candidate becomes under the facts and the quirks."""
    subject = candidate.subject(facts, profile.device)
    applied: list[Quirk] = []
    undecided: list[str] = []
    for quirk in profile.quirks:
        if not quirk.expired(selection.as_of):
            answer = predicate.evaluate(quirk.when, subject)
            if answer is None:
                undecided.append(f"quirk {quirk.id}")
            elif answer:
                applied.append(quirk)
    change = combine(applied)
    faults.extend(f"{candidate.id}: {conflict}" for conflict in change.conflicts)
    effective = change.retarget(candidate.target)
    claim = profile.claim(effective.engine, effective.attention)
    if claim is None or effective.dtype not in claim.precision:
        names = ", ".join(quirk.id for quirk in applied)
        faults.append(f"{profile.path}: quirks ({names}): they lead to {effective}, which the profile does not claim")
        claim, effective = candidate.claim, candidate.target
    tower = vision_attention(candidate.model, effective, claim)
    vision = None if tower is None else profile.claim(effective.engine, tower)
    if tower is not None and (vision is None or effective.dtype not in vision.precision):
        names = ", ".join(quirk.id for quirk in applied)
        faults.append(
            f"{profile.path}: quirks ({names}): they lead to a vision tower on {tower} in {effective.dtype}, "
            "which the profile does not claim"
        )
        vision = claim
    holds = {
        each.name: predicate.evaluate(each.when, replace(subject, attention=each.attention, dtype=effective.dtype))
        for each in (claim, vision)
        if each is not None
    }
    undecided += [f"claim {name}" for name, answer in holds.items() if answer is None]
    engine = profile.engines[effective.engine]
    offers = offered(candidate, engine, replace(subject, attention=effective.attention, dtype=effective.dtype))
    undecided += [what for what, answer in offers.items() if answer is None]
    case = Case(
        id=candidate.id,
        suite=candidate.suite.name,
        suite_path=candidate.suite.path,
        test=candidate.test.name,
        requirement_id=candidate.test.requirement_id,
        statement=candidate.test.statement,
        role=candidate.suite.role,
        needs=candidate.suite.needs,
        target=candidate.target,
        effective_target=effective,
        model=candidate.model,
        precision=claim.precision[effective.dtype],
        kernels=claim.kernels[effective.dtype],
        claim=claim,
        vision=vision,
        products=profile.products,
        directed=candidate.test.needs_directions,
        start=engine.start,
        python=engine.python,
        variants=engine.variants,
        quirks=tuple(quirk.id for quirk in applied),
        undecided=tuple(undecided),
        settings=change.settings,
        options={
            **engine.options,
            **_axis(engine, effective, "options"),
            **_server(engine, selection),
            **change.options,
        },
        environment={**engine.environment, **_axis(engine, effective, "environment"), **change.environment},
        fit=fit(
            candidate.model,
            candidate.suite.role,
            candidate.suite.workload,
            dtype=effective.dtype,
            precision=claim.precision[effective.dtype],
            device=profile.device,
            facts=facts,
            budget_minutes=_budget(profile, selection),
        ),
    )
    # A server's device is where the server is.
    missing = missing_engine(engine, facts) or (
        missing_server(engine, selection) if "url" in engine.options else missing_device(profile.device, facts)
    )
    lacking = not_supported(candidate, claim, vision, holds, profile)
    lacking = lacking or next((f"{what}, which does not hold here" for what, ok in offers.items() if ok is False), "")
    if missing:
        return replace(case, verdict=Verdict.ENVIRONMENT, reason=missing)
    if change.skip is not None:
        skip = change.skip
        reason = f"quirk {skip.id} (until {skip.expires}): {skip.reason}; {skip.link}"
        return replace(case, verdict=Verdict.SKIPPED, reason=reason)
    if lacking:
        return replace(case, verdict=Verdict.NOT_SUPPORTED, reason=lacking)
    obstacle = unusable_model(case.model, case.fit, selection)
    return replace(case, verdict=Verdict.ENVIRONMENT, reason=obstacle) if obstacle else case


def _axis(engine: EngineClaims, target: Target, what: str) -> dict[str, Any]:
    """The options or environment that the target's axes add."""
    found: dict[str, Any] = {}
    for axis, value in target.axes:
        if axis in engine.axes:
            found.update(getattr(engine.axes[axis][value], what))
    return found


def _server(engine: EngineClaims, selection: Selection) -> dict[str, Any]:
    """Where an engine that is a server is reached: its options have a `url`, be it empty."""
    return {"url": selection.url} if selection.url and "url" in engine.options else {}


def _without_directions(suites: Iterable[Suite], cases: Iterable[Case]) -> tuple[str, ...]:
    tests = {suite.path: {test.name for test in suite.tests if test.needs_directions} for suite in suites}
    could = {case.model.name for case in cases if tests[case.suite_path] and not case.model.directions}
    return tuple(sorted(could - {case.model.name for case in cases if case.test in tests[case.suite_path]}))


def _budget(profile: Profile, selection: Selection) -> float | None:
    if selection.budget_minutes is not None:
        return selection.budget_minutes
    return profile.runs[selection.run].budget_minutes if selection.run else None


def _hash(suites: Iterable[Suite], profile: Profile, catalogue: Catalogue, selection: Selection) -> str:
    """A digest of what decides the plan; folders are left out, since they differ between machines."""
    content = {
        "version": __version__,
        "suites": [
            [
                suite.name,
                suite.path,
                suite.role,
                [[test.name, test.requirement_id, test.statement] for test in suite.tests],
            ]
            for suite in suites
        ],
        "profile": profile.text,
        "catalogue": [
            [
                *(model.name, model.roles, model.tier, model.architecture, model.answers, model.directions),
                dict(model.parameters),
                *((model.hub, model.revision) if model.tier == "full" else ()),
            ]
            for model in catalogue.models
        ],
        "selection": selection.record(),
    }
    text = json.dumps(content, sort_keys=True, default=str, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
