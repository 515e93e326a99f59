"""`doctor`: before a run of hours, in seconds, what would spoil it and what to do about each."""

from __future__ import annotations

import argparse
import json
import sys
import time

from conformance.cli import NOTHING_EXECUTED, say
from conformance.cli.arguments import add_backend, add_output, add_selection, read_inputs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_backend(parser)
    add_selection(parser)
    add_output(parser)
    parser.add_argument("--json", action="store_true", help="print the findings as JSON instead of lines")


def main(options: argparse.Namespace) -> int:
    """Examine; 0 where at most warnings were found, 1 for wrong numbers, 6 where a run could not be complete."""
    started = time.monotonic()
    inputs = read_inputs(options)
    plan = inputs.plan()
    if not plan.cases:
        say("the selection leaves no case; `list` shows what there is")
        return NOTHING_EXECUTED
    # Only now what needs numpy: a mistyped name is answered at once.
    from conformance.doctor.examination import Examination, examine
    from conformance.doctor.finding import exit_code
    from conformance.doctor.report import Lines, document

    findings = []
    lines = None if options.json else Lines(sys.stdout)
    if lines:
        lines.started(plan)
    for finding in examine(Examination(plan, inputs.profile, inputs.engines, options.output)):
        findings.append(finding)
        if lines:
            lines.found(finding)
    seconds = time.monotonic() - started
    if lines:
        lines.finished(findings, seconds)
    else:
        print(json.dumps(document(plan, findings, seconds), indent=1))
    return exit_code(findings)
