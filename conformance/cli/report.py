"""`report`: tell a finished run again from its results.json, and write its junit.xml again."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from conformance.cli.arguments import add_report
from conformance.names import UsageError
from conformance.results.flavour import known_flavour


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("results", metavar="DIR|FILE", type=Path, help="a run's folder, or its results.json")
    add_report(parser)


def main(options: argparse.Namespace) -> int:
    """Report; the exit code is that of the run, or, beside a baseline, that of the comparison."""
    junit = known_flavour(options.junit)
    from conformance.results.baseline import compared, read_baseline
    from conformance.results.console import Console
    from conformance.results.document import final_exit_code
    from conformance.results.going_on import resume_command
    from conformance.results.junit import write_junit
    from conformance.results.loading import read_record
    from conformance.results.output import JUNIT, OutputError
    from conformance.results.redact import Redactor

    record = read_record(options.results)
    document = record.document
    if options.baseline is not None:
        baseline = read_baseline(options.baseline, document["run"]["backend"])
        if baseline.path.resolve() == record.path.resolve():
            raise UsageError(
                f"{baseline.path}: beside itself a run has no new failure; give --baseline the results.json of an "
                "earlier run"
            )
        document = compared(document, baseline, Redactor.of_this_machine())
    file = record.path.parent / JUNIT
    fault = ""
    try:
        write_junit(document, file, junit)
    except OutputError as error:  # a folder that cannot be written, perhaps a CI system's archive, can be told of
        cause = error.__cause__
        reason = cause.strerror if isinstance(cause, OSError) else cause
        fault = f"cannot write {file}: {reason}; copy {record.path.name} to a folder that you may write to"
    except ValueError as error:  # a record that was made by hand
        raise UsageError(f"{record.path}: {error}") from error
    with Console(sys.stderr if options.json else sys.stdout) as console:
        resume = resume_command(document["run"]["argv"], record.path.parent)
        console.retell(document, [] if fault else [file], resume)
    if options.json:
        print(json.dumps(document, indent=1))
    if fault:
        raise UsageError(fault)
    return final_exit_code(document)
