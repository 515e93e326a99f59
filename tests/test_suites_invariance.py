"""An engine whose answers depend on how it came to them fails the promise that says so; an honest one keeps all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from replay import KERNEL, bench, embedded, recorded
from serving_engine import VARIANTS, ServingEngine

from conformance import checkpoint
from conformance.execution.outcome import Outcome, Recorder, outcome_of
from conformance.profile import Variation
from conformance.runner import Effective
from conformance.suite import Answers, Ask
from conformance.tokenization import Tokenizer
from conformance.verdict import Verdict
from suites import invariance, variants

SUITES: dict[str, type[variants.Invariance]] = {
    "embedding-qwen3": invariance.EmbeddingInvariance,
    "generation-qwen3": invariance.GenerationInvariance,
}

CHUNKS = "chunks_have_the_answers_of_whole_prompts"
CACHED = "cached_prompts_have_their_answers"
BRANCHES = "branches_of_cached_prompts_have_their_answers"
COMPILED = "compiled_code_has_the_answers_of_eager_code"
DEVICES = "two_devices_have_the_answers_of_one"
FIXED_BATCH = "fixed_answers_do_not_depend_on_the_batch"
FIXED_ORDER = "fixed_answers_do_not_depend_on_the_order"
FIXED_REPEAT = "fixed_answers_repeat"
BESIDE = "answers_do_not_depend_on_what_is_served_beside"
EVERY = {CHUNKS, CACHED, BRANCHES, COMPILED, DEVICES, FIXED_BATCH, FIXED_ORDER, FIXED_REPEAT}


def outcomes(
    name: str, *faults: str, dtype: str = "float32", variants: Mapping[str, Variation] = VARIANTS
) -> dict[str, Outcome]:
    """What becomes of every promise, by its name, with an engine that has these faults."""
    suite = SUITES[name]
    model = embedded()[name][0]
    reference, yardstick = recorded(name, dtype, "ieee" if dtype == "float32" else "eager")
    compared = np.asarray(reference[suite.compared].values)
    error = np.asarray(yardstick[suite.compared].values) - compared
    tokenizer = Tokenizer(model.folder)
    layers = checkpoint.layers(model.folder)
    assert layers is not None
    ran = Effective(dtype, "eager", {KERNEL: layers}, layers, 1)
    known: Any = reference.get("greedy")
    noise = float(np.sqrt(np.nanmean(error**2)))
    engine = ServingEngine(noise, ran, tokenizer, known, frozenset(faults))
    loaded: dict[str, ServingEngine] = {}

    def variant(which: str) -> Any:
        return loaded.setdefault(which, engine.as_variant(which))

    def ask(question: str) -> Any:
        asked: Any = Ask(engine, suite.inputs(), {}, {}, tokenizer, bed.reference, None, variant=variant)  # type: ignore[arg-type]
        return getattr(suite, question)(asked)

    bed = replace(
        bench(name, dtype, "ieee" if dtype == "float32" else "eager"), observed=Answers(ask), variants=variants
    )
    found = {}
    for test in suite.promises():
        wanted = getattr(suite, test).requirement.parameters.get("variant")
        if wanted is not None and wanted not in variants:
            continue
        case = suite(test)
        case.bench = bed
        recorder = Recorder()
        case.run(recorder)
        found[test.removeprefix("test_")] = outcome_of(recorder.error)
    return found


def without_pass(found: Mapping[str, Outcome]) -> dict[str, Verdict]:
    return {test: outcome.verdict for test, outcome in found.items() if outcome.verdict is not Verdict.PASS}


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_engine_that_rounds_honestly_keeps_every_promise(name: str, dtype: str) -> None:
    found = outcomes(name, dtype=dtype)
    assert {test: (each.reason, each.message) for test, each in found.items() if each.verdict is not Verdict.PASS} == {}
    assert set(found) == EVERY | ({BESIDE} if name == "generation-qwen3" else set())


def some(*names: str) -> dict[str, Variation]:
    return {name: VARIANTS[name] for name in names}


WRONG = {
    "drops the last of a chunk": ("chunked", {CHUNKS}),
    "chunks apart": ("chunked", {CHUNKS}),
    "rounds otherwise when chunked": ("chunked", {CHUNKS}),
    "another prompt's block": ("prefix_cache", {CACHED, BRANCHES}),
    "one too many": ("prefix_cache", {BRANCHES}),
    "tells of too many": ("prefix_cache", {CACHED, BRANCHES}),
    "rounds otherwise when compiled": ("compiled", {COMPILED}),
    "rounds otherwise when tp2": ("tp2", {DEVICES}),
    "one device": ("tp2", {DEVICES}),
    "batch": ("deterministic", {FIXED_BATCH}),
    "order": ("deterministic", {FIXED_BATCH, FIXED_ORDER}),
}


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("fault", WRONG)
def test_an_engine_that_does_it_wrongly_fails(name: str, fault: str) -> None:
    variant, wanted = WRONG[fault]
    dtype = "bfloat16" if fault.startswith("rounds") else "float32"
    found = outcomes(name, fault, dtype=dtype, variants=some(variant))
    assert without_pass(found) == dict.fromkeys(wanted, Verdict.FAIL)


@pytest.mark.parametrize(
    ("variant", "of"), [("chunked", CHUNKS), ("prefix_cache", CACHED), ("compiled", COMPILED), ("tp2", DEVICES)]
)
def test_a_variant_that_writes_another_text_fails(variant: str, of: str) -> None:
    found = outcomes("generation-qwen3", f"other text when {variant}", variants=some(variant))
    assert without_pass(found) == {of: Verdict.FAIL} and "no tie" in found[of].message


def test_an_engine_that_mixes_rows_when_many_are_served_fails() -> None:
    assert without_pass(outcomes("generation-qwen3", "mixes rows", variants={})) == {BESIDE: Verdict.FAIL}


POWERLESS = {
    "reads whole": ("chunked", {CHUNKS}, "no prompt was cut"),
    "reads none": ("prefix_cache", {CACHED, BRANCHES}, "tokens from the cache"),
    "does not tell": ("prefix_cache", {CACHED, BRANCHES}, "a hit that nobody saw"),
    "deaf": ("compiled", {COMPILED, BESIDE}, "one other token"),
    "never rounds": ("deterministic", {FIXED_BATCH, FIXED_ORDER, FIXED_REPEAT}, "equal bits show nothing"),
}


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("fault", POWERLESS)
def test_what_shows_nothing_is_underpowered(name: str, fault: str) -> None:
    variant, wanted, because = POWERLESS[fault]
    found = outcomes(name, fault, variants=some(variant))
    wanted = wanted & set(found)
    assert without_pass(found) == dict.fromkeys(wanted, Verdict.UNDERPOWERED)
    assert all(because in found[test].message for test in wanted)


@pytest.mark.parametrize("name", SUITES)
def test_answers_of_a_cache_are_not_held_against_others_that_came_from_one(name: str) -> None:
    found = outcomes(name, "always cached", variants=some("prefix_cache"))
    assert without_pass(found) == {BRANCHES: Verdict.UNDERPOWERED}  # whose prompts it was asked before
    assert "is not read anew" in found[BRANCHES].message


def test_an_exact_variant_is_held_to_every_bit() -> None:
    exact = {"compiled": Variation(exact=True)}
    assert without_pass(outcomes("embedding-qwen3", variants=exact)) == {COMPILED: Verdict.FAIL}


def test_a_mode_that_is_not_claimed_to_be_exact_is_held_to_rounding() -> None:
    loose = {"deterministic": Variation()}
    assert without_pass(outcomes("embedding-qwen3", "batch", variants=loose)) == {}
