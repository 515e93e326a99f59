"""A run from its plan to its record: begun or resumed, measured, interrupted or not, and concluded."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from conformance import __version__
from conformance.estimate import Estimate, beyond_budget
from conformance.execution.conclusion import conclude
from conformance.execution.coverage import not_covered
from conformance.execution.deadline import NEVER
from conformance.execution.device import complete_facts
from conformance.execution.interrupts import Interrupts
from conformance.execution.measurement import Measurement, now
from conformance.execution.pools import Pools
from conformance.execution.references import References
from conformance.execution.request import Listener, RunRequest
from conformance.execution.resume import boot_id, fingerprints, otherwise_planted, refuse_another_run
from conformance.plan import Plan
from conformance.results.baseline import differences
from conformance.results.journal import NO_ESTIMATE, RunHeader, Start
from conformance.results.journal_writer import Journal
from conformance.results.planted import Planted
from conformance.results.record import CaseResult
from conformance.results.redact import Redactor
from conformance.stack import identified


def run(request: RunRequest, listener: Listener, interrupts: Interrupts) -> dict[str, Any]:
    """Run the plan, or what a former run has left of it, and write the output folder; what results.json holds.

    The folder is the caller's (`claimed`), and empty or the former run's. An interrupt ends the run early, with what
    was measured written; the document says so. Raises `OutputError` where the folder cannot be written, and
    `UsageError` where the former run was another one, before anything is written.
    """
    former = request.former
    if former is not None:  # before a worker is started: its facts are the same or known later
        planting = otherwise_planted(former, plants=request.plant is not None)
        now_planned = _header(request, request.plan(request.facts), request.facts)
        refuse_another_run(request.output, former.header, now_planned, planting)
    with ExitStack() as stack:
        pools = request.pools or stack.enter_context(Pools())
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
        redact = Redactor.of_this_machine(keep=kept_folders(request.output, plan))
        facts = identified(redact(facts))  # anybody can reckon the id again from what is written
        header = _header(request, plan, facts)
        start = Start(header.started, header.argv, header.boot_id)
        if former is None:
            starts: tuple[Start, ...] = ()
            kept: list[CaseResult] = []
            journal = stack.enter_context(Journal.create(request.output, header, redact=redact))
        else:
            refuse_another_run(request.output, former.header, header)
            starts, header, kept = former.starts, former.header, list(former.kept)
            journal = stack.enter_context(Journal.resume(request.output, former, start, redact=redact))
        rest = _rest(request, plan, facts, kept)
        now_told = replace(header, budget_minutes=_budget_minutes(request), estimate=rest.record())
        listener.run_started(now_told, tuple(kept))  # the record keeps what the run began with
        _warn(request, plan, header, rest, listener)
        references = References(pools, str(facts.get("isa", "")), request.load_seconds, listener.note)
        launches = {} if former is None else former.launches
        planted = [] if former is None else list(former.planted)
        measurement = Measurement(request, plan, pools, references, journal, listener, kept, launches, planted)
        if not interrupted:
            try:
                with interrupts.heeded():
                    measurement.run()
            except KeyboardInterrupt:
                interrupted = True
        counters = measurement.counters
        seconds = journal.ended(counters, interrupted=interrupted)
    start = replace(start, seconds=seconds, counters=counters, interrupted=interrupted)
    return _conclude(request, plan, header, (*starts, start), measurement.results, measurement.planted, redact)


def report_again(request: RunRequest, listener: Listener) -> dict[str, Any]:
    """Write the output folder of the former run, all of whose cases have their verdicts, from its journal.

    Nothing is run, so the facts of this machine do not matter. Raises as `run` does.
    """
    former = request.former
    assert former is not None
    plan = request.plan(former.header.facts)
    refuse_another_run(request.output, former.header, _header(request, plan, {}))
    listener.run_started(replace(former.header, budget_minutes=None, estimate=dict(NO_ESTIMATE)), former.results)
    listener.note(f"nothing to resume in {request.output}: every case has its verdict; this is the report again")
    starts = (*former.starts[:-1], replace(former.starts[-1], interrupted=False))
    redact = Redactor.of_this_machine(keep=kept_folders(request.output, plan))
    return _conclude(request, plan, former.header, starts, former.results, former.planted, redact)


def kept_folders(output: Path, plan: Plan) -> list[str]:
    """The folders whose paths are told in full: the user has named them."""
    return [str(output.resolve()), *sorted({str(case.model.folder) for case in plan.cases})]


def _rest(request: RunRequest, plan: Plan, facts: Mapping[str, Any], kept: Sequence[CaseResult]) -> Estimate:
    """The estimate of what former processes have left."""
    settled = {result.id for result in kept}
    rest = replace(plan, cases=tuple(case for case in plan.cases if case.id not in settled))
    return request.estimate(rest, facts)


def _warn(request: RunRequest, plan: Plan, header: RunHeader, rest: Estimate, listener: Listener) -> None:
    """Say before the first case what is to be known of the baseline and of the budget."""
    if request.baseline is not None:
        for sentence in differences(request.baseline, plan.hash, header.planned):
            listener.note(sentence)
    if warning := beyond_budget(rest, request.budget.seconds):
        listener.note(warning)


def _conclude(
    request: RunRequest,
    plan: Plan,
    header: RunHeader,
    starts: Sequence[Start],
    results: Sequence[CaseResult],
    planted: Sequence[Planted],
    redact: Redactor,
) -> dict[str, Any]:
    sentences = not_covered(plan, request.profile, results)
    faults = planted if planted or request.plant is not None else None
    audited = None if request.audit is None else request.audit(plan, results, header.facts)
    return conclude(
        request.output, header, starts, results, sentences, faults, redact, request.junit, request.baseline, audited
    )


def _header(request: RunRequest, plan: Plan, facts: Mapping[str, Any]) -> RunHeader:
    return RunHeader(
        backend=plan.backend,
        profile_path=str(plan.profile_path),
        profile_sha256=hashlib.sha256(request.profile.text.encode()).hexdigest(),
        plan_hash=plan.hash,
        planned=tuple(case.id for case in plan.cases),
        argv=request.argv,
        version=__version__,
        started=now(),
        boot_id=boot_id(),
        models=fingerprints(plan),
        facts=facts,
        budget_minutes=_budget_minutes(request),
        estimate=request.estimate(plan, facts).record(),
    )


def _budget_minutes(request: RunRequest) -> float | None:
    return None if request.budget == NEVER else round(request.budget.seconds / 60, 6)
