"""Which engines can be injected into, and how a plan's cases ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from conformance import checkpoint
from conformance.engines.known import INJECTED_BY
from conformance.execution.group import Group, vision_precision
from conformance.faults.fault import Fault
from conformance.nulls.null import Null
from conformance.plan import Case

FAULT, VARIATION = "fault", "variation"
"""Engine options that make a change: an injection's text, a null's id."""

NOT_APPLICABLE = "NotApplicable"
"""The class of the exception by which an injecting engine says that a change has no place in this model."""


@dataclass(frozen=True)
class Injector:
    """The classes that run an engine with a change, as "module:Class"."""

    faulty: str
    varied: str


INJECTORS: Mapping[str, Injector] = {engine: Injector(*classes) for engine, classes in INJECTED_BY.items()}
"""By the class of the engine; what is not here cannot be injected into."""


def with_options(group: Group, options: Mapping[str, Any]) -> Group:
    """The group with engine options added to its cases."""
    return Group(tuple(replace(case, options={**case.options, **options}) for case in group.cases))


def out_of_place(fault: Fault, group: Group) -> str | None:
    """Why no case of the group could find the fault, whatever its model; None where one could."""
    suite = group.suite()
    asked = {getattr(suite, case.test).requirement.parameters.get("variant") for case in group.cases}
    if fault.variant:
        return None if fault.variant in asked else f"only the variant {fault.variant!r} has it, of which no case asks"
    return "the suite holds the engine against itself, and all of its answers have it" if suite.against_itself else None


def why_no_null(null: Null, case: Case) -> str | None:
    """Why a null is no correct variation of a case's model on its target; None where it is one."""
    target, claims = case.effective_target, {case.precision, vision_precision(case)}
    return null.refusal(checkpoint.config(case.model.folder), case.role, target.attention, claims, case.claim.batch)
