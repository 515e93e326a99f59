"""The cases of a plan in one process, one after the other, each with a verdict in the journal before the next one."""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from conformance import disclaimed
from conformance.execution.aftermath import Aftermath
from conformance.execution.device import DeviceBusy, DeviceWatch, owned_device
from conformance.execution.disclaimed import DisclaimedSession
from conformance.execution.group import Group, groups
from conformance.execution.holder import Holder, Load
from conformance.execution.on_demand import variant_named
from conformance.execution.outcome import Outcome, out_of_time, outcome_of
from conformance.execution.planting import Planting, places, planted
from conformance.execution.pools import Pools
from conformance.execution.references import References
from conformance.execution.request import Listener, RunRequest
from conformance.execution.resume import boot_id, culprits
from conformance.execution.session import Session
from conformance.judgement import Judgement
from conformance.plan import Case, Plan
from conformance.results.journal_writer import Journal
from conformance.results.output import OutputError
from conformance.results.planted import Planted
from conformance.results.record import CaseResult, Counters
from conformance.results.rows import write_rows
from conformance.verdict import Verdict


@dataclass
class Measurement:
    """What all cases share, and what is known of them so far.

    `results` and `planted` faults are those kept of former processes, then those of this one; `launches` are by former
    processes, of cases that have no verdict.
    """

    request: RunRequest
    plan: Plan
    pools: Pools
    references: References
    journal: Journal
    listener: Listener
    results: list[CaseResult]
    launches: Mapping[str, tuple[int, ...]]
    planted: list[Planted] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._watch = DeviceWatch(self.plan.device, self.pools)
        self._aftermath = Aftermath(self.plan.device, self.pools, self.listener.note)
        self._gone = ""  # why the device cannot be used any more
        self._holder = Holder(self.pools, self.request.load_seconds, self.listener.note)
        self.references.release = self._holder.release

    @property
    def counters(self) -> Counters:
        """What this process has cost so far."""
        started, holder = self.pools.workers_started, self._holder
        return Counters(self.references.computed, started, holder.loads, round(holder.peak_mib, 3))

    def run(self) -> None:
        """Bring every case to a verdict. Raises `OutputError`; what else goes wrong is a verdict."""
        self._settle_decided()
        with ExitStack() as stack:
            try:
                stack.enter_context(owned_device(self.plan, self.listener.note))
            except DeviceBusy as error:
                self._gone = str(error)
            stack.callback(self._aftermath.sweep)
            stack.enter_context(self._holder)
            self._count_crashes()
            every = groups(self.plan)
            chosen = places(every) if self.request.plant is not None else []
            for group in every:
                if group in chosen:
                    self._plant(group)
                self._run_group(group)

    def _settle_decided(self) -> None:
        """The cases that are not launched: the plan knows their verdict, or they ended former processes."""
        former = self.request.former
        settled = {result.id for result in self.results}
        blamed = {} if former is None else culprits(former, boot_id())
        for case in self.plan.cases:
            if case.id in settled:
                continue
            if case.verdict is not None:
                self._settle(self._result(case, Outcome(case.verdict, case.reason)))
            elif case.id in blamed:
                outcome = Outcome(Verdict.CRASH, blamed[case.id], blamed[case.id])
                self._settle(self._result(case, outcome, attempts=len(self.launches[case.id])))

    def _count_crashes(self) -> None:
        """Of what former processes, and this one before its first launch, know to have ended a worker."""
        crashed = {one.id: one for one in self.results if one.verdict in (Verdict.CRASH, Verdict.TIMEOUT)}
        for group in groups(self.plan):
            place = group.load(self.plan.device, "").place
            for result in (crashed[case.id] for case in group.cases if case.id in crashed):
                self._holder.crashes[place[0], place[1], variant_named(result.reason)] += 1

    def _plant(self, group: Group) -> None:
        """Plant a fault before the group's own cases, unless a former process has, or there is nothing to run."""
        request, ids = self.request, {case.id for case in group.cases}
        entry = planted(group, "", "not planted", "")
        known = any(each.place == entry.place for each in self.planted)
        if known or self._gone or request.budget.has_passed or ids <= {result.id for result in self.results}:
            return
        self._holder.release()  # the planted engine and the engine as it is never hold memory together
        planting = Planting(
            request.plant or {},
            request.engines,
            self.plan.device,
            self.pools,
            request.load_seconds,
            request.case_seconds,
        )
        try:
            entry = planting.plant(group, self.references)
        except Exception as error:  # a fault that cannot be planted must not cost the suite its verdicts
            entry = planted(group, "", "not planted", f"{type(error).__name__}: {error}")
        self.journal.planted(entry)
        self.planted.append(entry)
        if entry.fate != "found":
            self.listener.note(f"planted fault {entry.fate}: {entry.name}: {entry.reason}")

    def _run_group(self, group: Group) -> None:
        request, target, model = self.request, group.first.effective_target, group.first.model.name
        ids = {case.id for case in group.cases}
        done = [result for result in self.results if result.id in ids]
        settled = {result.id for result in done}
        cases = [case for case in group.cases if case.id not in settled]
        if not cases:
            return
        try:
            engine_class = request.engines[target.engine]
            device = self.plan.device
            kind = DisclaimedSession if group.first.suite == disclaimed.SUITE.name else Session
            session = kind(group, device, engine_class, self._holder, request.case_seconds)
            for case in cases:
                # Not before every case: a variant that is loaded stays for the next that asks for it.
                is_due = case is cases[0] or self._aftermath.is_doubted
                if is_due and not (self._gone or session.given_up or request.budget.has_passed):
                    self._look_round(session.load)
                # What is not launched must not be called so by the journal.
                if self._gone:
                    result = self._result(case, Outcome(Verdict.ENVIRONMENT, self._gone))
                elif session.given_up:
                    result = self._result(case, session.given_up_because)
                elif request.budget.has_passed:
                    result = self._result(case, out_of_time(request.budget))
                else:
                    self.journal.started(case.id)
                    self.listener.case_started(case.id)
                    result = self._run_case(session, case)
                done.append(self._settle(result))
                if result.verdict in (Verdict.CRASH, Verdict.TIMEOUT):
                    self._aftermath.doubt()
                if result.attempts and (why := self._watch.gone(case, engine_class, result.verdict)):
                    self._gone = f"the {device} device disappeared during the run: {why}"
                    self.listener.note(f"{self._gone}; nothing more is launched")
        except OutputError:
            raise
        except Exception as error:  # a defect of one suite or engine must not cost the others their verdicts
            ended = {result.id for result in done}
            for case in (case for case in cases if case.id not in ended):
                result = self._result(case, outcome_of(error), started=now(), attempts=self._attempts(case))
                done.append(self._settle(result))
        self.journal.sync(target.id, self.counters)
        self.listener.group_finished(target.id, model, done)

    def _look_round(self, load: Load) -> None:
        """Before anything else is loaded: nothing is launched any more where the targets so far left the device ill."""
        if self._holder.serves(load):
            return
        self._holder.release()
        if why := self._aftermath.fault(load):
            self._gone = f"the {self.plan.device} device is not as it was before: {why}"
            self.listener.note(f"{self._gone}; nothing more is launched")

    def _run_case(self, session: Session, case: Case) -> CaseResult:
        # References are computed once and found again: their time is not the case's, and no later run's.
        started, clock, computing_s = now(), time.monotonic(), self.references.computing_s
        attempt = session.attempt(case.test, self.references)
        duration = max(0.0, time.monotonic() - clock - (self.references.computing_s - computing_s))
        failing = () if attempt.outcome.verdict is Verdict.PASS else attempt.judgements
        rows = next((one for one in reversed(failing) if one.verdict is not Verdict.PASS and one.rows), None)
        return self._result(
            case,
            attempt.outcome,
            effective=attempt.effective,
            judgements=attempt.judgements,
            started=started,
            duration_s=duration,
            attempts=self._attempts(case),
            rows_file=self._keep_rows(session, case, rows) if rows else None,
        )

    def _attempts(self, case: Case) -> int:
        return 1 + len(self.launches.get(case.id, ()))

    def _keep_rows(self, session: Session, case: Case, judgement: Judgement) -> str | None:
        try:
            return write_rows(self.request.output, case.id, judgement, session.request.dtype)
        except (OutputError, ValueError) as error:  # the verdict counts for more than the rows it rests on
            self.listener.note(f"{case.id}: its rows are not kept: {error}")
            return None

    def _result(self, case: Case, outcome: Outcome, **measured: Any) -> CaseResult:
        return CaseResult(
            id=case.id,
            suite=case.suite,
            test=case.test,
            requirement_id=case.requirement_id,
            statement=case.statement,
            role=case.role,
            model=case.model.name,
            target=case.target,
            verdict=outcome.verdict,
            reason=outcome.reason,
            message=outcome.message,
            quirks=case.quirks,
            reproduce=self.request.reproduce(case),
            log_tail=outcome.log_tail,
            **measured,
        )

    def _settle(self, result: CaseResult) -> CaseResult:
        self.journal.finished(result)
        self.results.append(result)
        self.listener.case_finished(result)
        return result


def now() -> str:
    """The clock's time, ISO 8601, UTC."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
