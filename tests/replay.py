"""Suites run on recorded observations: the yardstick plays an honest engine, and a test can alter what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from replay_runner import ReplayRunner

from conformance import checkpoint
from conformance.catalogue import Model, load_catalogue
from conformance.criteria.observed import VisionRequested
from conformance.execution.group import parameters
from conformance.execution.outcome import Outcome, Recorder, outcome_of
from conformance.inventory import load_suites, of_roles, resolve
from conformance.reference import compute, directions, store
from conformance.registry import discover
from conformance.runner import Effective, Observation, VisionEffective
from conformance.suite import Answers, Ask, Bench, ConformanceSuite
from conformance.tokenization import Tokenizer

Alter = Callable[[str, Any], Any]

KERNEL = "aten::_softmax"

_STANDS_FOR = {"anchored": "greedy", "decoded": "prefilled"}
"""Observations without a reference of their own, and the one that an honest engine's equals."""


@cache
def embedded() -> dict[str, tuple[Model, type[ConformanceSuite]]]:
    """The embedded models by name, each with the suite class that tests it."""
    registry = discover()
    suites = {role: resolve(suite.path) for role, suite in of_roles(load_suites(registry)).items()}
    models = load_catalogue(registry.catalogue_paths()).models
    return {model.name: (model, suites[model.roles[0]]) for model in models if model.tier == "embedded"}


@cache
def recorded(name: str, dtype: str, precision: str) -> tuple[store.Part, store.Part]:
    """The shipped reference and yardstick of an embedded model."""
    model, suite = embedded()[name]
    parts = store.shipped(model.folder, store.identify(suite, model.folder, parameters(model), "any"))
    reference = parts.load(compute.REFERENCE)
    assert reference is not None, f"{model.folder} ships no reference for these inputs; run tools/compute_references.py"
    yardstick = parts.yardstick(compute.part_name(dtype, precision), reference)
    assert yardstick is not None
    return reference, yardstick


def bench(
    name: str,
    dtype: str = "bfloat16",
    precision: str = "eager",
    alter: Alter = lambda name, found: found,
    **runner_faults: Any,
) -> Bench:
    """A bench whose engine answers with the yardstick's observations, changed by `alter(name, observation)`.

    `runner_faults` are those of `ReplayRunner`, which plays the engine where prompts are asked in another company.
    """
    model, suite = embedded()[name]
    reference, yardstick = recorded(name, dtype, precision)
    layers = checkpoint.layers(model.folder)
    parts = store.shipped(model.folder, store.identify(suite, model.folder, parameters(model), "any"))
    assert layers is not None
    ran = Effective(dtype, "eager", kernels={KERNEL: 128 * layers}, layers=layers, forwards=128)
    tower_layers = checkpoint.vision_layers(model.folder)
    if tower_layers is not None:
        tower = VisionEffective("eager", tower_layers, sequences=9)
        ran = replace(ran, kernels={KERNEL: 128 * layers + 9 * tower_layers}, vision=tower)

    def answer(asked: str) -> Observation:
        recorded_as = _STANDS_FOR.get(asked, asked)
        if recorded_as in reference:
            honest = yardstick.get(recorded_as, reference[recorded_as])
        else:
            honest = _in_company(suite, asked)
        found: Observation = alter(asked, replace(honest, effective=ran))
        return found

    def _in_company(suite: Any, asked: str) -> Any:
        compared = suite.compared
        recorded = replace(yardstick[compared], prompt_token_ids=reference[compared].prompt_token_ids)
        template = str(parameters(model).get("template", ""))
        runner = ReplayRunner(compared, recorded, suite.inputs(), ran, template=template, **runner_faults)
        known = Answers(reference.__getitem__)
        asking = Ask(runner, suite.inputs(), parameters(model), {}, Tokenizer(model.folder), known, None)  # type: ignore[arg-type]
        return getattr(suite, asked)(asking)

    return Bench(
        observed=Answers(answer),
        reference=Answers(reference.__getitem__),
        yardstick=Answers(yardstick.__getitem__),
        inputs=suite.inputs(),
        dtype=dtype,
        precision=precision,
        attention="eager",
        kernels=[KERNEL],
        tokenizer=Tokenizer(model.folder),
        parameters=parameters(model),
        layers=layers,
        directions=parts.directions(directions.PART) or {},
        vision=None if tower_layers is None else VisionRequested("eager", [KERNEL], tower_layers),
    )


def outcomes(name: str, bench: Bench) -> dict[str, Outcome]:
    """Every promise of the model's suite, by test name."""
    suite = embedded()[name][1]
    found = {}
    for test in suite.promises():
        case = suite(test)
        case.bench = bench
        recorder = Recorder()
        case.run(recorder)
        found[test] = outcome_of(recorder.error)
    return found
