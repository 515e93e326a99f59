"""A run: the plan's cases, one after the other, each with a verdict in the journal before the next one starts."""

from __future__ import annotations

import datetime
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from conformance import __version__
from conformance.codec import ProtocolError
from conformance.estimate import Estimate, beyond_budget
from conformance.execution.coverage import not_covered
from conformance.execution.deadline import NEVER, Deadline
from conformance.execution.errors import ExecutionError
from conformance.execution.group import Group, groups
from conformance.execution.interrupts import Interrupts
from conformance.execution.lock import device_lock
from conformance.execution.outcome import Outcome, out_of_time, outcome_of
from conformance.execution.pools import Pools
from conformance.execution.references import References
from conformance.execution.remote import ask_facts
from conformance.execution.session import Session
from conformance.judgement import Judgement
from conformance.plan import Case, Plan
from conformance.profile import Profile
from conformance.results.baseline import compared, differences
from conformance.results.document import Counters, build_document, write_document
from conformance.results.flavour import DEFAULT_FLAVOUR
from conformance.results.journal import Journal, RunHeader
from conformance.results.junit import write_junit
from conformance.results.loading import Record
from conformance.results.output import JUNIT, RESULTS, OutputError
from conformance.results.record import CaseResult
from conformance.results.redact import Redactor
from conformance.results.rows import write_rows
from conformance.verdict import Verdict

FACTS = "conformance.engines.device:facts"
LOCK_SECONDS = 24 * 3600.0


class Listener(Protocol):
    """Who is told how the run goes."""

    def run_started(self, header: RunHeader) -> None:
        """The plan is made and the journal is open."""

    def case_started(self, case_id: str) -> None:
        """A case is launched."""

    def case_finished(self, result: CaseResult) -> None:
        """A case has its verdict."""

    def group_finished(self, target: str, model: str, results: Sequence[CaseResult]) -> None:
        """All cases of a model on a target have theirs."""

    def note(self, text: str) -> None:
        """Something that is worth a line and is no verdict."""


@dataclass(frozen=True)
class RunRequest:
    """What is run. `plan` plans for given facts; `reproduce` is the command that runs one case alone.

    `junit` is one of `FLAVOURS`; beside a `baseline`, new failures alone decide the exit code.
    """

    plan: Callable[[Mapping[str, Any]], Plan]
    facts: Mapping[str, Any]
    profile: Profile
    engines: Mapping[str, str]  # name -> "module:Class"
    output: Path
    argv: tuple[str, ...]
    reproduce: Callable[[Case], str]
    load_seconds: float
    case_seconds: float
    estimate: Callable[[Plan, Mapping[str, Any]], Estimate]  # of what the plan runs, on the machine of these facts
    junit: str = DEFAULT_FLAVOUR
    baseline: Record | None = None
    budget: Deadline = NEVER  # after it no further case is started


@dataclass
class _Tally:
    results: list[CaseResult] = field(default_factory=list)
    models_loaded: int = 0
    peak_mib: float = 0.0
    interrupted: bool = False


def run(request: RunRequest, listener: Listener, interrupts: Interrupts) -> dict[str, Any]:
    """Run the plan and write the output folder; the document that results.json holds.

    The folder is the caller's (`claimed`). An interrupt ends the run early, with what was measured written; the
    document says so. Raises `OutputError` where the folder cannot be written.
    """
    tally = _Tally()
    with ExitStack() as stack:
        pools = stack.enter_context(Pools())
        facts = request.facts
        try:
            with interrupts.heeded():
                facts = complete_facts(request.plan, request.facts, request.engines, pools, request.load_seconds)
        except KeyboardInterrupt:
            tally.interrupted = True
        plan = request.plan(facts)
        header = _header(request, plan, facts)
        redact = Redactor.of_this_machine(
            keep=[str(request.output.resolve()), *{str(case.model.folder) for case in plan.cases}]
        )
        journal = stack.enter_context(Journal.create(request.output, header, redact=redact))
        listener.run_started(header)
        if request.baseline is not None:
            for sentence in differences(request.baseline, plan.hash, header.planned):
                listener.note(sentence)
        if warning := beyond_budget(request.estimate(plan, facts), request.budget.seconds):
            listener.note(warning)
        references = References(pools, str(facts.get("isa", "")), request.load_seconds, listener.note)
        if not tally.interrupted:
            try:
                with interrupts.heeded():
                    _measure(request, plan, pools, references, journal, listener, tally)
            except KeyboardInterrupt:
                tally.interrupted = True
    document = build_document(
        header,
        tally.results,
        finished=_now(),
        interrupted=tally.interrupted,
        counters=Counters(references.computed, pools.workers_started, tally.models_loaded, tally.peak_mib),
        not_covered=not_covered(plan, request.profile),
        redact=redact,
    )
    if request.baseline is not None:
        document = compared(document, request.baseline, redact)
    write_document(document, request.output / RESULTS)
    write_junit(document, request.output / JUNIT, request.junit)
    return document


def complete_facts(
    plan: Callable[[Mapping[str, Any]], Plan],
    facts: Mapping[str, Any],
    engines: Mapping[str, str],
    pools: Pools,
    seconds: float,
) -> dict[str, Any]:
    """The facts that only a worker knows, added; a worker that cannot be had makes the device unavailable."""
    known_plan = plan(facts)
    case = next((case for case in known_plan.cases if case.verdict is None), None)
    if case is None:
        return dict(facts)
    try:
        pool = pools.get(engines[case.effective_target.engine], case.start, case.environment)
        known = ask_facts(pool, FACTS, seconds, known_plan.device)
    except (ExecutionError, ProtocolError) as error:
        reason = str(error).strip().splitlines()[0]
        known = {"device": {"type": known_plan.device, "available": False, "reason": reason}}
    return {**facts, **known, "device": {**facts.get("device", {}), **known["device"]}}


def _measure(
    request: RunRequest,
    plan: Plan,
    pools: Pools,
    references: References,
    journal: Journal,
    listener: Listener,
    tally: _Tally,
) -> None:
    for case in plan.cases:
        if case.verdict is not None:
            _settle(_result(request, case, Outcome(case.verdict, case.reason)), journal, listener, tally)
    with owned_device(plan, listener.note):
        for group in groups(plan):
            _run_group(request, group, plan.device, pools, references, journal, listener, tally)


def _run_group(
    request: RunRequest,
    group: Group,
    device: str,
    pools: Pools,
    references: References,
    journal: Journal,
    listener: Listener,
    tally: _Tally,
) -> None:
    target, model = group.first.effective_target, group.first.model.name
    done: list[CaseResult] = []
    session: Session | None = None
    try:
        engine_class = request.engines[target.engine]
        session = Session(group, device, engine_class, pools, request.load_seconds, request.case_seconds)
        with session:
            for case in group.cases:
                if session.given_up:  # never launched, so the journal must not say so
                    result = _result(request, case, session.given_up_because)
                elif request.budget.has_passed:
                    result = _result(request, case, out_of_time(request.budget))
                else:
                    journal.started(case.id)
                    listener.case_started(case.id)
                    result = _run_case(request, session, references, case, listener)
                done.append(_settle(result, journal, listener, tally))
    except OutputError:
        raise
    except Exception as error:  # a defect of one suite or engine must not cost the others their verdicts
        rest = group.cases[len(done) :]
        if not rest:
            listener.note(f"{target} {model}: the worker did not end well: {error}")
        for case in rest:
            result = _result(request, case, outcome_of(error), started=_now(), attempts=1)
            done.append(_settle(result, journal, listener, tally))
    finally:
        if session is not None:
            tally.models_loaded += session.loads
            tally.peak_mib = max(tally.peak_mib, session.peak_mib)
    journal.sync(target.id)
    listener.group_finished(target.id, model, done)


def _run_case(
    request: RunRequest, session: Session, references: References, case: Case, listener: Listener
) -> CaseResult:
    started, clock = _now(), time.monotonic()
    attempt = session.attempt(case.test, references)
    duration = time.monotonic() - clock
    rows = next((one for one in reversed(attempt.judgements) if one.verdict is not Verdict.PASS and one.rows), None)
    return _result(
        request,
        case,
        attempt.outcome,
        effective=attempt.effective,
        judgements=attempt.judgements,
        started=started,
        duration_s=duration,
        attempts=1,
        rows_file=_keep_rows(request, session, case, rows, listener) if rows else None,
    )


def _keep_rows(
    request: RunRequest, session: Session, case: Case, judgement: Judgement, listener: Listener
) -> str | None:
    try:
        return write_rows(request.output, case.id, judgement, session.request.dtype)
    except (OutputError, ValueError) as error:  # the verdict counts for more than the rows it rests on
        listener.note(f"{case.id}: its rows are not kept: {error}")
        return None


def _result(request: RunRequest, case: Case, outcome: Outcome, **measured: Any) -> CaseResult:
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
        reproduce=request.reproduce(case),
        log_tail=outcome.log_tail,
        **measured,
    )


def _settle(result: CaseResult, journal: Journal, listener: Listener, tally: _Tally) -> CaseResult:
    journal.finished(result)
    tally.results.append(result)
    listener.case_finished(result)
    return result


@contextmanager
def owned_device(plan: Plan, note: Callable[[str], None]) -> Iterator[None]:
    """Own an accelerator's memory while a plan runs; the CPU's is shared anyway. `note` is told of any waiting."""
    if plan.device == "cpu" or all(case.verdict is not None for case in plan.cases):
        yield
        return

    def waiting(holder: int | None) -> None:
        note(f"waiting for the {plan.device} device, which process {holder or '?'} is testing")

    with device_lock(f"{plan.device}:0", Deadline.after(LOCK_SECONDS), waiting):
        yield


def _header(request: RunRequest, plan: Plan, facts: Mapping[str, Any]) -> RunHeader:
    return RunHeader(
        backend=plan.backend,
        profile_path=str(plan.profile_path),
        profile_sha256=hashlib.sha256(request.profile.text.encode()).hexdigest(),
        plan_hash=plan.hash,
        planned=tuple(case.id for case in plan.cases),
        argv=request.argv,
        version=__version__,
        started=_now(),
        facts=facts,
        budget_minutes=None if request.budget == NEVER else round(request.budget.seconds / 60, 6),
        estimate=request.estimate(plan, facts).record(),
    )


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
