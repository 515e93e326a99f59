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
from conformance.profile import Claim, EngineClaims, Profile
from conformance.quirks import Quirk, combine
from conformance.selection import Selection, resolve
from conformance.target import Target
from conformance.verdict import Verdict

CERTIFICATION = "certification"
"""The named run that takes no model whose commit is not known."""


@dataclass(frozen=True)
class Case:
    """One test method on one target and one model.

    `target` is what the case certifies, `effective_target` what runs once quirks have changed it; `precision` and
    `kernels` are claimed for the latter. `verdict` is None for a case that is to be run; otherwise `reason` says
    why it is not. `undecided` names conditions that wait for facts. `settings` may hold max_tokens, top_k,
    batch_size.
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
    vision: Claim | None  # what is claimed of the vision tower's attention backend; None without a tower
    deterministic: bool
    start: str
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
    """

    backend: str
    profile_path: Path
    device: str
    cases: tuple[Case, ...]
    claims_not_installed: tuple[str, ...]
    suites_without_model: tuple[str, ...]
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
            if _missing_engine(engine, facts)
            for claim in engine.attention.values()
        ),
        suites_without_model=tuple(
            f"{suite.name} ({suite.role})"
            for suite in suites
            if suite.name in matrix.suites
            and (matrix.roles is None or suite.role in matrix.roles)
            and not any(matrix.plays(model, suite.role) for model in catalogue.models)
        ),
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
    tower = vision_attention(candidate.model, effective)
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
        vision=vision,
        deterministic=claim.deterministic,
        start=engine.start,
        quirks=tuple(quirk.id for quirk in applied),
        undecided=tuple(undecided),
        settings=change.settings,
        options={**engine.options, **change.options},
        environment={**engine.environment, **change.environment},
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
    missing = _missing_engine(engine, facts) or _missing_device(profile.device, facts)
    lacking = _not_supported(candidate, claim, vision, holds, profile)
    if missing:
        return replace(case, verdict=Verdict.ENVIRONMENT, reason=missing)
    if change.skip is not None:
        skip = change.skip
        reason = f"quirk {skip.id} (until {skip.expires}): {skip.reason}; {skip.link}"
        return replace(case, verdict=Verdict.SKIPPED, reason=reason)
    if lacking:
        return replace(case, verdict=Verdict.NOT_SUPPORTED, reason=lacking)
    obstacle = _obstacle(case, selection)
    return replace(case, verdict=Verdict.ENVIRONMENT, reason=obstacle) if obstacle else case


def _budget(profile: Profile, selection: Selection) -> float | None:
    if selection.budget_minutes is not None:
        return selection.budget_minutes
    return profile.runs[selection.run].budget_minutes if selection.run else None


def _obstacle(case: Case, selection: Selection) -> str:
    """Why the model cannot be used on this machine or in this run, or an empty text."""
    model = case.model
    if model.absent:
        return model.absent
    if selection.run == CERTIFICATION and model.tier == "local":
        return f"the model {model.name} is a folder of yours, at no commit, so nobody else could certify the same"
    if selection.run == CERTIFICATION and model.tier == "full" and not model.revision:
        return (
            f"the model {model.name} is not pinned to a commit, so nobody else could certify the same; `python -m "
            f"conformance models fetch {model.name}` records the commit, and --write-pins writes it into the catalogue"
        )
    if selection.run == CERTIFICATION and model.tier == "full" and not model.digest:
        return (
            f"the model {model.name} is pinned, but nothing was recorded when it came here, so nobody knows that it is "
            f"that commit's; `python -m conformance models fetch {model.name}` hashes and records what is there"
        )
    return case.fit.refusal if case.fit is not None else ""


def _not_supported(
    candidate: Candidate, claim: Claim, vision: Claim | None, holds: Mapping[str, bool | None], profile: Profile
) -> str:
    """Why the claims for text and vision tower do not reach this case, or an empty text."""
    parameters, model = candidate.parameters, candidate.model

    def source(each: Claim) -> str:
        return f"{profile.path.parent.name}/{profile.path.name} claims {each.name}"

    for each in (claim, vision):
        if each is not None and holds[each.name] is False:
            return f"{source(each)} only where {json.dumps(each.when)}, which does not hold here"
    if not candidate.suite.causal and not claim.encoder:
        return f"{source(claim)} with encoder = false, and {candidate.suite.role} is a bidirectional encoder"
    if vision is not None and not vision.vision:
        return f"{source(vision)} with vision = false, and {model.name} has a vision tower"
    size = parameters.get("head_size") or (model.head_size if claim.head_sizes else None)
    if claim.head_sizes is not None and size is not None and size not in claim.head_sizes:
        return f"{source(claim)} for head sizes {list(claim.head_sizes)}, and {model.name} has {size}"
    size = model.vision_head_size if vision is not None and vision.head_sizes else None
    if vision is not None and vision.head_sizes is not None and size is not None and size not in vision.head_sizes:
        return f"{source(vision)} for head sizes {list(vision.head_sizes)}, and {model.name}'s vision tower has {size}"
    if "batch" in parameters and parameters["batch"] not in claim.batch:
        return f"{source(claim)} for batch = {list(claim.batch)}, and the test needs {parameters['batch']!r}"
    if parameters.get("deterministic") is True and not claim.deterministic:
        return f"{source(claim)} without deterministic = true, and the test asks for bit-equal repeats"
    return ""


def _missing_engine(engine: EngineClaims, facts: Mapping[str, Any]) -> str:
    if "engines" in facts and engine.name not in facts["engines"]:
        return f"no installed package offers an adapter (entry point conformance.engines) for {engine.name!r}"
    versions = facts.get("versions", {})
    if engine.installed_by in versions and versions[engine.installed_by] is None:
        return f"engine {engine.name!r} is not installed; install the distribution {engine.installed_by!r}"
    return ""


def _missing_device(device: str, facts: Mapping[str, Any]) -> str:
    about = facts.get("device", {})
    kind = about.get("type")
    if kind is not None and kind != device:  # facts of a file: those of a run are about the profile's device
        return f"the facts are of a machine with a device of the type {kind!r}, and the profile is for {device!r}"
    if about.get("available") is False:
        return about.get("reason") or f"no {device} device is available on this machine"
    return ""


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
                *(model.name, model.roles, model.tier, model.architecture, model.answers, dict(model.parameters)),
                *((model.hub, model.revision) if model.tier == "full" else ()),
            ]
            for model in catalogue.models
        ],
        "selection": selection.record(),
    }
    text = json.dumps(content, sort_keys=True, default=str, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
