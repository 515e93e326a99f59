"""A planted fault: injected into the engine before a suite's own cases, to see in this very run that it is found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance import checkpoint
from conformance.execution import injection
from conformance.execution.group import Group
from conformance.execution.holder import Holder
from conformance.execution.injection import FAULT, NOT_APPLICABLE, out_of_place, with_options
from conformance.execution.outcome import Outcome
from conformance.execution.pools import Pools
from conformance.execution.references import References
from conformance.execution.session import Session
from conformance.faults.fault import Fault
from conformance.results.planted import Fate, Planted
from conformance.verdict import Verdict

_NOT_RUN = (Verdict.ENVIRONMENT, Verdict.NOT_SUPPORTED)


@dataclass(frozen=True)
class Planting:
    """Plants the faults of a run. `engines` maps the plan's engines to "module:Class"."""

    faults: Mapping[str, Fault]
    engines: Mapping[str, str]
    device: str
    pools: Pools
    load_seconds: float
    case_seconds: float

    def plant(self, group: Group, references: References) -> Planted:
        """Inject a fault into the group's engine, and see whether a case FAILs."""
        engine = group.first.effective_target.engine
        injector = injection.INJECTORS.get(self.engines[engine])
        if injector is None:
            return planted(group, "", "not planted", f"nothing can be injected into the engine {engine}")
        reason = "no structural fault applies to the model"
        for fault in candidates(self.faults.values(), group):
            fate, reason = self._try(fault, group, injector.faulty, references)
            if fate != "not planted":
                return planted(group, fault.id, fate, reason)
        return planted(group, "", "not planted", reason)

    def _try(self, fault: Fault, group: Group, engine_class: str, references: References) -> tuple[Fate, str]:
        changed = with_options(group, {FAULT: fault.id})
        outcomes: list[Outcome] = []
        with Holder(self.pools, self.load_seconds) as holder:
            session = Session(changed, self.device, engine_class, holder, self.case_seconds)
            for case in changed.cases:
                outcomes.append(session.attempt(case.test, references).outcome)
                if outcomes[-1].verdict is Verdict.FAIL:
                    return "found", f"{case.requirement_id}: {outcomes[-1].reason}"
        last = outcomes[-1]
        if f"{NOT_APPLICABLE}:" in last.reason:
            return "not planted", last.reason
        if all(one.verdict in _NOT_RUN for one in outcomes):
            if self._runs(group, references):
                return "missed", f"the engine runs, but not with a fault: {last.reason}"
            return "not planted", last.reason
        worst = next((one for one in outcomes if one.verdict is not Verdict.PASS), None)
        told = "every case passed" if worst is None else f"no case failed; {worst.verdict}: {worst.reason}"
        return "missed", told

    def _runs(self, group: Group, references: References) -> bool:
        """Whether the engine as it is runs any of the cases."""
        engine_class = self.engines[group.first.effective_target.engine]
        with Holder(self.pools, self.load_seconds) as holder:
            session = Session(group, self.device, engine_class, holder, self.case_seconds)
            return any(session.attempt(case.test, references).outcome.verdict not in _NOT_RUN for case in group.cases)


def candidates(faults: Iterable[Fault], group: Group) -> list[Fault]:
    """The structural faults that the group's model can have, those that are at home in its suite first.

    They are found in every dtype, so whichever the target has. Ordered as the library is: each run plants the same.
    """
    case = group.first
    configuration = checkpoint.config(case.model.folder)
    fit = [
        one
        for one in faults
        if one.structural
        and one.rate == 1
        and out_of_place(one, group) is None
        and _applies(one, configuration, case.role)
    ]
    return sorted(fit, key=lambda one: (one.suite != case.suite, one.model != case.model.name))


def _applies(fault: Fault, configuration: Mapping[str, Any], role: str) -> bool:
    try:
        return fault.applies(configuration, role) is None
    except Exception:  # of a vendor's own fault, which must not keep the others from being planted
        return False


def places(every: Sequence[Group]) -> list[Group]:
    """The groups to plant in: one for each suite class and target, that of an embedded model where there is one."""
    found: dict[tuple[str, str], Group] = {}
    for group in sorted(every, key=lambda group: group.first.model.tier != "embedded"):
        found.setdefault((group.first.suite_path, group.first.effective_target.id), group)
    return list(found.values())


def planted(group: Group, fault: str, fate: Fate, reason: str) -> Planted:
    """The record of it."""
    case = group.first
    folded = " ".join(reason.split())
    return Planted(case.suite, case.role, case.effective_target.id, case.model.name, fault, fate, folded)
