"""The default run against the bare script: wall time, the same forward passes, and memory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from figures import Figure
from programs import ROOT, Measured, NotMeasured, measure

from conformance.discovery import read
from conformance.execution.group import Group, groups
from conformance.reference import compute
from conformance.results.output import RESULTS
from conformance.results.validation import read_document

WALL_LIMIT = 1.3
PARENT_LIMIT_MB = 300.0
WORKER_LIMIT = 1.2


@dataclass(frozen=True)
class Ran:
    """A default run: what it cost, and results.json."""

    cost: Measured
    document: Mapping[str, Any]


@dataclass(frozen=True)
class Bare:
    """The bare script: what it cost, and what it says of itself."""

    cost: Measured
    told: Mapping[str, Any]


def planned(suites: Sequence[str]) -> list[Group]:
    """What the default run on the CPU does: a loaded model with its cases, one after the other.

    Suites of single kernel calls are left out: they make no pass through a model that a bare script could make too. So
    are suites of an engine's variants, which ask in other ways what the others ask.
    """
    found = groups(read("cpu", " ".join(f"--suite {name}" for name in suites)).plan())
    return [group for group in found if not group.suite().single_calls and not _asks_variants(group)]


def _asks_variants(group: Group) -> bool:
    suite = group.suite()
    return any("variant" in getattr(suite, name).requirement.parameters for name in suite.promises())


def work(group: Group) -> dict[str, Any]:
    """The bare script's item for a group."""
    request = group.request("cpu")
    return {
        **{key: getattr(request, key) for key in ("model", "folder", "role", "attention", "dtype")},
        "parameters": dict(request.parameters),
        "parts": [compute.REFERENCE, compute.part_name(request.dtype, group.first.precision)],
        "observations": list(group.suite().observations()),
    }


def environment(planned_groups: Sequence[Group]) -> dict[str, str]:
    """What workers see, so that the bare script has the same: waiting threads that sleep, the profile's variables."""
    found = {"OMP_WAIT_POLICY": "PASSIVE"}
    for group in planned_groups:
        found |= group.first.environment
    return {**os.environ, **found}


def run_default(folder: Path, suites: Sequence[str]) -> Ran:
    """One run into the new folder `folder`. Raises NotMeasured unless every case passed."""
    arguments = ["-m", "conformance", "--backend", "cpu", "--output", str(folder)]
    for name in suites or dict.fromkeys(group.first.suite for group in planned([])):
        arguments += ["--suite", name]
    cost = measure(arguments, {**os.environ, "CONFORMANCE_CACHE": str(folder.parent / "cache")})
    return Ran(cost, read_document(folder / RESULTS))


def run_bare(folder: Path, planned_groups: Sequence[Group]) -> Bare:
    """The bare script on the same models and targets."""
    folder.mkdir(parents=True)
    told = folder / "bare.json"
    script = str(ROOT / "benchmarks" / "bare.py")
    items = json.dumps([work(group) for group in planned_groups])
    cost = measure([script, str(told)], environment(planned_groups), text=items)
    return Bare(cost, json.loads(told.read_text("utf-8")))


def compare(
    folder: Path, suites: Sequence[str], repeats: int, say: Callable[[str], None]
) -> tuple[list[Figure], dict[str, Any], list[Ran]]:
    """Bare and run in turns, `repeats` times, so that a machine that gets slower does so for both; minima count."""
    planned_groups = planned(suites)
    bares: list[Bare] = []
    runs: list[Ran] = []
    for turn in range(repeats):
        bares.append(run_bare(folder / f"bare-{turn}", planned_groups))
        say(f"bare script {turn + 1} of {repeats}: {bares[-1].cost.wall_s:.1f} s")
        runs.append(run_default(folder / f"run-{turn}", suites))
        say(f"default run {turn + 1} of {repeats}: {runs[-1].cost.wall_s:.1f} s")
    return judged(bares, runs), _raw(bares, runs), runs


def judged(bares: Sequence[Bare], runs: Sequence[Ran]) -> list[Figure]:
    """The figures of these measurements."""
    bare_s, run_s = (min(one.cost.wall_s for one in some) for some in (bares, runs))
    parent = max(one.cost.peak_mb for one in runs)
    worker = max(one.document["run"]["counters"]["peak_worker_mib"] for one in runs) * 2**20 / 1e6
    bare = min(one.cost.peak_mb for one in bares)
    differing = differing_passes(bares[0].told, runs[0].document)
    return [
        Figure(
            "wall time of the default run over the bare script's",
            run_s / bare_s,
            WALL_LIMIT,
            note=f"{run_s:.1f} s over {bare_s:.1f} s, minima of {len(runs)}",
        ),
        Figure(
            "observations with other forward passes than the bare script's",
            len(differing),
            0,
            note="; ".join(differing[:3]),
        ),
        Figure("peak memory of the suite's own process", parent, PARENT_LIMIT_MB, unit="MB"),
        Figure(
            "peak memory of the largest worker over the bare script's",
            worker / bare,
            WORKER_LIMIT,
            note=f"{worker:.0f} MB over {bare:.0f} MB",
        ),
    ]


def differing_passes(told: Mapping[str, Any], document: Mapping[str, Any]) -> list[str]:
    """Where counts of forward passes that the run's cases report are none that the bare script made.

    A case reports its last observation's, so what is compared is, for each model on each target, the set of them.
    """
    wanted: dict[str, set[int]] = {}
    for case in document["cases"]:
        if case["effective"] is None:  # a quirk skips it
            continue
        target = case["target"]
        name = f"{case['model']} on {target['attention']}/{target['dtype']}"
        wanted.setdefault(name, set()).add(case["effective"]["forwards"])
    found = {
        f"{one['model']} on {one['attention']}/{one['dtype']}": set(one["forwards"].values()) for one in told["done"]
    }
    return [
        f"{name}: {sorted(found.get(name, ()))} in the bare script, {sorted(wanted.get(name, ()))} in the run"
        for name in sorted(wanted.keys() | found.keys())
        if name not in wanted or not wanted[name] <= found.get(name, set())
    ]


def _raw(bares: Sequence[Bare], runs: Sequence[Ran]) -> dict[str, Any]:
    return {
        "bare": [{**asdict(one.cost), **one.told} for one in bares],
        "run": [{**asdict(one.cost), "counters": one.document["run"]["counters"]} for one in runs],
    }


def wall_of(runs: Sequence[Ran]) -> float:
    """The wall time, in seconds, that the run is credited with. Raises NotMeasured where there is none."""
    if not runs:
        raise NotMeasured("the default run was not measured")
    return min(one.cost.wall_s for one in runs)
