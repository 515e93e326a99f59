"""`attention`: measure one attention kernel, a Python function, without engine and model, in seconds."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.cli import NOTHING_EXECUTED, USAGE, say, show
from conformance.cli.arguments import folder, positive
from conformance.names import UsageError, unknown

if TYPE_CHECKING:
    from conformance.execution.pools import Pools
    from conformance.inventory import Suite
    from conformance.plan import Case, Plan
    from conformance.profile import Profile
    from conformance.registry import Registry
    from conformance.results.record import CaseResult

SHAPES = {"quick": "a few of each kind, as in `run`", "full": "all of them"}
CASE_SECONDS = 120.0
OUTPUT = Path("out", "attention")
DESCRIBE = "conformance.engines.kernel:describe"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    from conformance.kernel_arguments import ARGUMENTS

    parser.add_argument(
        "--kernel",
        metavar="MODULE:FUNCTION",
        required=True,
        help="the function, e.g. mykernels.flash:attention; it is called with query, key, value and "
        + ", ".join(ARGUMENTS)
        + "; what it does not take is not asked of it",
    )
    parser.add_argument(
        "--dtype", metavar="NAMES", default="bfloat16,float32", help="dtypes, with commas (default: bfloat16,float32)"
    )
    shapes = "; ".join(f"{name}: {meaning}" for name, meaning in SHAPES.items())
    parser.add_argument("--shapes", metavar="SET", default="quick", help=f"{shapes} (default: quick)")
    parser.add_argument("--device", metavar="TYPE", default="cpu", help="a torch device type (default: cpu)")
    parser.add_argument(
        "--claims",
        metavar="KEY=VALUE",
        nargs="+",
        action="extend",
        default=[],
        help="what it is judged by, with the keys of a profile's attention backend: precision=fused, "
        "precision.float32=tf32, head_sizes=64,128, deterministic=true ... "
        "(default: ieee in float32, fused in 16 bit, all head sizes)",
    )
    parser.add_argument("-k", dest="pattern", metavar="PATTERN", help="a shell pattern, or a part, of the case's id")
    parser.add_argument(
        "--deadline",
        metavar="SECONDS",
        type=positive,
        default=CASE_SECONDS,
        help=f"how long one promise may take before the kernel counts as hung (default: {CASE_SECONDS:g})",
    )
    parser.add_argument(
        "--output",
        metavar="DIR",
        type=folder,
        default=OUTPUT,
        help=f"where the results and the tensors of failing calls go (default: {OUTPUT})",
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on with the measurement in --output that was interrupted"
    )
    parser.add_argument("--json", action="store_true", help="print the content of results.json instead of the report")


def main(options: argparse.Namespace) -> int:
    """Measure; the exit code is that of the results."""
    from conformance.execution.pools import Pools
    from conformance.inventory import load_suites
    from conformance.kernel_profile import PRECISION, ROLE, kernel_profile
    from conformance.registry import discover

    faults = _name_faults(options.kernel)
    dtypes = tuple(dict.fromkeys(dtype.strip() for dtype in options.dtype.split(",")))
    faults += [f"--dtype: {unknown('dtype', dtype, PRECISION)}" for dtype in dtypes if dtype not in PRECISION]
    if options.shapes not in SHAPES:
        faults.append(f"--shapes: {unknown('set of shapes', options.shapes, SHAPES)}")
    if faults:
        raise UsageError(*faults)
    registry = discover()
    start = _start(registry, options.device)
    suites = [suite for suite in load_suites(registry) if suite.role == ROLE]
    with Pools() as pools:  # torch is imported once
        takes = _taken(options.kernel, start, pools)
        profile = kernel_profile(options.kernel, dtypes, options.device, start, takes, options.claims)
        return _measure(options, suites, profile, pools)


def _name_faults(name: str) -> list[str]:
    """What is wrong with the form of a kernel's name."""
    module, colon, function = name.partition(":")
    if colon and all(part.isidentifier() for part in (*module.split("."), function)):
        return []
    path = Path(module)
    right = (
        ".".join((*path.parts[:-1], path.stem)) if path.suffix == ".py" and not path.is_absolute() else "package.module"
    )
    return [f"--kernel: {name!r} should look like MODULE:FUNCTION, e.g. {right}:{function or 'attention'}"]


def _start(registry: Registry, device: str) -> str:
    """How workers start on that type of device: as the profiles of the installed backends say."""
    from conformance.profile import load_profile

    profiles = [load_profile(registry.profile_path(name)) for name in registry.backends]
    starts = {profile.device: profile.engines[profile.default_engines[0]].start for profile in profiles}
    if device not in starts:
        raise UsageError(f"--device: {unknown('device', device, starts)} (those of the installed backends)")
    return starts[device]


def _taken(kernel: str, start: str, pools: Pools) -> frozenset[str]:
    """Which arguments the function takes, asked for in a worker: its module may do anything while it is imported.

    UsageError where there is no such function. Where the worker was lost, or there is no torch, all of them: the run
    then ends in the same way, with verdicts.
    """
    from conformance.execution.caller import ask_facts
    from conformance.execution.deadline import LOAD_SECONDS
    from conformance.execution.errors import ExecutionError
    from conformance.kernel_arguments import ARGUMENTS
    from conformance.kernel_profile import RUNNER

    try:
        found = ask_facts(pools.get(RUNNER, start, {}), DESCRIBE, LOAD_SECONDS, kernel)
    except ExecutionError:
        return frozenset(ARGUMENTS)
    if "fault" in found:
        raise UsageError(*found["trace"].splitlines(), f"--kernel: {found['fault']}")
    return frozenset(found["takes"])


def _measure(options: argparse.Namespace, suites: list[Suite], profile: Profile, pools: Pools) -> int:
    from conformance import timings
    from conformance.cli.run import read_former
    from conformance.estimate import estimate
    from conformance.execution.deadline import LOAD_SECONDS
    from conformance.execution.interrupts import Interrupts
    from conformance.execution.request import RunRequest
    from conformance.execution.run import report_again, run
    from conformance.facts import local_facts
    from conformance.kernel_arguments import ARGUMENTS
    from conformance.kernel_profile import ENGINE, ROLE, RUNNER, catalogue
    from conformance.plan import make_plan
    from conformance.results.document import final_exit_code
    from conformance.results.former import make_room
    from conformance.results.going_on import resume_command
    from conformance.results.kernel_console import KernelConsole
    from conformance.results.kernel_reproduction import reproduction
    from conformance.results.output import JOURNAL, JUNIT, RESULTS, OutputError, claimed
    from conformance.selection import Selection

    if options.resume and not (options.output / JOURNAL).is_file():
        raise UsageError(f"nothing to resume: there is no {options.output / JOURNAL}; leave --resume out to begin")
    models = catalogue(options.shapes)
    selection = Selection(models=((ROLE, models.models[0].name),), pattern=options.pattern)

    def plan(facts: Mapping[str, Any]) -> Plan:
        return make_plan(suites, profile, models, facts, selection)

    facts = local_facts(options.device, {"torch"}, [ENGINE])
    if not plan(facts).cases:
        say("there is nothing to measure: no promise's id matches -k" if options.pattern else "no suite for kernels")
        return NOTHING_EXECUTED
    request = RunRequest(
        plan=plan,
        facts=facts,
        profile=profile,
        engines={ENGINE: RUNNER},
        output=options.output,
        argv=tuple(sys.argv[1:]),
        reproduce=lambda case: _reproduction(options, case),
        load_seconds=LOAD_SECONDS,
        case_seconds=options.deadline,
        estimate=lambda plan, facts: estimate(plan, suites, profile, timings.Timings(), ""),
        pools=pools,
    )
    takes = profile.engines[ENGINE].options["takes"]

    def again(result: CaseResult) -> str:
        file = options.output / str(result.rows_file)
        return reproduction(file, options.kernel, options.device, result.target.dtype, takes)

    stream = sys.stderr if options.json else sys.stdout
    try:
        with Interrupts() as interrupts, claimed(options.output), KernelConsole(again, stream) as console:
            former = read_former(options.output) if options.resume else None
            if former is None and (put_aside := make_room(options.output)):
                console.note(put_aside)
            if untaken := [name for name in ARGUMENTS if name not in takes]:
                console.note(f"{options.kernel} takes no {', no '.join(untaken)}: calls that need it are not made")
            if former is not None and not former.pending:
                document = report_again(replace(request, former=former), console)
            else:
                document = run(replace(request, former=former), console, interrupts)
            files = [options.output / RESULTS, options.output / JUNIT]
            console.run_finished(document, files, resume_command(request.argv, options.output))
    except OutputError as error:
        say(str(error))
        return USAGE
    if options.json:
        show(json.dumps(document, indent=1))
    return final_exit_code(document)


def _reproduction(options: argparse.Namespace, case: Case) -> str:
    """The command that judges this promise alone."""
    parts = ["python -m conformance attention --kernel", shlex.quote(options.kernel), "--dtype", case.target.dtype]
    if options.device != "cpu":
        parts += ["--device", options.device]
    if options.shapes != "quick":
        parts += ["--shapes", options.shapes]
    if options.claims:
        parts += ["--claims", *map(shlex.quote, options.claims)]
    return " ".join([*parts, "-k", shlex.quote(case.id)])
