"""`selftest`: inject faults and correct variations, and show what the suite finds and what it accuses."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.cli import INCOMPLETE, INTERNAL_ERROR, OK, USAGE, say, show
from conformance.cli.arguments import add_as_of, add_backend, add_engine_python, add_output, positive, read_inputs
from conformance.cli.nothing_selected import refuse
from conformance.execution.deadline import CASE_SECONDS, LOAD_SECONDS
from conformance.names import printable

if TYPE_CHECKING:
    from conformance.cli.arguments import Inputs
    from conformance.faults.fault import Fault
    from conformance.nulls.null import Null
    from conformance.selftest.trial import Finding
    from conformance.selftest.wanted import Wanted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    many: dict[str, Any] = {"action": "append", "default": []}
    add_backend(parser)
    add_engine_python(parser)
    parser.add_argument("--suite", metavar="NAME", help="only this suite", **many)
    parser.add_argument("--attention", metavar="NAME", help="only on this attention backend", **many)
    parser.add_argument("--dtype", metavar="NAME", help="only in this dtype, e.g. bfloat16", **many)
    parser.add_argument(
        "--fault",
        metavar="ID[@SCOPE]",
        help="only this fault, e.g. window.plus-one, window.plus-one@middle or sampling.second@rate=0.01",
        **many,
    )
    parser.add_argument("--null", metavar="ID", help="only this correct variation", **many)
    parser.add_argument(
        "--full",
        action="store_true",
        help="every fault in all scopes and in every suite, attention backend and dtype that it applies to (hours)",
    )
    parser.add_argument("--list", action="store_true", help="print the faults and the correct variations, and stop")
    add_output(parser)
    parser.add_argument(
        "--deadline",
        metavar="SECONDS",
        type=positive,
        default=CASE_SECONDS,
        help=f"how long one case may take before its worker is killed (default: {CASE_SECONDS:g})",
    )
    add_as_of(parser)
    parser.add_argument("--json", action="store_true", help="print the content of selftest.json instead of the report")
    parser.set_defaults(
        engine=[], vision_attention=[], model=[], pattern=None, run=None, tier=None, directions=False, axis=[]
    )


def main(options: argparse.Namespace) -> int:
    """Run the trials; 0 only where every fault was found and nothing correct was accused."""
    from conformance.faults.library import faults
    from conformance.nulls.library import nulls
    from conformance.selftest.wanted import Wanted, check_names

    every, variations = faults(), nulls()
    if options.list:
        print(printable("\n".join(_lines(every, variations))))
        return OK
    wanted = Wanted(
        options.full, tuple(dict.fromkeys(options.fault)), tuple(dict.fromkeys(options.null)), tuple(options.suite)
    )
    check_names(wanted, every, variations)
    inputs = read_inputs(options)
    plan = inputs.plan()
    if not plan.cases:
        return refuse(plan, inputs)
    # Only now what needs numpy: a mistyped name is answered at once.
    from conformance.execution.device import DeviceBusy
    from conformance.results.output import OutputError, claimed

    try:
        with claimed(options.output):
            return _measure(options, inputs, every, variations, wanted)
    except DeviceBusy as error:
        say(str(error))
        return INCOMPLETE
    except OutputError as error:
        say(str(error))
        return USAGE


def _measure(
    options: argparse.Namespace,
    inputs: Inputs,
    faults: Mapping[str, Fault],
    nulls: Mapping[str, Null],
    wanted: Wanted,
) -> int:
    from conformance.execution.device import complete_facts, owned_device
    from conformance.execution.interrupts import Interrupts
    from conformance.execution.measurement import now
    from conformance.execution.pools import Pools
    from conformance.results.output import OutputError
    from conformance.results.redact import Redactor
    from conformance.selftest.console import Screen
    from conformance.selftest.document import document, write
    from conformance.selftest.execution import run_trials, surroundings
    from conformance.selftest.plan import make_trials
    from conformance.selftest.tally import Verdict, conclude

    screen = Screen(sys.stderr if options.json else sys.stdout)
    started, clock = now(), time.monotonic()
    with Interrupts() as interrupts:
        with Pools() as pools, interrupts.heeded():
            facts = complete_facts(inputs.plan, inputs.facts, inputs.engines, pools, LOAD_SECONDS)
        plan = inputs.plan(facts)
        trials = make_trials(plan, inputs.engines, faults, nulls, wanted)
        around = surroundings(plan.device, str(facts.get("isa", "")), LOAD_SECONDS, options.deadline)
        screen.started(plan.backend, trials.count, around.lanes)
        for note in trials.notes:
            screen.note(note)
        findings: list[Finding] = []

        def found(finding: Finding) -> None:
            findings.append(finding)
            screen.found(finding)

        for finding in trials.inapplicable:
            found(finding)
        interrupted = False
        defect: Exception | None = None
        with owned_device(plan, screen.note):
            try:
                interrupted = run_trials(trials, around, found, interrupts, whole=wanted.whole)
            except Exception as error:  # what was found before it is written
                defect = error
        verdict = conclude(findings, interrupted=interrupted, any_faults=wanted.any_faults)
        if defect is not None:
            said = f"internal error: {type(defect).__name__}: {defect}"
            verdict = Verdict((said, *verdict.reasons), INTERNAL_ERROR)
        seconds = time.monotonic() - clock
        made = document(
            plan.backend,
            plan.hash,
            sys.argv[1:],
            facts,
            findings,
            trials.notes,
            verdict,
            started=started,
            seconds=seconds,
            redact=Redactor.of_this_machine(keep=[str(options.output.resolve())]),
        )
        files: list[Path] = []
        unwritten: OutputError | None = None
        try:
            files = write(made, findings, options.output)
        except OutputError as error:
            unwritten = error
    screen.finished(findings, verdict, files, seconds)
    if options.json:
        show(json.dumps(made, indent=1))
    if defect is not None and os.environ.get("CONFORMANCE_DEBUG") == "1":
        raise defect
    if unwritten is not None:  # all that there is was shown
        say(str(unwritten))
        return INTERNAL_ERROR
    return verdict.exit_code


def _lines(faults: Mapping[str, Fault], nulls: Mapping[str, Null]) -> list[str]:
    lines = ["faults, each of which must be found at home (suite, dtype, model):"]
    width = max((len(name) for name in faults), default=0)
    for fault in sorted(faults.values(), key=lambda fault: (fault.family, fault.id)):
        home = f"{fault.suite}, {fault.dtype}{' and bfloat16' if fault.structural else ''}, {fault.model}"
        lines.append(f"  {fault.id:{width}}  {fault.description} ({home}; {', '.join(fault.scopes)})")
    lines.append("correct variations, none of which may be accused:")
    width = max((len(name) for name in nulls), default=0)
    lines += [f"  {null.id:{width}}  {null.description}" for null in sorted(nulls.values(), key=lambda null: null.id)]
    return lines
