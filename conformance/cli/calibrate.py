"""`calibrate`: measure correct variations on a device, and propose the limits that follow."""

from __future__ import annotations

import argparse
import io
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance import __version__
from conformance.cli import FAILURES, INCOMPLETE, INTERNAL_ERROR, INTERRUPTED, NOTHING_EXECUTED, OK, USAGE, say, show
from conformance.cli.arguments import add_backend, add_budget, add_output, add_selection, positive, read_inputs
from conformance.cli.nothing_selected import refuse
from conformance.execution.deadline import CASE_SECONDS, LOAD_SECONDS, NEVER, Deadline
from conformance.names import UsageError, printable
from conformance.results.silence import fall_silent

if TYPE_CHECKING:
    from conformance.calibration.measuring import Calibration
    from conformance.nulls.null import Null

CALIBRATION, LIMITS = "calibration.json", "limits.toml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_backend(parser)
    add_selection(parser)
    add_output(parser)
    parser.add_argument("--quick", action="store_true", help="only some nulls, one or two of each family")
    parser.add_argument(
        "--null", metavar="ID", action="append", default=[], help="only this null, e.g. kernel.tile-16; several may be"
    )
    parser.add_argument(
        "--pool",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="another device's calibration.json, whose samples count in what is proposed; several may be",
    )
    parser.add_argument(
        "--only-pool", action="store_true", help="measure nothing: propose what follows from the files given by --pool"
    )
    parser.add_argument(
        "--deadline", metavar="SECONDS", type=positive, default=CASE_SECONDS, help="how long one case may take"
    )
    add_budget(parser)


def main(options: argparse.Namespace) -> int:
    """Calibrate.

    0 where no null was accused; 1 where one was; 6 where some could not be measured; 2 interrupted, 5 nothing measured.
    """
    if options.only_pool and not options.pool:
        raise UsageError("--only-pool needs files: --pool FILE")
    nulls = _chosen(options.null, quick=options.quick)
    if options.only_pool:
        nulls = []
    inputs = read_inputs(options)
    plan = inputs.plan()
    if not plan.cases:
        return refuse(plan, inputs)
    # Only now what needs numpy: a mistyped name is answered at once.
    from conformance.calibration import document, measuring, report
    from conformance.criteria import limits
    from conformance.execution.device import DeviceBusy, complete_facts
    from conformance.execution.interrupts import Interrupts
    from conformance.execution.measurement import now
    from conformance.execution.pools import Pools
    from conformance.results.output import OutputError, claimed

    others = [document.read(path) for path in options.pool]
    if again := [str(path) for index, path in enumerate(options.pool) if others[index] in others[:index]]:
        raise UsageError(*(f"--pool {path}: it holds the same calibration as a file before it" for path in again))
    known = limits.every(limits.limits())
    started, clock = now(), time.monotonic()
    budget = NEVER if options.budget is None else Deadline.after(60 * options.budget)
    found = measuring.Calibration()
    facts = dict(inputs.facts)
    interrupted = False
    try:
        with Interrupts() as interrupts, claimed(options.output):
            try:
                with interrupts.heeded(), Pools() as pools:
                    if not options.only_pool:
                        facts = complete_facts(inputs.plan, inputs.facts, inputs.engines, pools, LOAD_SECONDS)
                    order = measuring.Order(
                        plan=inputs.plan(facts),
                        nulls=nulls,
                        engines=inputs.engines,
                        limits=known,
                        isa=str(facts.get("isa", "")),
                        load_seconds=LOAD_SECONDS,
                        case_seconds=options.deadline,
                        budget=budget,
                    )
                    measuring.measure(order, pools, found, _note, _told(found))
            except KeyboardInterrupt:
                interrupted = True
                say("interrupted: what was measured is written")
            origin = document.Origin(
                device=plan.device,
                command=shlex.join(["python", "-m", "conformance", *sys.argv[1:]]),
                started=started,
                facts=facts,
                version=__version__,
                backend=plan.backend,
            )
            seconds = time.monotonic() - clock
            entries = _write(options.output, origin, nulls, found, others, seconds, interrupted)
            told = io.StringIO()  # a pipe's reader may go, which rich would turn into an exit of its own
            screen = sys.stdout if sys.stdout.isatty() else told
            report.print_report(screen, entries, found, _described(origin.device, others), others)
            if told.getvalue():
                show(told.getvalue().rstrip("\n"))
            if facts.get("device", {}).get("available") is False:
                show(printable(f"no {origin.device} device to measure: {facts['device'].get('reason', '')}"))
            show(f"written: {options.output / CALIBRATION}")
            if entries:
                show(f"written: {options.output / LIMITS}: the limits that follow (`validate --limits` checks them)")
    except DeviceBusy as error:
        say(printable(str(error)))
        return INCOMPLETE
    except OutputError as error:
        say(printable(str(error)))
        return INTERNAL_ERROR if found.sessions else USAGE
    if options.only_pool and not interrupted:
        return OK if entries else NOTHING_EXECUTED
    return _code(found, interrupted)


def _chosen(ids: Sequence[str], *, quick: bool) -> list[Null]:
    from conformance.nulls.library import null, nulls

    if ids:
        return [null(id) for id in dict.fromkeys(ids)]
    return [each for each in nulls().values() if each.quick or not quick]


def _write(
    output: Path,
    origin: Any,
    nulls: Sequence[Null],
    found: Calibration,
    others: Sequence[dict[str, Any]],
    seconds: float,
    interrupted: bool,
) -> Any:
    """Write calibration.json, and limits.toml where there is anything to propose; the entries that it proposes for."""
    import importlib.resources
    import json

    from conformance.calibration import document, proposal, summary
    from conformance.criteria import limits
    from conformance.results.output import write_atomically
    from conformance.results.redact import Redactor

    known = limits.every(limits.limits())
    samples = [*found.taken.samples, *(sample for other in others for sample in document.samples_of(other))]
    entries = summary.summarise(samples, known)
    content = document.document(
        origin,
        nulls,
        found,
        entries,
        pooled=[other["command"] for other in others],
        seconds=seconds,
        interrupted=interrupted,
    )
    redact = Redactor.of_this_machine(keep=[str(output.resolve())])
    write_atomically(output / CALIBRATION, (json.dumps(redact(content), indent=1) + "\n").encode())
    if entries:
        text = importlib.resources.files("conformance.criteria").joinpath("limits.toml").read_text("utf-8")
        values = {entry.limit.name: entry.proposed for entry in entries}
        runs = [document.run_of(each) for each in (redact(content), *others)]
        measured = {entry.limit.name: summary.measurements(entry, runs) for entry in entries}
        proposed = proposal.proposed_text(text, values, measured)
        limits.parse(proposed)  # a proposal that would be refused is a defect, and better known here
        write_atomically(output / LIMITS, proposed.encode())
        thinner = summary.thinner(measured, known)
        if thinner:
            _note(
                f"{LIMITS} gives up measurements of more samples than these: {'; '.join(thinner)}; "
                "propose limits from a whole calibration, or add what is missing by --pool"
            )
    return entries


def _code(found: Calibration, interrupted: bool) -> int:
    if interrupted:
        return INTERRUPTED
    if found.taken.alarms:
        return FAILURES
    if not found.taken.judgements:
        return NOTHING_EXECUTED
    return INCOMPLETE if found.not_measured else OK


def _described(device: str, others: Sequence[dict[str, Any]]) -> str:
    return " and ".join(dict.fromkeys([device, *(other["device"] for other in others)]))


def _note(text: str) -> None:
    try:
        print(printable(text), file=sys.stderr, flush=True)
    except OSError:
        fall_silent(sys.stderr)


def _told(found: Calibration) -> Any:
    def done(null: Null, group: Any, seconds: float) -> None:
        case = group.first
        taken = found.taken
        _note(
            f"{null.id} {case.effective_target.id} {case.model.name} {case.suite}: {seconds:.1f} s; "
            f"{taken.judgements} judgements, {len(taken.alarms)} false alarms so far"
        )

    return done
