"""A run: the plan's cases, one after the other, each with a verdict in the journal before the next one starts."""

from __future__ import annotations

import datetime
import hashlib
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from conformance import __version__
from conformance.estimate import beyond_budget
from conformance.execution.conclusion import conclude
from conformance.execution.coverage import not_covered
from conformance.execution.deadline import NEVER
from conformance.execution.device import DeviceBusy, DeviceWatch, complete_facts, owned_device
from conformance.execution.group import Group, groups
from conformance.execution.interrupts import Interrupts
from conformance.execution.outcome import Outcome, out_of_time, outcome_of
from conformance.execution.pools import Pools
from conformance.execution.references import References
from conformance.execution.request import Listener, RunRequest
from conformance.execution.resume import boot_id, culprits, fingerprints, refuse_another_run
from conformance.execution.session import Session
from conformance.judgement import Judgement
from conformance.plan import Case, Plan
from conformance.results.baseline import differences
from conformance.results.journal import RunHeader, Start
from conformance.results.journal_writer import Journal
from conformance.results.output import OutputError
from conformance.results.record import CaseResult, Counters
from conformance.results.redact import Redactor
from conformance.results.rows import write_rows
from conformance.verdict import Verdict


@dataclass
class _Tally:
    watch: DeviceWatch
    launches: Mapping[str, tuple[int, ...]]  # by former processes, of cases that have no verdict
    results: list[CaseResult] = field(default_factory=list)
    gone: str = ""  # why the device cannot be used any more
    models_loaded: int = 0
    peak_mib: float = 0.0


def run(request: RunRequest, listener: Listener, interrupts: Interrupts) -> dict[str, Any]:
    """Run the plan, or what a former run has left of it, and write the output folder; what results.json holds.

    The folder is the caller's (`claimed`), and empty or the former run's. An interrupt ends the run early, with what
    was measured written; the document says so. Raises `OutputError` where the folder cannot be written, and
    `UsageError` where the former run was another one, before anything is written.
    """
    former = request.former
    if former is not None:  # before a worker is started: its facts are the same or known later
        refuse_another_run(request.output, former.header, _header(request, request.plan(request.facts), request.facts))
    with ExitStack() as stack:
        pools = stack.enter_context(Pools())
        facts = request.facts
        interrupted = False
        try:
            with interrupts.heeded():
                facts = complete_facts(request.plan, request.facts, request.engines, pools, request.load_seconds)
        except KeyboardInterrupt:
            if former is not None:
                raise  # the folder holds all that there is
            interrupted = True
        plan = request.plan(facts)
        header = _header(request, plan, facts)
        redact = Redactor.of_this_machine(keep=kept_folders(request.output, plan))
        start = Start(header.started, header.argv, header.boot_id)
        if former is None:
            starts: tuple[Start, ...] = ()
            journal = stack.enter_context(Journal.create(request.output, header, redact=redact))
            tally = _Tally(DeviceWatch(plan.device, pools), {})
        else:
            refuse_another_run(request.output, former.header, header)
            starts, header = former.starts, former.header
            journal = stack.enter_context(Journal.resume(request.output, former, start, redact=redact))
            tally = _Tally(DeviceWatch(plan.device, pools), former.launches, list(former.kept))
        listener.run_started(header, tuple(tally.results))
        _warn(request, plan, facts, header, tally, listener)
        references = References(pools, str(facts.get("isa", "")), request.load_seconds, listener.note)
        if not interrupted:
            try:
                with interrupts.heeded():
                    _measure(request, plan, pools, references, journal, listener, tally)
            except KeyboardInterrupt:
                interrupted = True
        counters = _counters(references, pools, tally)
        seconds = journal.ended(counters, interrupted=interrupted)
    start = replace(start, seconds=seconds, counters=counters, interrupted=interrupted)
    return _conclude(request, plan, header, (*starts, start), tally.results, redact)


def report_again(request: RunRequest, listener: Listener) -> dict[str, Any]:
    """Write the output folder of the former run, all of whose cases have their verdicts, from its journal.

    Nothing is run, so the facts of this machine do not matter. Raises as `run` does.
    """
    former = request.former
    assert former is not None
    plan = request.plan(former.header.facts)
    refuse_another_run(request.output, former.header, _header(request, plan, {}))
    listener.run_started(former.header, former.results)
    listener.note(f"nothing to resume in {request.output}: every case has its verdict; this is the report again")
    starts = (*former.starts[:-1], replace(former.starts[-1], interrupted=False))
    redact = Redactor.of_this_machine(keep=kept_folders(request.output, plan))
    return _conclude(request, plan, former.header, starts, former.results, redact)


def kept_folders(output: Path, plan: Plan) -> list[str]:
    """The folders whose paths are told in full: the user has named them."""
    return [str(output.resolve()), *sorted({str(case.model.folder) for case in plan.cases})]


def _warn(
    request: RunRequest, plan: Plan, facts: Mapping[str, Any], header: RunHeader, tally: _Tally, listener: Listener
) -> None:
    """Say before the first case what is to be known of the baseline and of the budget."""
    if request.baseline is not None:
        for sentence in differences(request.baseline, plan.hash, header.planned):
            listener.note(sentence)
    settled = {result.id for result in tally.results}
    rest = replace(plan, cases=tuple(case for case in plan.cases if case.id not in settled))
    if warning := beyond_budget(request.estimate(rest, facts), request.budget.seconds):
        listener.note(warning)


def _conclude(
    request: RunRequest,
    plan: Plan,
    header: RunHeader,
    starts: Sequence[Start],
    results: Sequence[CaseResult],
    redact: Redactor,
) -> dict[str, Any]:
    sentences = not_covered(plan, request.profile)
    return conclude(request.output, header, starts, results, sentences, redact, request.junit, request.baseline)


def _measure(
    request: RunRequest,
    plan: Plan,
    pools: Pools,
    references: References,
    journal: Journal,
    listener: Listener,
    tally: _Tally,
) -> None:
    former = request.former
    settled = {result.id for result in tally.results}
    blamed = {} if former is None else culprits(former, boot_id())
    for case in plan.cases:
        if case.id in settled:
            continue
        if case.verdict is not None:
            _settle(_result(request, case, Outcome(case.verdict, case.reason)), journal, listener, tally)
        elif case.id in blamed:
            outcome = Outcome(Verdict.CRASH, blamed[case.id], blamed[case.id])
            result = _result(request, case, outcome, attempts=len(tally.launches[case.id]))
            _settle(result, journal, listener, tally)
    with ExitStack() as stack:
        try:
            stack.enter_context(owned_device(plan, listener.note))
        except DeviceBusy as error:
            tally.gone = str(error)
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
    ids = {case.id for case in group.cases}
    done = [result for result in tally.results if result.id in ids]
    settled = {result.id for result in done}
    cases = [case for case in group.cases if case.id not in settled]
    if not cases:
        return
    session: Session | None = None
    try:
        engine_class = request.engines[target.engine]
        session = Session(group, device, engine_class, pools, request.load_seconds, request.case_seconds)
        session.crashes = sum(result.verdict in (Verdict.CRASH, Verdict.TIMEOUT) for result in done)
        with session:
            for case in cases:
                # What is not launched must not be called so by the journal.
                if tally.gone:
                    result = _result(request, case, Outcome(Verdict.ENVIRONMENT, tally.gone))
                elif session.given_up:
                    result = _result(request, case, session.given_up_because)
                elif request.budget.has_passed:
                    result = _result(request, case, out_of_time(request.budget))
                else:
                    journal.started(case.id)
                    listener.case_started(case.id)
                    result = _run_case(request, session, references, case, listener, tally)
                done.append(_settle(result, journal, listener, tally))
                if result.attempts and (why := tally.watch.gone(case, engine_class, result.verdict)):
                    tally.gone = f"the {device} device disappeared during the run: {why}"
                    listener.note(f"{tally.gone}; nothing more is launched")
    except OutputError:
        raise
    except Exception as error:  # a defect of one suite or engine must not cost the others their verdicts
        ended = {result.id for result in done}
        rest = [case for case in cases if case.id not in ended]
        if not rest:
            listener.note(f"{target} {model}: the worker did not end well: {error}")
        for case in rest:
            attempts = 1 + len(tally.launches.get(case.id, ()))
            result = _result(request, case, outcome_of(error), started=_now(), attempts=attempts)
            done.append(_settle(result, journal, listener, tally))
    finally:
        if session is not None:
            tally.models_loaded += session.loads
            tally.peak_mib = max(tally.peak_mib, session.peak_mib)
    journal.sync(target.id, _counters(references, pools, tally))
    listener.group_finished(target.id, model, done)


def _counters(references: References, pools: Pools, tally: _Tally) -> Counters:
    return Counters(references.computed, pools.workers_started, tally.models_loaded, round(tally.peak_mib, 3))


def _run_case(
    request: RunRequest, session: Session, references: References, case: Case, listener: Listener, tally: _Tally
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
        attempts=1 + len(tally.launches.get(case.id, ())),
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
        boot_id=boot_id(),
        models=fingerprints(plan),
        facts=facts,
        budget_minutes=None if request.budget == NEVER else round(request.budget.seconds / 60, 6),
        estimate=request.estimate(plan, facts).record(),
    )


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
