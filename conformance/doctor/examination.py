"""All checks, one after the other, each finding as soon as there is one."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.doctor import arithmetic, device, disk, duration, environment, lock, memory, models, versions
from conformance.doctor.asking import NoAnswer, Questioner
from conformance.doctor.finding import Finding, Status, ok, problem
from conformance.estimate import Estimate
from conformance.execution.pools import Pools
from conformance.extras import own_requirements
from conformance.plan import Case, Plan
from conformance.profile import Profile
from conformance.results.printable import one_line
from conformance.stack import local_stack, stack_lines
from conformance.verdict import Verdict

PROBE = "conformance.doctor.probe"
ANSWER_SECONDS = 60.0
"""How long a worker may take over one question: a device's first answer takes seconds."""


@dataclass(frozen=True)
class Examination:
    """What is examined: the plan of a run, and where it would write. `engines` maps names to "module:Class".

    `estimate` says how long the plan takes on a device of that name, or of one that is unknown (None).
    """

    plan: Plan
    profile: Profile
    engines: Mapping[str, str]
    output: Path
    estimate: Callable[[str | None], Estimate]
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    seconds: float = ANSWER_SECONDS

    @property
    def cases(self) -> tuple[Case, ...]:
        """What would run."""
        return tuple(case for case in self.plan.cases if case.verdict is None)

    @property
    def first_cases(self) -> dict[str, Case]:
        """The first case of each engine."""
        return {case.effective_target.engine: case for case in reversed(self.cases)}


def examine(of: Examination) -> Iterator[Finding]:
    """Every finding; what needs torch is asked in workers, so that no driver can end the examination."""
    temporary = disk.check_temporary()
    yield temporary
    with ExitStack() as stack:
        workers = _Workers(of, stack) if temporary.status is Status.OK else None
        # Workers import while what needs none is looked at.
        yield from versions.check(versions.installed(), own_requirements(), set(of.first_cases))
        by_profile = {name: value for case in of.plan.cases for name, value in case.environment.items()}
        yield from environment.check(of.environment, by_profile)
        yield from disk.check_output(of.output)
        yield from models.check(of.cases)
        yield from _not_run(of.plan)
        isa, name = "", None
        if workers is not None and of.cases:
            yield from workers.check_engines()
            asked = workers.any_worker()
            answer = asked.ask("device", of.plan.device, list(of.profile.driver.builds))
            yield from device.check(of.plan.device, answer, of.profile.driver, device.System(of.environment))
            if device.usable(answer):
                isa, name = str(answer["isa"]), answer.get("name")
                yield _stack(of, asked)
                yield from _on_the_device(of, asked, answer)
        references = models.look_up(of.cases, isa)
        yield from models.check_references(references)
        yield _host_memory(of, references)
        yield duration.check(of.estimate(name), of.plan.budget_minutes)
        for place in disk.places(of.output, len(of.cases), len(references.to_compute)):
            yield disk.check(place)
    if of.plan.device != "cpu" and of.cases:
        yield lock.check(f"{of.plan.device}:0")


class _Workers:
    """One questioner for each engine of the plan, in the order of the plan."""

    def __init__(self, of: Examination, stack: ExitStack) -> None:
        self._of = of
        self._stack = stack
        self._pools = stack.enter_context(Pools())
        self._of_engine = {
            engine: self._questioner(of.engines[engine], case) for engine, case in of.first_cases.items()
        }
        self._able: list[Questioner] = []

    def check_engines(self) -> Iterator[Finding]:
        """Whether each engine's adapter can be imported, under the environment that the profile gives it."""
        for engine, asked in self._of_engine.items():
            name = self._of.engines[engine]
            answer = asked.ask("adapter", name)
            if isinstance(answer, NoAnswer):
                found = f"{engine}: {name} cannot be imported: {one_line(answer.reason, 1500)}"
                yield problem("engines", found, "install the engine, or the versions that fit it; see the message")
            else:
                self._able.append(asked)
                yield ok("engines", f"{engine}: {name} can be imported")

    def any_worker(self) -> Questioner:
        """A worker that has imported an engine, or torch alone where no engine can be imported."""
        if self._able:
            return self._able[0]
        case = next(iter(self._of.first_cases.values()))
        return self._questioner(f"{PROBE}:device", case)

    def _questioner(self, preload: str, case: Case) -> Questioner:
        of = self._of
        return self._stack.enter_context(
            Questioner(self._pools, preload, case.start, case.environment, PROBE, of.seconds)
        )


def _not_run(plan: Plan) -> Iterator[Finding]:
    """Cases of which the plan itself knows that they cannot run here."""
    reasons: dict[tuple[str, str, str], int] = {}
    yet_to_fetch: Counter[str] = Counter()
    for case in plan.cases:
        if case.verdict is Verdict.ENVIRONMENT:
            of, advice = "engines", "install what is missing, or select others (--engine)"
            if case.reason == case.model.absent and not case.model.digest:  # nothing was recorded of it
                yet_to_fetch[case.model.name] += 1
                continue
            if case.reason == case.model.absent:
                of, advice = "models", "do what the message says, or select others (--model)"
            elif case.fit is not None and case.reason == case.fit.refusal:
                of, advice = "models", "take a larger machine, or select others (--model, --dtype, --budget)"
            reasons[of, case.reason, advice] = reasons.get((of, case.reason, advice), 0) + 1
    if yet_to_fetch:
        names = list(yet_to_fetch)
        what = "the model is" if len(names) == 1 else f"{len(names)} models are"
        yield problem(
            "models",
            f"{yet_to_fetch.total()} of {len(plan.cases)} cases cannot run: {what} not here: {', '.join(names)}",
            f"python -m conformance models fetch {' '.join(names)}, or select others (--model)",
        )
    for (of, reason, advice), count in reasons.items():
        yield problem(of, f"{count} of {len(plan.cases)} cases cannot run: {one_line(reason)}", advice)


def _stack(of: Examination, asked: Questioner) -> Finding:
    """What is beneath torch; the variables that are set have a finding of their own."""
    told = asked.ask("stack", of.plan.device)
    runtime = {} if isinstance(told, NoAnswer) else told
    lines = stack_lines({"stack": {**local_stack(of.environment), "environment": {}, "runtime": runtime}})
    return ok("stack", "".join(lines).removeprefix("stack: ") or "nothing of it can be read")


def _on_the_device(of: Examination, asked: Questioner, answer: Mapping[str, Any]) -> Iterator[Finding]:
    kind = of.plan.device
    if "total" in answer:
        yield from memory.check_device(kind, answer.get("free"), answer["total"], memory.largest(of.cases))
    claims: dict[str, set[str]] = {}
    for case in of.cases:
        claims.setdefault(case.effective_target.dtype, set()).add(case.precision)
    yield from arithmetic.check(asked.ask, kind, claims, models.head_sizes(of.cases), of.profile.products.matmul)


def _host_memory(of: Examination, references: models.References) -> Finding:
    """The host holds the weights on their way to the device, and computes references in fp64."""
    computed = {model.name for _, model in references.to_compute}
    need = max(
        memory.largest(of.cases),
        memory.largest(tuple(case for case in of.cases if case.model.name in computed), "float64"),
    )
    return memory.check_host(memory.free_host_bytes(), need)
