"""`run`: measure a backend, show how it goes, and write results.json and junit.xml."""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.cli import INTERNAL_ERROR, NOTHING_EXECUTED, USAGE
from conformance.cli.arguments import add_backend, add_selection, read_inputs
from conformance.names import UsageError

if TYPE_CHECKING:
    from conformance.plan import Plan

LOAD_SECONDS, CASE_SECONDS = 600.0, 300.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_backend(parser)
    add_selection(parser)
    parser.add_argument(
        "--output", metavar="DIR", type=Path, default=Path("out"), help="where the results go (default: out)"
    )
    parser.add_argument(
        "--deadline",
        metavar="SECONDS",
        type=_positive,
        default=CASE_SECONDS,
        help=f"how long one case may take before its worker is killed (default: {CASE_SECONDS:g})",
    )
    parser.add_argument("--json", action="store_true", help="print the content of results.json instead of the report")


def main(options: argparse.Namespace) -> int:
    """Run; the exit code is that of the results."""
    inputs = read_inputs(options)
    plan = inputs.plan()
    if not plan.cases:
        for name in plan.suites_without_model:
            print(f"conformance: no model plays the role of the suite {name}", file=sys.stderr)
        print("conformance: the selection leaves no case; `list` shows what there is", file=sys.stderr)
        return NOTHING_EXECUTED
    check_folders(plan)
    # Only now what needs numpy: a mistyped name is answered at once.
    from conformance.cli.explain import reproduction
    from conformance.execution.run import RunRequest, run
    from conformance.results.console import Console
    from conformance.results.output import JUNIT, RESULTS, OutputError, make_folder

    try:
        make_folder(options.output)
    except OutputError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return USAGE
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
    )
    stream = sys.stderr if options.json else sys.stdout
    with _interruptible(), Console(stream) as console:
        try:
            document: dict[str, Any] = run(request, console)
        except OutputError as error:
            print(f"conformance: {error}", file=sys.stderr)
            return INTERNAL_ERROR if (options.output / "journal.jsonl").exists() else USAGE
        console.run_finished(document, [options.output / RESULTS, options.output / JUNIT])
    if options.json:
        print(json.dumps(document, indent=1))
    return int(document["run"]["exit_code"])


def check_folders(plan: Plan) -> None:
    """Raise UsageError, with every fault, where a model folder of the user's cannot be loaded safely."""
    from conformance.checkpoint import CheckpointError, check

    faults: list[str] = []
    for folder in sorted({case.model.folder for case in plan.cases if case.model.tier == "local"}):
        try:
            check(folder)
        except CheckpointError as error:
            faults.extend(str(error).splitlines())
    if faults:
        raise UsageError(*faults)


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: what was measured is written. A second signal does not stop the writing."""
    numbers = itertools.count(1)  # taken in one step: a signal may come in the midst of another's handler

    def interrupt(*_: object) -> None:
        if next(numbers) != 2:  # the third is from somebody who has waited long enough
            raise KeyboardInterrupt

    former = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    # A signal may wake another thread (numpy has some), or come just before a wait begins: Python notes it, and the
    # wait for a worker goes on. The timer breaks every wait once a second, for what was noted to be heeded.
    former[signal.SIGALRM] = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in former.items():
            signal.signal(number, handler)


def _positive(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds
