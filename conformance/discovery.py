"""Suites under plain unittest: `CONFORMANCE_BACKEND=cpu python -m unittest suites.embedding` runs the plan's cases.

A suite module imports `load_tests`, which unittest calls in place of collecting the classes themselves. Selections
beyond the module come from CONFORMANCE_ARGUMENTS, written as on the command line ("--dtype bfloat16 -k sdpa").
"""

from __future__ import annotations

import os
import shlex
import sys
import unittest
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from conformance.execution.deadline import CASE_SECONDS, LOAD_SECONDS

if TYPE_CHECKING:
    from conformance.cli.arguments import Inputs
    from conformance.execution.outcome import Outcome
    from conformance.execution.pools import Pools
    from conformance.execution.references import References
    from conformance.execution.session import Session
    from conformance.plan import Case, Plan

BACKEND, ARGUMENTS = "CONFORMANCE_BACKEND", "CONFORMANCE_ARGUMENTS"


class CaseError(Exception):
    """A case did not come to a judgement: ERROR, CRASH, TIMEOUT or NOT_RUN, which the message says."""


def load_tests(loader: unittest.TestLoader, standard: unittest.TestSuite, pattern: str | None) -> unittest.TestSuite:
    """The plan's cases of the test methods in `standard`, as unittest tests (the protocol of that name).

    Raises RuntimeError where no backend is named, and UsageError as the command line does.
    """
    tests = [(test, test.id().rpartition(".")[2]) for test in _flat(standard)]
    methods = {(f"{type(test).__module__}:{type(test).__qualname__}", name) for test, name in tests}
    backend = os.environ.get(BACKEND)
    if not backend:
        raise RuntimeError(f"set {BACKEND} to the backend under test, e.g. {BACKEND}=cpu")
    return PlannedSuite(read(backend, os.environ.get(ARGUMENTS, "")), methods)


def read(backend: str, arguments: str) -> Inputs:
    """What the command line would read from these arguments."""
    from conformance.cli.arguments import add_backend, add_engine_python, add_selection, read_inputs
    from conformance.cli.parser import Parser

    parser = Parser(prog=f"{ARGUMENTS} of python -m unittest")
    add_backend(parser)
    add_selection(parser)
    add_engine_python(parser)
    return read_inputs(parser.parse_args(["--backend", backend, *shlex.split(arguments)]))


def _flat(part: Any) -> list[unittest.TestCase]:
    return [part] if isinstance(part, unittest.TestCase) else [test for inner in part for test in _flat(inner)]


class PlannedCase(unittest.TestCase):
    """One case of the plan. Its outcome comes from the session that the suite around it holds open."""

    def __init__(self, case: Case) -> None:
        super().__init__("runTest")
        self.case = case
        self.attempt: Callable[[], Outcome] | None = None

    def id(self) -> str:
        return self.case.id

    def __str__(self) -> str:
        return self.case.id

    def shortDescription(self) -> str:
        return self.case.statement

    def runTest(self) -> None:
        """Turn the outcome into what unittest reports."""
        if self.attempt is None:
            raise RuntimeError(f"{self.case.id} runs only in the suite that planned it")
        outcome = self.attempt()
        said = f"{outcome.verdict}: {outcome.message or outcome.reason}"
        if outcome.verdict.junit == "failure":
            raise self.failureException(said)
        if outcome.verdict.junit == "error":
            raise CaseError(said)
        if outcome.verdict.junit == "skipped":
            self.skipTest(said)


class PlannedSuite(unittest.TestSuite):
    """The plan's cases of some test methods ("module:Class", name); the workers live as long as it runs."""

    def __init__(self, inputs: Inputs, methods: Collection[tuple[str, str]]) -> None:
        from conformance.cli.run import check_folders

        self._inputs = inputs
        self._methods = methods
        plan = inputs.plan()
        check_folders(plan)
        super().__init__(PlannedCase(case) for case in plan.cases if self._takes(case))

    def run(self, result: unittest.TestResult, debug: bool = False) -> unittest.TestResult:
        """Run them, in the order of the plan, a loaded model's cases together."""
        from conformance.execution.device import complete_facts, owned_device
        from conformance.execution.pools import Pools

        tests = {test.case.id: test for test in self if isinstance(test, PlannedCase)}
        if not tests:
            return result
        inputs = self._inputs
        with Pools() as pools:
            facts = complete_facts(inputs.plan, inputs.facts, inputs.engines, pools, LOAD_SECONDS)
            plan = inputs.plan(facts)
            with owned_device(plan, _note):
                for case, attempt in self._attempts(plan, pools, str(facts.get("isa", ""))):
                    if result.shouldStop:
                        break
                    tests[case.id].attempt = attempt
                    tests[case.id].run(result)
        return result

    def _takes(self, case: Case) -> bool:
        return (case.suite_path, case.test) in self._methods

    def _attempts(self, plan: Plan, pools: Pools, isa: str) -> Iterator[tuple[Case, Callable[[], Outcome]]]:
        """Every case with what runs it; a loaded model stays for the cases that it serves."""
        from conformance.execution.group import groups
        from conformance.execution.holder import Holder
        from conformance.execution.outcome import Outcome
        from conformance.execution.references import References
        from conformance.execution.session import Session

        for case in plan.cases:
            if case.verdict is not None and self._takes(case):
                yield case, partial(Outcome, case.verdict, case.reason)
        with Holder(pools, LOAD_SECONDS, _note) as holder:
            references = References(pools, isa, LOAD_SECONDS, _note, holder.release)
            for group in groups(plan):
                cases = [case for case in group.cases if self._takes(case)]
                if cases:
                    engine = self._inputs.engines[group.first.effective_target.engine]
                    session = Session(group, plan.device, engine, holder, CASE_SECONDS)
                    for case in cases:
                        yield case, partial(_outcome, session, case.test, references)


def _outcome(session: Session, test: str, references: References) -> Outcome:
    return session.attempt(test, references).outcome


def _note(text: str) -> None:
    print(text, file=sys.stderr)
