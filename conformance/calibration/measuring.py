"""Runs the null set: every null on every target and model of a plan, each in a worker that may crash alone."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from conformance.calibration.sample import Question, Taken
from conformance.criteria.limit import Limit
from conformance.execution.deadline import Deadline
from conformance.execution.device import owned_device
from conformance.execution.group import Group, groups
from conformance.execution.holder import Holder
from conformance.execution.injection import INJECTORS, VARIATION, why_no_null
from conformance.execution.pools import Pools
from conformance.execution.references import References
from conformance.execution.session import Session
from conformance.nulls.null import Null
from conformance.plan import Case, Plan
from conformance.runner import LoadRequest
from conformance.suite import ConformanceSuite
from conformance.verdict import Verdict

_NO_NUMBERS = (Verdict.CRASH, Verdict.TIMEOUT, Verdict.ERROR, Verdict.ENVIRONMENT, Verdict.NOT_RUN)


class NotVaried(Exception):
    """A null that does not apply somewhere; the message says why."""


@dataclass(frozen=True)
class Varied(Group):
    """A group whose engine is varied by a null."""

    null: Null
    is_varied: bool  # by the engine's own variation; False where only inputs are

    def suite(self) -> type[ConformanceSuite]:
        """The suite's class, with other prompts where the null has another seed."""
        return seeded(super().suite(), self.null.seed)

    def request(self, device: str) -> LoadRequest:
        """What the runner is to load, and which null it is to be."""
        request = super().request(device)
        if not self.is_varied:
            return request
        return replace(request, options={**request.options, VARIATION: self.null.id})


@dataclass(frozen=True)
class NotMeasured:
    """A case that a null could not be measured in: crashed, refused, out of time. `where` is its id."""

    null: str
    where: str
    why: str


@dataclass
class Calibration:
    """A calibration on its way. `skipped` counts, by reason, groups where a null is no correct variation."""

    taken: Taken = field(default_factory=Taken)
    not_measured: list[NotMeasured] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    sessions: int = 0


@dataclass(frozen=True)
class Order:
    """What is measured: nulls over the plan's undecided cases, on this machine, until the budget is spent."""

    plan: Plan
    nulls: Sequence[Null]
    engines: Mapping[str, str]
    limits: Mapping[str, Limit]
    isa: str
    load_seconds: float
    case_seconds: float
    budget: Deadline


def measure(
    order: Order,
    pools: Pools,
    into: Calibration,
    note: Callable[[str], None],
    done: Callable[[Null, Group, float], None],
) -> None:
    """Measure, null by null, so that what is cut short has seen every target. `done` is told of each null and group.

    An interrupt passes through; what was taken before it is in `into`. DeviceBusy where another run holds the device.
    """
    references = References(pools, order.isa, order.load_seconds, note)
    with ExitStack() as stack:
        stack.enter_context(owned_device(order.plan, note))
        for null in order.nulls:
            for group in groups(order.plan):
                if order.budget.has_passed:
                    _left(into, null, group.cases, "the budget was spent")
                    continue
                began = time.monotonic()
                try:
                    _measure_group(order, pools, references, null, group, into)
                except NotVaried as reason:
                    into.skipped[str(reason)] = into.skipped.get(str(reason), 0) + 1
                    continue
                into.sessions += 1
                done(null, group, time.monotonic() - began)


def _measure_group(
    order: Order, pools: Pools, references: References, null: Null, group: Group, into: Calibration
) -> None:
    own = order.engines[group.first.effective_target.engine]
    varied = _varied(null, group, own)
    engine_class = INJECTORS[own].varied if varied.is_varied else own
    rest = list(group.cases)
    try:
        _ask(order, pools, references, varied, engine_class, rest, into)
    except Exception as error:  # a defect of one suite or engine must not cost the others their samples
        _left(into, null, rest, f"{type(error).__name__}: {error}")


def _ask(
    order: Order,
    pools: Pools,
    references: References,
    varied: Varied,
    engine_class: str,
    rest: list[Case],
    into: Calibration,
) -> None:
    """Ask every case of `rest`, which leaves it when it has its answer."""
    null, target = varied.null, varied.first.effective_target
    with Holder(pools, order.load_seconds) as holder:
        session = Session(varied, order.plan.device, engine_class, holder, order.case_seconds)
        while rest:
            each = rest[0]
            attempt = session.attempt(each.test, references)
            rest.pop(0)
            if attempt.outcome.verdict in _NO_NUMBERS:
                _left(into, null, [each], attempt.outcome.reason)
                continue
            question = Question(
                device=order.plan.device,
                attention=_attention(each),
                dtype=target.dtype,
                precision=each.precision,
                suite=each.suite,
                test=each.test,
                model=each.model.name,
            )
            into.taken.take(question, null.id, each.id, attempt.judgements, order.limits, seed=null.seed)


def _varied(null: Null, group: Group, engine_class: str) -> Varied:
    """The group as the null has it; NotVaried where it is no correct variation there."""
    case = group.first
    if engine_class not in INJECTORS:
        if null.seed == 0 and null.id != "as-is":
            raise NotVaried(f"{case.effective_target.engine} cannot be varied: it is measured as it is")
        varied = Varied(group.cases, null, False)
    else:
        why = why_no_null(null, case)
        if why is not None:
            raise NotVaried(f"{null.id}: {why}")
        varied = Varied(group.cases, null, True)
    varied.suite()
    return varied


def seeded(suite: type[ConformanceSuite], seed: int) -> type[ConformanceSuite]:
    """The suite with inputs drawn from another seed; the suite itself for 0. NotVaried where they take no seed."""
    if seed == 0:
        return suite
    if "seed" not in inspect.signature(suite.inputs).parameters:
        raise NotVaried(f"the inputs of {suite.__qualname__} take no seed")
    inputs: Callable[..., Any] = suite.inputs
    body = {
        "inputs": staticmethod(functools.partial(inputs, seed)),
        "__module__": suite.__module__,
        "__qualname__": f"{suite.__qualname__}[seed={seed}]",  # references are found by it
    }
    return type(suite.__name__, (suite,), body)


def _attention(case: Case) -> str:
    """The attention backend, with the tower's where that is another."""
    target = case.effective_target
    if case.vision is None or case.vision.attention == target.attention:
        return target.attention
    return f"{target.attention}+{case.vision.attention}"


def _left(into: Calibration, null: Null, cases: Iterable[Case], why: str) -> None:
    into.not_measured += [NotMeasured(null.id, case.id, why) for case in cases]
