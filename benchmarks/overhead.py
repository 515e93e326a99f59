"""What the suite costs beyond the models: ratios in one run, each with its limit; exit code 1 where one is broken.

    python benchmarks/overhead.py [--json FILE] [--only NAME ...] [--quick]

    bare       the default CPU run against a bare script that does the same forward passes: time and memory
    upstream   against the pattern in use upstream, a reference and an engine loaded anew for each test
    growth     the time for more cases and for more prompts, on an engine that costs next to nothing

Exit codes: 0 every limit is kept; 1 one is broken; 2 interrupted; 3 something could not be measured; 4 usage.
Linux only: memory is read from /proc. Measure on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import default_run
import growth
import one_by_one
from figures import Figure, report
from programs import NotMeasured

from conformance import __version__
from conformance.cli.parser import Parser
from conformance.facts import local_facts
from conformance.names import UsageError, unknown


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    suites: tuple[str, ...]  # empty: all
    repeats: int
    sampled: int  # cases of each suite, model and observation
    cases: tuple[int, ...]
    prompts: tuple[int, ...]


FULL = Scale((), 2, 2, (50, 100, 200, 400), (2000, 4000, 8000))
QUICK = Scale(("classification",), 1, 1, (20, 40, 80), (1000, 2000, 4000))
FEW_CASES, FEW_PROMPTS = 20, 160
"""What the other axis is at while one grows."""


@dataclass
class Found:
    """What was measured so far."""

    figures: list[Figure] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)
    runs: list[default_run.Ran] = field(default_factory=list)


def measure_bare(folder: Path, scale: Scale, found: Found) -> None:
    """The default run against the bare script."""
    figures, found.raw["bare"], found.runs = default_run.compare(folder / "bare", scale.suites, scale.repeats, say)
    found.figures += figures


def measure_upstream(folder: Path, scale: Scale, found: Found) -> None:
    """The default run, measured here unless it was, against a sample of the pattern in use upstream."""
    if not found.runs:
        found.runs.append(default_run.run_default(folder / "run", scale.suites))
        say(f"default run: {found.runs[0].cost.wall_s:.1f} s")
    planned = default_run.planned(scale.suites)
    samples = one_by_one.measure_sample(folder / "upstream", planned, scale.sampled, say)
    found.figures.append(one_by_one.judged(samples, default_run.wall_of(found.runs)))
    found.raw["upstream"] = {"run_s": default_run.wall_of(found.runs), **one_by_one.raw(samples)}


def measure_growth(folder: Path, scale: Scale, found: Found) -> None:
    """Runs of more and more cases, then of more and more prompts."""
    axes: dict[str, tuple[Sequence[int], Callable[[int], growth.Size]]] = {
        "case": (scale.cases, lambda count: growth.Size(count, FEW_PROMPTS)),
        "prompt": (scale.prompts, lambda count: growth.Size(FEW_CASES, count)),
    }
    found.raw["growth"] = {}
    for axis, (counts, size) in axes.items():
        grown = growth.grow(folder / "growth", [size(count) for count in counts], scale.repeats + 1, say)
        found.figures.append(growth.judged(axis, counts, [one.seconds for one in grown]))
        found.raw["growth"][axis] = growth.raw(grown)


MEASUREMENTS: dict[str, Callable[[Path, Scale, Found], None]] = {
    "bare": measure_bare,
    "upstream": measure_upstream,
    "growth": measure_growth,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and judge."""
    parser = Parser(prog="python benchmarks/overhead.py", description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write everything as JSON to FILE, or to standard output (-)")
    parser.add_argument(
        "--only", metavar="NAME", nargs="+", action="extend", default=[], help=f"of {', '.join(MEASUREMENTS)}"
    )
    parser.add_argument("--quick", action="store_true", help="one suite and few cases: whether it works, not how fast")
    try:
        options = parser.parse_args(arguments)
        _check(options)
    except UsageError as error:
        say(str(error))
        return 4
    scale = QUICK if options.quick else FULL
    found = Found()
    started = _now()
    load = os.getloadavg()[0]
    code = 0
    try:
        with tempfile.TemporaryDirectory(prefix="conformance-overhead-") as folder:
            for name, measurement in MEASUREMENTS.items():
                if not options.only or name in options.only:
                    measurement(Path(folder), scale, found)
    except NotMeasured as error:
        say(f"not measured: {error}")
        code = 3
    except KeyboardInterrupt:
        say("interrupted")
        code = 2
    if options.json:
        document = {
            "started": started,
            "ended": _now(),
            "quick": options.quick,
            "complete": code == 0,
            "environment": _environment(load),
            "figures": [figure.to_json() for figure in found.figures],
            "raw": found.raw,
        }
        try:
            _write(options.json, json.dumps(document, indent=1, allow_nan=False) + "\n")
        except OSError as error:
            say(f"{options.json} cannot be written: {error.strerror}")
            code = 3
    print(report(found.figures), file=sys.stderr if options.json == "-" else sys.stdout)
    return code or (0 if all(figure.ok for figure in found.figures) else 1)


def _check(options: argparse.Namespace) -> None:
    faults = [unknown("measurement", name, MEASUREMENTS) for name in options.only if name not in MEASUREMENTS]
    if options.json not in (None, "-") and not Path(options.json).parent.is_dir():
        faults.append(f"--json {options.json}: there is no folder {Path(options.json).parent}")
    if faults:
        raise UsageError(*faults)


def say(text: str) -> None:
    """Tell how it goes."""
    print(text, file=sys.stderr, flush=True)


def _environment(load_before: float) -> dict[str, Any]:
    facts = local_facts("cpu", ("torch", "transformers", "numpy", "tokenizers", "safetensors"), ())
    return {
        "cpu": facts["device"]["name"],
        "memory_gib": facts["device"]["memory_gib"],
        "cores": len(os.sched_getaffinity(0)),
        "load_before": load_before,  # others' work on this machine: 0 where there is none
        "platform": facts["platform"],
        "python": facts["python"],
        "versions": {"conformance": __version__, **facts["versions"]},
    }


def _write(target: str, text: str) -> None:
    if target == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        Path(target).write_text(text, encoding="utf-8")


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


if __name__ == "__main__":
    sys.exit(main())
