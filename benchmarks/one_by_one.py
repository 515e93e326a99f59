"""The pattern in use upstream: every test loads the reference, runs it, loads the engine, runs it, and compares.

A test is one case of the default plan in a fresh process: the model in float32 with eager attention, which is the
reference, answers the observation that the test judges; then the model on the case's target does. In the pattern's
favour both are loaded by one process, so that the libraries are imported once; the reference reads whole batches; its
forced tokens are given to it; and comparing is free. All cases would take half an hour, so each suite's are estimated
from a sample drawn from a seed, the same number of every observation.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from default_run import environment, work
from figures import Figure
from programs import ROOT, Measured, measure

from conformance.execution.group import Group
from conformance.plan import Case
from conformance.reference import compute, store
from conformance.suite import Answers, Bench
from conformance.tokenization import Tokenizer

LIMIT = 3.0
SEED = 20261130

Stratum = tuple[str, str, str]  # suite, model, observation


class _Asked(Exception):
    """Raised in place of an answer, by the name of what was asked."""


@dataclass(frozen=True)
class Sample:
    """The cases of one suite, model and observation: how many there are, and what each of some took, in seconds."""

    suite: str
    model: str
    observation: str
    cases: int
    seconds: tuple[float, ...]


def strata(planned_groups: Sequence[Group]) -> dict[Stratum, list[tuple[Group, Case]]]:
    """Every case by suite, model and the observation that it judges."""
    found: dict[Stratum, list[tuple[Group, Case]]] = {}
    for group in planned_groups:
        bench = _asking_bench(group)
        for case in group.cases:
            found.setdefault((case.suite, case.model.name, _judged_by(group, bench, case)), []).append((group, case))
    return found


def measure_sample(
    folder: Path, planned_groups: Sequence[Group], per_stratum: int, say: Callable[[str], None]
) -> list[Sample]:
    """Run some cases of every stratum, one after the other."""
    variables = environment(planned_groups)
    samples = []
    for (suite, model, observation), members in strata(planned_groups).items():
        rng = random.Random(f"{SEED} {suite} {model} {observation}")
        chosen = rng.sample(members, min(per_stratum, len(members)))
        costs = [_run_one(folder, group, observation, variables) for group, _ in chosen]
        samples.append(Sample(suite, model, observation, len(members), tuple(cost.wall_s for cost in costs)))
        said = ", ".join(f"{cost.wall_s:.1f} s" for cost in costs)
        say(f"one by one, {suite} {model} {observation}: {said} ({len(members)} cases)")
    return samples


def total(samples: Sequence[Sample], of: Callable[[Sequence[float]], float]) -> float:
    """All cases' seconds, if each took `of` its sample."""
    return sum(sample.cases * of(sample.seconds) for sample in samples)


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean."""
    return sum(values) / len(values)


def judged(samples: Sequence[Sample], run_s: float) -> Figure:
    """How many times longer the pattern takes than the default run, which takes `run_s` seconds."""
    cases, measured = sum(one.cases for one in samples), sum(len(one.seconds) for one in samples)
    estimate, least, most = (total(samples, of) for of in (mean, min, max))
    return Figure(
        "wall time of a reference and an engine loaded for each test, over the default run's",
        estimate / run_s,
        LIMIT,
        must_be="at least",
        note=f"{estimate:.0f} s, estimated from {measured} of {cases} cases, over {run_s:.1f} s; {least:.0f} s if all "
        f"were like the fastest of their kind, {most:.0f} s if like the slowest",
    )


def raw(samples: Sequence[Sample]) -> dict[str, Any]:
    """The samples, and each suite's estimate."""
    suites = dict.fromkeys(sample.suite for sample in samples)
    return {
        "samples": [asdict(sample) for sample in samples],
        "suites_s": {
            name: {
                how: total([sample for sample in samples if sample.suite == name], of)
                for how, of in (("mean", mean), ("fastest", min), ("slowest", max))
            }
            for name in suites
        },
    }


def _run_one(folder: Path, group: Group, observation: str, variables: Mapping[str, str]) -> Measured:
    engine = {**work(group), "parts": [], "observations": [observation]}  # a part that is needed is read all the same
    reference = {**engine, "dtype": "float32", "attention": "eager"}
    folder.mkdir(parents=True, exist_ok=True)
    script = str(ROOT / "benchmarks" / "bare.py")
    return measure([script, str(folder / "one.json")], variables, text=json.dumps([reference, engine]))


def _asking_bench(group: Group) -> Bench:
    """A bench whose engine answers nothing, but names what it was asked for; the reference is the shipped one."""
    case = group.first
    suite, request = group.suite(), group.request("cpu")
    folder = Path(request.folder)
    parts = store.shipped(folder, store.identify(suite, folder, request.parameters, "any"))
    reference = parts.load(compute.REFERENCE) or {}
    yardstick = parts.yardstick(compute.part_name(request.dtype, case.precision), reference) or {}

    def ask(name: str) -> Any:
        raise _Asked(name)

    return Bench(
        observed=Answers(ask),
        reference=Answers(reference.__getitem__),
        yardstick=Answers(yardstick.__getitem__),
        inputs=suite.inputs(),
        dtype=request.dtype,
        precision=case.precision,
        attention=request.attention,
        kernels=case.kernels,
        tokenizer=Tokenizer(folder),
        parameters=request.parameters,
    )


def _judged_by(group: Group, bench: Bench, case: Case) -> str:
    """The observation that a case's test method asks the engine for first."""
    test = group.suite()(case.test)
    test.bench = bench
    test.setUp()
    try:
        getattr(test, case.test)()
    except _Asked as asked:
        return str(asked)
    raise LookupError(f"{case.id} judges no observation, so there is nothing to run for it")
