"""Which engines can be injected into, and how a plan's cases ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from conformance.execution.group import Group

FAULT, VARIATION = "fault", "variation"
"""Engine options that make a change: an injection's text, a null's id."""

NOT_APPLICABLE = "NotApplicable"
"""The class of the exception by which an injecting engine says that a change has no place in this model."""


@dataclass(frozen=True)
class Injector:
    """The classes that run an engine with a change, as "module:Class"."""

    faulty: str
    varied: str


INJECTORS: Mapping[str, Injector] = {
    "conformance.engines.transformers:TransformersRunner": Injector(
        "conformance.faults.runner:FaultyRunner", "conformance.nulls.runner:NullRunner"
    )
}
"""By the class of the engine; what is not here cannot be injected into."""


def with_options(group: Group, options: Mapping[str, Any]) -> Group:
    """The group with engine options added to its cases."""
    return Group(tuple(replace(case, options={**case.options, **options}) for case in group.cases))
