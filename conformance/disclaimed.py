"""The cases that call, once each, what a profile disclaims: a refusal is as it should be, an answer is a finding.

They are planned only where the command line asks for it, and run last: a disclaimed kernel may hang its device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from conformance.catalogue import Catalogue
from conformance.inventory import Suite, Test
from conformance.kernel_profile import PRECISION
from conformance.obstacles import missing_device, missing_engine
from conformance.plan import Case, Plan
from conformance.profile import Claim, Profile
from conformance.selection import Selection
from conformance.target import Target, case_id
from conformance.verdict import Verdict

SUITE = Suite(
    name="disclaimed",
    path="conformance.execution.disclaimed:Disclaimed",
    role="attention",
    causal=True,
    needs=("attention",),
    tests=(Test("test_is_refused", "DIS-010", "What the profile disclaims MUST be refused."),),
    seconds=20.0,
)


def with_disclaimed(
    plan: Plan, profile: Profile, catalogue: Catalogue, facts: Mapping[str, Any], selection: Selection
) -> Plan:
    """The plan, and behind it a case for each entry under [[disclaimed]] that names an attention backend."""
    cases = {case.id: case for case in _cases(profile, catalogue, facts, selection) if selection.takes(case.id)}
    digest = hashlib.sha256(f"{plan.hash} and {SUITE.path}".encode()).hexdigest()
    return replace(plan, cases=(*plan.cases, *cases.values()), hash=digest)


def nothing_to_call(plan: Plan, profile: Profile) -> str:
    """A sentence where the plan has none of these cases, or an empty text."""
    if any(case.suite == SUITE.name for case in plan.cases):
        return ""
    return (
        "--probe-disclaimed: nothing is called, for the selection has no [[disclaimed]] entry of "
        f"{profile.path} that names an attention backend"
    )


def _cases(profile: Profile, catalogue: Catalogue, facts: Mapping[str, Any], selection: Selection) -> Iterator[Case]:
    engines = selection.engines or profile.default_engines
    # Any model will do, since its layers are not run: only the engine must have loaded one.
    model = next((each for each in catalogue.models if each.tier == "embedded" and SUITE.role in each.roles), None)
    for entry in profile.disclaimed:
        if entry.attention is None or entry.engine not in engines or entry.engine not in profile.engines or not model:
            continue
        engine, test = profile.engines[entry.engine], SUITE.tests[0]
        dtype = entry.dtype or (selection.dtypes or profile.dtypes)[0]
        # Nothing is claimed of it, so its answer is held against what a kernel alone is.
        target = Target(entry.engine, entry.attention, dtype)
        claim = Claim(entry.engine, entry.attention, {dtype: PRECISION[dtype]}, {dtype: ("*",)})
        missing = missing_engine(engine, facts) or missing_device(profile.device, facts)
        yield Case(
            id=case_id(SUITE.name, test.name, target, model.name),
            suite=SUITE.name,
            suite_path=SUITE.path,
            test=test.name,
            requirement_id=test.requirement_id,
            statement=test.statement,
            role=SUITE.role,
            needs=SUITE.needs,
            target=target,
            effective_target=target,
            model=model,
            precision=claim.precision[dtype],
            kernels=claim.kernels[dtype],
            claim=claim,
            vision=None,
            products=profile.products,
            directed=False,
            start=engine.start,
            python=engine.python,
            options=engine.options,
            environment=engine.environment,
            verdict=Verdict.ENVIRONMENT if missing else None,
            reason=missing,
        )
