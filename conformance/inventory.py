"""What the installed suites promise: their classes, and the requirement that each test method states."""

from __future__ import annotations

import importlib
import math
import unittest
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from conformance.names import UsageError
from conformance.registry import Registry
from conformance.workload import Workload


@dataclass(frozen=True)
class Test:
    """One test method. `parameters` are what a quirk or a claim can single it out by (e.g. batch = "decode")."""

    __test__ = False  # no test of pytest's

    name: str
    requirement_id: str
    statement: str
    needs_answers: bool = False
    needs_directions: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite:
    """One suite class. `name` is the entry point's, `path` is "module:Class", `needs` are runner capabilities.

    `seconds` is what the suite declares to take for one embedded model on one target on a CPU with two cores.
    """

    name: str
    path: str
    role: str
    causal: bool
    needs: tuple[str, ...]
    tests: tuple[Test, ...]
    seconds: float | None = None
    workload: Workload | None = None


def load_suites(registry: Registry) -> tuple[Suite, ...]:
    """Describe every suite class of every installed suite module, in the order of the entry points' names.

    Raises UsageError, with every fault, where a module cannot be imported, holds no suite, or a test method states
    no requirement or one that is stated differently elsewhere.
    """
    faults: list[str] = []
    suites: list[Suite] = []
    for name, entry in registry.suites.items():
        try:
            module = importlib.import_module(entry.value)
        except ImportError as error:
            faults.append(f"suite {name!r}: {entry.source} points to {entry.value}, which cannot be imported: {error}")
            continue
        described = [describe(name, each, faults) for each in suite_classes(module)]
        if not described:
            faults.append(f"suite {name!r}: {entry.value} defines no unittest class with a role")
        suites.extend(described)
    faults.extend(_contradictions(suites))
    if faults:
        raise UsageError(*faults)
    return tuple(suites)


def of_roles(suites: Iterable[Suite]) -> dict[str, Suite]:
    """The suite of each role that is named after its task, the role up to a dot; others may hold the role too."""
    return {suite.role: suite for suite in suites if suite.name == suite.role.partition(".")[0]}


def resolve(path: str) -> Any:
    """The class that a suite's path ("module:Class") names."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def suite_classes(module: ModuleType) -> list[type[unittest.TestCase]]:
    """The test classes with a role that `module` itself defines, in its order; a base class leaves its role empty."""
    return [
        each
        for each in vars(module).values()
        if isinstance(each, type)
        and issubclass(each, unittest.TestCase)
        and each.__module__ == module.__name__
        and bool(getattr(each, "role", None))
    ]


def describe(name: str, suite: type[unittest.TestCase], faults: list[str]) -> Suite:
    """The data of one suite class; what is wrong with it is added to `faults`."""
    tests = []
    methods = [each for base in reversed(suite.__mro__) for each in vars(base) if each.startswith("test")]
    for method_name in dict.fromkeys(methods):
        requirement = getattr(getattr(suite, method_name), "requirement", None)
        if requirement is None:
            faults.append(
                f"{suite.__module__}.{suite.__qualname__}.{method_name} states no requirement; "
                'decorate it with @requirement("ID", "The engine MUST ...")'
            )
            continue
        tests.append(
            Test(
                method_name,
                requirement.id,
                requirement.statement,
                bool(requirement.answers),
                bool(getattr(requirement, "directions", False)),
                dict(getattr(requirement, "parameters", {})),
            )
        )
    return Suite(
        name=name,
        path=f"{suite.__module__}:{suite.__qualname__}",
        role=getattr(suite, "role", ""),
        causal=bool(getattr(suite, "causal", True)),
        needs=tuple(sorted(getattr(suite, "needs", ()))),
        tests=tuple(tests),
        seconds=_seconds(suite, faults),
        workload=getattr(suite, "workload", None),
    )


def _seconds(suite: type[unittest.TestCase], faults: list[str]) -> float | None:
    declared = getattr(suite, "seconds", None)
    if declared is None:
        return None
    if isinstance(declared, bool) or not isinstance(declared, (int, float)) or not 0 < declared < math.inf:
        faults.append(
            f"{suite.__module__}.{suite.__qualname__}.seconds is {declared!r}; it should be a number above 0, how long "
            "the suite takes for one embedded model on one target on a CPU with two cores"
        )
        return None
    return float(declared)


def _contradictions(suites: Iterable[Suite]) -> list[str]:
    """One requirement id must mean one thing wherever it stands (two classes of one base share theirs)."""
    stated: dict[str, tuple[str, str]] = {}
    faults = []
    for suite in suites:
        for test in suite.tests:
            where = f"{suite.path}.{test.name}"
            first, statement = stated.setdefault(test.requirement_id, (where, test.statement))
            if statement != test.statement:
                faults.append(f"requirement {test.requirement_id} is stated differently by {first} and {where}")
    return faults
