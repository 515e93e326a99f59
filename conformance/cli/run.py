"""`run`: measure a backend, show how it goes, and write results.json and junit.xml."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.cli import INTERNAL_ERROR, USAGE, say, show
from conformance.cli.arguments import (
    add_audit,
    add_backend,
    add_budget,
    add_engine_python,
    add_output,
    add_probe,
    add_report,
    add_selection,
    command_line,
    positive,
    read_inputs,
)
from conformance.cli.nothing_selected import refuse
from conformance.execution.deadline import CASE_SECONDS, LOAD_SECONDS, NEVER, Deadline
from conformance.names import UsageError
from conformance.results.flavour import known_flavour

if TYPE_CHECKING:
    from conformance.faults.fault import Fault
    from conformance.plan import Plan
    from conformance.results.journal import JournalContent
    from conformance.results.loading import Record

CERTIFICATION = "certification"
"""The named run that always plants faults."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_backend(parser)
    add_selection(parser)
    add_engine_python(parser)
    add_output(parser)
    add_probe(parser)
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with the run in --output that was killed or interrupted, given the same arguments",
    )
    parser.add_argument(
        "--deadline",
        metavar="SECONDS",
        type=positive,
        default=CASE_SECONDS,
        help=f"how long one case may take before its worker is killed (default: {CASE_SECONDS:g})",
    )
    add_budget(parser)
    parser.add_argument(
        "--plant",
        action="store_true",
        help="inject a fault before each suite on each target; a run that does not find it is VOID (exit code 1). "
        f"--run {CERTIFICATION} always does",
    )
    add_audit(parser)
    add_report(parser)


def main(options: argparse.Namespace) -> int:
    """Run; the exit code is that of the results."""
    inputs = read_inputs(options)
    plan = inputs.plan()
    if not plan.cases:
        return refuse(plan, inputs)
    check_folders(plan)
    junit = known_flavour(options.junit)
    baseline = _baseline(options, inputs.profile.name)
    # Only now what needs numpy: a mistyped name is answered at once.
    from conformance import timings
    from conformance.audit import audit
    from conformance.cache import cache_folder
    from conformance.cli.explain import reproduction
    from conformance.disclaimed import nothing_to_call
    from conformance.execution.interrupts import Interrupts
    from conformance.execution.request import RunRequest
    from conformance.execution.run import report_again, run
    from conformance.results.console import Console
    from conformance.results.document import final_exit_code
    from conformance.results.former import make_room
    from conformance.results.going_on import resume_command
    from conformance.results.output import JOURNAL, JUNIT, RESULTS, OutputError, claimed

    if options.resume and not (options.output / JOURNAL).is_file():
        raise UsageError(
            f"nothing to resume: there is no {options.output / JOURNAL}; leave --resume out to begin a run"
        )
    minutes = plan.budget_minutes
    folder = cache_folder()
    known = timings.load(folder)
    request = RunRequest(
        plan=inputs.plan,
        facts=inputs.facts,
        profile=inputs.profile,
        engines=inputs.engines,
        output=options.output,
        argv=tuple(sys.argv[1:]),
        reproduce=lambda case: reproduction(case, options, inputs),
        load_seconds=LOAD_SECONDS,
        case_seconds=options.deadline,
        junit=junit,
        baseline=baseline,
        estimate=lambda plan, facts: inputs.estimate(plan, known, facts),
        plant=_faults() if options.plant or options.run == CERTIFICATION else None,
        budget=NEVER if minutes is None else Deadline.after(60 * minutes),
        audit=partial(audit, inputs.profile, suites=inputs.suites) if options.audit else None,
    )
    stream = sys.stderr if options.json else sys.stdout
    is_begun = False
    try:
        with Interrupts() as interrupts, claimed(options.output), Console(stream) as console:
            former = read_former(options.output) if options.resume else None
            if not options.resume and (put_aside := make_room(options.output)):
                console.note(put_aside)
            is_begun = True
            if options.probe_disclaimed and (nothing := nothing_to_call(plan, inputs.profile)):
                console.note(nothing)
            if known.fault:
                console.note(known.fault)
            if former is not None and not former.pending:
                document: dict[str, Any] = report_again(replace(request, former=former), console)
            else:
                document = run(replace(request, former=former), console, interrupts)
                if document["facts"].get("device", {}).get("available") is False:
                    which = command_line(options, inputs.profile)
                    console.note(f"the device is missing: `python -m conformance doctor {which}` says why")
                remember(folder, document, console.note)
            files = [options.output / RESULTS, options.output / JUNIT]
            console.run_finished(document, files, resume_command(request.argv, options.output))
            if options.json:
                show(json.dumps(document, indent=1))
    except OutputError as error:
        say(str(error))
        if not (is_begun and (options.output / JOURNAL).exists()):
            return USAGE
        say(f"what had ended is in {options.output / JOURNAL}; once it can be written again, --resume goes on")
        return INTERNAL_ERROR
    return final_exit_code(document)


def _faults() -> Mapping[str, Fault]:
    from conformance.faults.library import faults

    return faults()


def _baseline(options: argparse.Namespace, backend: str) -> Record | None:
    """The baseline that was named, read before anything runs."""
    if options.baseline is None:
        return None
    from conformance.results.baseline import read_baseline

    return read_baseline(options.baseline, backend, options.output)


def remember(folder: Path, document: Mapping[str, Any], note: Callable[[str], None]) -> None:
    """Keep how long the parts of a run took, for later estimates; where that fails, the run is none the worse."""
    from conformance import timings

    if timings.timings_of(document):
        try:
            timings.save(folder, timings.load(folder).with_run(document))
        except OSError as error:
            note(f"how long the suites took could not be kept in {folder}: {error.strerror}")


def read_former(output: Path) -> JournalContent:
    """What the journal says of the run that is to be resumed. Raises UsageError where nobody can tell."""
    from conformance.results.journal import JournalError, read_journal
    from conformance.results.output import remove_parts

    try:
        remove_parts(output)
        return read_journal(output)
    except JournalError as error:
        raise UsageError(f"{error}; that run cannot be resumed: leave --resume out, or give --output") from error


def check_folders(plan: Plan) -> None:
    """Raise UsageError, with every fault, where a model folder of the user's cannot be loaded safely."""
    from conformance.checkpoint import CheckpointError, check

    faults: list[str] = []
    for model in {case.model.name: case.model for case in plan.cases if case.model.tier == "local"}.values():
        try:
            check(model.folder, vision=model.has_vision)
        except CheckpointError as error:
            faults.extend(str(error).splitlines())
    if faults:
        raise UsageError(*faults)
