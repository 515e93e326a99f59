"""`doctor`: before a run of hours, in seconds, what would spoil it and what to do about each."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING

from conformance.cli import say
from conformance.cli.arguments import add_backend, add_budget, add_output, add_selection, read_inputs
from conformance.cli.nothing_selected import refuse
from conformance.names import printable

if TYPE_CHECKING:
    from conformance.estimate import Estimate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_backend(parser)
    add_selection(parser)
    add_output(parser)
    add_budget(parser)
    parser.add_argument("--json", action="store_true", help="print the findings as JSON instead of lines")


def main(options: argparse.Namespace) -> int:
    """Examine; 0 where at most warnings were found, 1 for wrong numbers, 6 where a run could not be complete."""
    started = time.monotonic()
    inputs = read_inputs(options)
    plan = inputs.plan()
    if not plan.cases:
        return refuse(plan, inputs)
    # Only now what needs numpy: a mistyped name is answered at once.
    from conformance import timings
    from conformance.cache import cache_folder
    from conformance.doctor.examination import Examination, examine
    from conformance.doctor.finding import exit_code
    from conformance.doctor.report import Lines, document

    known = timings.load(cache_folder())
    if known.fault:
        say(printable(known.fault))

    def estimate(device: str | None) -> Estimate:
        name = {} if device is None else {"name": device}
        return inputs.estimate(plan, known, {**inputs.facts, "device": {**inputs.facts["device"], **name}})

    findings = []
    lines = None if options.json else Lines(sys.stdout)
    if lines:
        lines.started(plan)
    for finding in examine(Examination(plan, inputs.profile, inputs.engines, options.output, estimate)):
        findings.append(finding)
        if lines:
            lines.found(finding)
    seconds = time.monotonic() - started
    if lines:
        lines.finished(findings, seconds)
    else:
        print(json.dumps(document(plan, findings, seconds), indent=1))
    return exit_code(findings)
