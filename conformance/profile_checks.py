"""A profile against what is installed: names that exist, quirks that can match, targets that are claimed."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Sequence

from conformance import predicate
from conformance.candidates import Candidate, candidates, everything
from conformance.catalogue import Catalogue
from conformance.engines.known import KNOWN_ENGINES
from conformance.inventory import Suite
from conformance.names import did_you_mean, unknown
from conformance.predicate import FACT_KEYS, Subject
from conformance.profile import Profile
from conformance.quirks import Quirk, combine
from conformance.selection import Selection, resolve


def installed_faults(
    profile: Profile, suites: Sequence[Suite], catalogue: Catalogue, engines: Iterable[str]
) -> list[str]:
    """What is wrong with a profile given the installed suites, models and engine adapters.

    Each fault is a line "FILE: where: what is wrong; what would be right". A quirk whose condition only a device or
    a library can decide is no fault; one that no case of the full plan can match is.
    """
    cases = tuple(candidates(suites, profile, catalogue, everything(profile, suites, catalogue)))
    kinds = _kinds(profile, cases)
    faults = [
        *_names(profile, suites, catalogue, {*engines, *KNOWN_ENGINES}),
        *_unclaimed_dtypes(profile),
        *_unasked_variants(profile, suites),
        *_one_id_each(cases),
        *(fault for index, quirk in enumerate(profile.quirks) for fault in _quirk(profile, index, quirk, kinds)),
        *_conditions_of_claims(profile, kinds),
        *_conditions_of_variations(profile, kinds),
        *_runs_of_nothing(profile, suites, catalogue),
    ]
    return [f"{profile.path}: {fault}" for fault in faults]


Kind = tuple[Candidate, Subject]


def _kinds(profile: Profile, cases: Iterable[Candidate]) -> tuple[Kind, ...]:
    """Of all cases that no condition can tell apart one, with what conditions see of it: there are thousands."""
    first = {
        (case.suite.name, case.suite.role, case.target, case.model.name, repr(case.test.parameters)): case
        for case in cases
    }
    return tuple((case, case.subject({}, profile.device)) for case in first.values())


def expired_quirks(profile: Profile, as_of: datetime.date) -> list[str]:
    """One line for each quirk that expired before `as_of`."""
    return [
        f"{profile.path}: quirks[{index}] ({quirk.id}).expires: expired on {quirk.expires} (judged on {as_of}), so it "
        f"is not applied; owner: {quirk.owner}; it is to be tested again and removed or dated anew"
        for index, quirk in enumerate(profile.quirks)
        if quirk.expired(as_of)
    ]


def _names(profile: Profile, suites: Sequence[Suite], catalogue: Catalogue, engines: set[str]) -> list[str]:
    faults = [f"engines.{name}: {unknown('engine', name, engines)}" for name in profile.engines if name not in engines]
    faults += [
        f"disclaimed[{index}].engine: {unknown('engine', each.engine, engines)}"
        for index, each in enumerate(profile.disclaimed)
        if each.engine not in engines
    ]
    names = {suite.name for suite in suites}
    either = names | {suite.role for suite in suites} | set(catalogue.roles)
    faults += [
        f"dtypes.suites.{name}: {unknown('suite or role', name, either)}"
        for name in profile.suite_dtypes
        if name not in either
    ]
    for run in profile.runs.values():
        faults += [
            f"runs.{run.name}.suites: {unknown('suite', name, names)}"
            for name in run.suites
            if name != "*" and name not in names
        ]
    for tier, table in profile.estimates.items():
        faults += [f"estimates.{tier}.{name}: {unknown('suite', name, names)}" for name in table if name not in names]
    return faults


def _unclaimed_dtypes(profile: Profile) -> list[str]:
    claimed = {
        dtype for engine in profile.engines.values() for claim in engine.attention.values() for dtype in claim.precision
    }
    return [
        f"dtypes.supported: {dtype!r} is claimed by no attention backend; claim it under `precision` or leave it out"
        for dtype in profile.supported_dtypes
        if dtype not in claimed
    ]


def _unasked_variants(profile: Profile, suites: Sequence[Suite]) -> list[str]:
    asked = {
        str(test.parameters["variant"]) for suite in suites for test in suite.tests if "variant" in test.parameters
    }
    return [
        f"engines.{engine.name}.variants.{name}: no promise of an installed suite is about it; "
        f"{did_you_mean(name, sorted(asked))}"
        for engine in profile.engines.values()
        for name in engine.variants
        if name not in asked
    ]


def _runs_of_nothing(profile: Profile, suites: Sequence[Suite], catalogue: Catalogue) -> list[str]:
    names = {suite.name for suite in suites}
    faults = []
    for run in profile.runs.values():
        if "*" in run.suites or names.issuperset(run.suites):  # an unknown suite is a fault of its own
            matrix = resolve(Selection(run=run.name), profile, suites, catalogue)
            if next(candidates(suites, profile, catalogue, matrix), None) is None:
                faults.append(
                    f"runs.{run.name}: it selects no case: no model of the tier {run.tier!r} plays a role of its "
                    "suites in a dtype that an attention backend claims; give it other suites or another tier"
                )
    return faults


def _one_id_each(cases: Iterable[Candidate]) -> list[str]:
    counts = Counter(case.id for case in cases)
    return [f"engines: {count} cases have the id {name}" for name, count in counts.items() if count > 1]


def _quirk(profile: Profile, index: int, quirk: Quirk, kinds: Sequence[Kind]) -> list[str]:
    place = f"quirks[{index}] ({quirk.id})"
    matched = [case for case, subject in kinds if predicate.evaluate(quirk.when, subject) is not False]
    if not matched:
        return [f"{place}.when: no case of the full plan matches; {_why_not(quirk, [each for _, each in kinds])}"]
    change = combine([quirk])
    targets = dict.fromkeys(change.retarget(case.target) for case in matched)
    faults = []
    for target in targets:
        claim = profile.claim(target.engine, target.attention)
        if claim is None:
            known = profile.engines[target.engine].attention
            faults.append(
                f"{place}.effect.attention: {target.engine} claims no {target.attention!r}; "
                f"{did_you_mean(target.attention, known)}"
            )
        elif target.dtype not in claim.precision:
            faults.append(
                f"{place}.effect: it leads to {target}, but {claim.name} claims only {', '.join(claim.precision)}"
            )
    if change.vision is not None:
        for engine in dict.fromkeys(target.engine for target in targets):
            towers = [claim.attention for claim in profile.engines[engine].attention.values() if claim.vision]
            if change.vision not in towers:
                faults.append(
                    f"{place}.effect.vision: {engine} claims no {change.vision!r} for vision towers; "
                    f"{did_you_mean(change.vision, towers)}"
                )
    return faults


def _why_not(quirk: Quirk, subjects: Sequence[Subject]) -> str:
    """The first key that on its own matches nothing, with what it could have been; or that only the mix fails."""
    for key, wanted in quirk.when.items():
        alone = {key: wanted}
        if any(predicate.evaluate(alone, subject) is not False for subject in subjects):
            continue
        present = {str(getattr(subject, key)) for subject in subjects} if key != "parameters" else set()
        if key == "vision" and present == {"None"}:
            return "vision: no model of the catalogue has a vision tower"
        hint = did_you_mean(wanted, present) if isinstance(wanted, str) else f"known are {', '.join(sorted(present))}"
        return f"{key}: {wanted!r} matches nothing; {hint}"
    keys = [key for key in quirk.when if key not in FACT_KEYS]
    return f"each of {', '.join(keys)} matches some case, but no case matches all; check how they go together"


def _conditions_of_claims(profile: Profile, kinds: Sequence[Kind]) -> list[str]:
    faults = []
    for engine in profile.engines.values():
        for claim in engine.attention.values():
            mine = [subject for case, subject in kinds if case.claim is claim]
            if mine and all(predicate.evaluate(claim.when, subject) is False for subject in mine):
                place = f"engines.{claim.engine}.attention.{claim.attention}.when"
                faults.append(f"{place}: {dict(claim.when)} matches none of its cases; correct it or drop the claim")
    return faults


def _conditions_of_variations(profile: Profile, kinds: Sequence[Kind]) -> list[str]:
    return [
        f"engines.{engine.name}.{place}.when: {dict(variation.when)} matches no case of {engine.name}; correct it or "
        "drop the table"
        for engine in profile.engines.values()
        for place, variation in engine.variations()
        if not any(
            subject.engine == engine.name and predicate.evaluate(variation.when, subject) is not False
            for _, subject in kinds
        )
    ]
