"""Suites under plain unittest: `CONFORMANCE_BACKEND=cpu python -m unittest suites.embedding` runs the plan's cases.

A suite module imports `load_tests`, which unittest calls in place of collecting the classes themselves. Selections
beyond the module come from CONFORMANCE_ARGUMENTS, written as on the command line ("--dtype bfloat16 -k sdpa").
"""

from __future__ import annotations

import argparse
import os
import shlex
import unittest
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conformance.execution.group import Group
    from conformance.execution.pools import Pools
    from conformance.execution.references import References

LOAD_SECONDS, CASE_SECONDS = 600.0, 300.0
BACKEND, ARGUMENTS = "CONFORMANCE_BACKEND", "CONFORMANCE_ARGUMENTS"


def load_tests(loader: unittest.TestLoader, standard: unittest.TestSuite, pattern: str | None) -> unittest.TestSuite:
    """The plan's cases of the classes in `standard`, as unittest tests (the protocol of that name)."""
    paths = {f"{type(test).__module__}:{type(test).__qualname__}" for part in standard for test in _flat(part)}
    backend = os.environ.get(BACKEND)
    if not backend:
        raise RuntimeError(f"set {BACKEND} to the backend under test, e.g. {BACKEND}=cpu")
    return _PlannedSuite(backend, paths)


def _flat(part: Any) -> list[unittest.TestCase]:
    return [part] if isinstance(part, unittest.TestCase) else [test for inner in part for test in _flat(inner)]


class _PlannedSuite(unittest.TestSuite):
    """The cases of some suite classes; the workers live as long as it runs."""

    def __init__(self, backend: str, paths: set[str]) -> None:
        from conformance.cli.arguments import add_backend, add_selection, read_inputs
        from conformance.cli.parser import Parser
        from conformance.execution.group import groups

        parser = Parser(prog=f"{ARGUMENTS} of python -m unittest")
        add_backend(parser)
        add_selection(parser)
        options: argparse.Namespace = parser.parse_args(
            ["--backend", backend, *shlex.split(os.environ.get(ARGUMENTS, ""))]
        )
        self._inputs = read_inputs(options)
        self._plan = self._inputs.plan()
        self._groups = [group for group in groups(self._plan) if group.first.suite_path in paths]
        self._classes = [_materialised(group, self) for group in self._groups]
        super().__init__(kind(case.test) for kind in self._classes for case in kind.group.cases)
        self.addTests(
            _Decided(case.id, str(case.verdict), case.reason)
            for case in self._plan.cases
            if case.verdict is not None and case.suite_path in paths
        )

    def run(self, result: unittest.TestResult, debug: bool = False) -> unittest.TestResult:
        """Run them."""
        from conformance.execution.pools import Pools
        from conformance.execution.references import References
        from conformance.execution.run import complete_facts

        with Pools() as pools:
            facts = complete_facts(self._inputs.plan, self._inputs.facts, self._inputs.engines, pools, LOAD_SECONDS)
            self.facts: Mapping[str, Any] = facts
            self.pools: Pools = pools
            self.references: References = References(pools, str(facts.get("isa", "")), LOAD_SECONDS, print)
            return super().run(result, debug)

    def engine_class(self, group: Group) -> str:
        """ "module:Class" of the group's engine."""
        return self._inputs.engines[group.first.effective_target.engine]

    @property
    def device(self) -> str:
        """The plan's torch device type."""
        return self._plan.device


def _materialised(group: Group, owner: _PlannedSuite) -> Any:
    """The suite's class, bound to one target and model; its class fixtures open and close the session."""
    from conformance.execution.session import Session

    base, case = group.suite(), group.first
    ids = {each.test: each.id for each in group.cases}

    def set_up_class(cls: Any) -> None:
        device = owner.facts.get("device", {})
        if device.get("available") is False:
            raise unittest.SkipTest(f"ENVIRONMENT: {device.get('reason')}")
        cls.session = Session(group, owner.device, owner.engine_class(group), owner.pools, LOAD_SECONDS, CASE_SECONDS)
        cls.addClassCleanup(cls.session.__exit__, None, None, None)
        cls.bench = cls.session.bench(owner.references)

    def set_up(self: Any) -> None:
        base.setUp(self)
        self.session.prepare()

    def name(self: Any) -> str:
        return ids[self._testMethodName]

    members = {"setUpClass": classmethod(set_up_class), "setUp": set_up, "id": name, "__str__": name, "group": group}
    return type(
        f"{base.__name__}[{case.target.id}][{case.model.name}]", (base,), {"__module__": base.__module__, **members}
    )


class _Decided(unittest.TestCase):
    """A case whose verdict the plan already knows."""

    def __init__(self, case_id: str, verdict: str, reason: str) -> None:
        super().__init__("runTest")
        self._id, self._verdict, self._reason = case_id, verdict, reason

    def id(self) -> str:
        return self._id

    def runTest(self) -> None:
        """Say why it is not run."""
        self.skipTest(f"{self._verdict}: {self._reason}")
