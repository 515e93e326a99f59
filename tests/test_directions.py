"""Directions of known faults: planned where they come or are asked for, stored, and told where lacking."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import world
import zenith_site
from recorded import result
from zenith import colours
from zenith.engine import ZenithRunner

from conformance.catalogue import Catalogue, load_catalogue
from conformance.criteria.matched import is_no_known_fault
from conformance.execution.coverage import not_covered
from conformance.execution.pools import Pools
from conformance.execution.references import References
from conformance.faults.library import faults
from conformance.inventory import Test, load_suites
from conformance.names import UsageError
from conformance.plan import make_plan
from conformance.reference import compute, directions
from conformance.registry import discover
from conformance.runner import LoadRequest
from conformance.selection import Selection
from conformance.verdict import Verdict

PROMISE = Test("test_error_is_no_known_fault", "WRD-200", "The error MUST NOT point ...", needs_directions=True)
WORDS = replace(world.SUITES[0], tests=(*world.SUITES[0].tests, PROMISE))
WITH = Catalogue(tuple(replace(model, directions=model.name == "small-words") for model in world.CATALOGUE.models))
FULL: Any = {"models": (("words", "big-words"),), "suites": ("words",), "attentions": ("quick",)}


def plan(**selection: Any) -> Any:
    return make_plan((WORDS, world.SUITES[1]), world.profile(), WITH, {}, Selection(**selection))


def test_the_promise_is_planned_for_models_that_come_with_directions() -> None:
    assert [case.directed for case in plan(suites=("words",), attentions=("quick",)).cases] == [False, False, True]
    assert [case.test for case in plan(**FULL).cases] == ["test_tokens_agree"]


def test_a_model_that_comes_with_directions_lacks_none_where_other_cases_were_chosen() -> None:
    chosen = plan(suites=("words",), attentions=("quick",), models=(("words", "small-words"),), pattern="*tokens*")
    assert [case.test for case in chosen.cases] == ["test_tokens_agree"] and chosen.models_without_directions == ()


def test_it_is_planned_for_others_where_that_is_asked_for() -> None:
    asked = plan(**FULL, directions=True)
    assert [case.test for case in asked.cases] == ["test_tokens_agree", "test_error_is_no_known_fault"]
    assert asked.hash != plan(**FULL).hash


def test_a_model_along_which_nothing_was_looked_for_is_told() -> None:
    without = plan(**FULL)
    assert without.models_without_directions == ("big-words",)
    told = not_covered(without, world.profile(), [result(id=without.cases[0].id)])
    assert any("big-words: nothing was looked for along the directions" in sentence for sentence in told)
    assert plan(**FULL, directions=True).models_without_directions == ()


def test_faults_that_were_too_small_to_be_seen_are_told() -> None:
    case = plan(suites=("words",), attentions=("quick",)).cases[-1]
    r = np.random.default_rng(1).standard_normal((32, 64))
    noise = np.random.default_rng(2).standard_normal((2, 32, 64))
    known = {"norm.eps": 1e-4 * noise[0, ::-1], "mask.none": 9 * noise[1, ::-1]}
    judgement = is_no_known_fault(x=r + noise[0], r=r, e=r + noise[1], directions=known)
    told = "\n".join(not_covered(plan(), world.profile(), [result(id=case.id, judgements=(judgement,))]))
    assert "too small there for their direction to show: norm.eps (words in bfloat16)." in told


def test_a_catalogue_says_with_true_or_false_whether_directions_come_with_an_embedded_model(tmp_path: Path) -> None:
    shared = '[models.one]\nroles = ["words"]\narchitecture = "ToyLM"\n'
    embedded, full = 'tier = "embedded"\nfolder = "one"\n', 'tier = "full"\nhub = "a/b"\n'
    file = tmp_path / "models.toml"
    file.write_text(f"{shared}{embedded}directions = true\n")
    assert load_catalogue([file]).named("one").directions is True
    for wrong, message in (
        (f'{embedded}directions = "yes"\n', "true where the directions of known faults lie beside the references"),
        (f"{full}directions = true\n", "directions: belongs to models of the tier 'embedded'"),
    ):
        file.write_text(shared + wrong)
        with pytest.raises(UsageError, match=message):
            load_catalogue([file])


def test_every_known_fault_is_in_the_library() -> None:
    unknown = [each for each in directions.KNOWN if directions.parse_injection(each).fault not in faults()]
    assert unknown == []
    assert all(
        directions.parse_injection(each).scope in faults()[directions.parse_injection(each).fault].scopes
        for each in directions.KNOWN
    )


def test_what_the_catalogue_says_of_embedded_models_is_so() -> None:
    """Those that have directions have one for each fault that applies, and the others have none."""
    from replay import bench, embedded

    promising = {suite.role for suite in load_suites(discover()) if any(test.needs_directions for test in suite.tests)}
    having = {name for name, (model, suite) in embedded().items() if model.directions and suite.role in promising}
    assert len(promising) >= 8 and len(having) >= 8
    for name, (model, suite) in embedded().items():
        request = LoadRequest(name, str(model.folder), suite.role, "cpu", "eager", "float64")
        subject = compute.Subject(suite, request, None)  # type: ignore[arg-type]
        right = set(directions.applicable(subject)) if name in having else set()
        assert set(bench(name).directions) == right, name


class Hues(colours.Colours):
    __test__ = False

    @staticmethod
    def directed(answers: Any) -> Any:
        return answers.hues.values


class FaultyZenith(ZenithRunner):
    """Adds a thousandth for the fault that the option names."""

    def score_pairs(self, pairs: Any) -> Any:
        found = super().score_pairs(pairs)
        assert self.request.options["fault"] == "scale.one-percent"
        return replace(found, values=found.values + 0.001)


@pytest.fixture
def references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[References]:
    site, tests = zenith_site.install(tmp_path / "site"), str(Path(__file__).parent)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{tests}")
    monkeypatch.setenv("CONFORMANCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compute, "RUNNER", "zenith.engine:ZenithRunner")
    monkeypatch.setattr(directions, "RUNNER", f"{__name__}:FaultyZenith")
    monkeypatch.setattr(directions, "KNOWN", ("scale.one-percent",))
    with Pools() as pools:
        yield References(pools, "TOY", 20.0, lambda _: None)


def test_directions_are_computed_once_and_stored(references: References, tmp_path: Path) -> None:
    folder = tmp_path / "site" / "zenith" / "checkpoints" / "tiny-colours"
    request = LoadRequest("tiny-colours", str(folder), "colours", "cpu", "plain", "bfloat16", {"max_tokens": 64})
    reference, _ = references.get(Hues, request, embedded=False, precision="eager")
    before = references.computed
    found = references.directions(Hues, request, reference, embedded=False)
    assert list(found) == ["scale.one-percent"] and references.computed == before + 1
    np.testing.assert_allclose(found["scale.one-percent"], 0.001, rtol=1e-3)
    again = references.directions(Hues, request, reference, embedded=False)
    assert references.computed == before + 1
    assert (again["scale.one-percent"] == found["scale.one-percent"]).all()


def test_the_store_knows_directions_of_other_faults_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    name = directions.cached_part()
    monkeypatch.setattr(directions, "KNOWN", ("scale.one-percent",))
    assert directions.cached_part() != name and name.startswith("directions-")


@pytest.mark.torch
def test_shipped_directions_equal_fresh_ones() -> None:
    """A sample: one fault of a decoder, one of an encoder, on all of their prompts."""
    from replay import bench, embedded, recorded
    from test_reference import _subject

    from conformance.faults.runner import FaultyReference

    for name, fault in (("classification-qwen2", "norm.eps-1e-5"), ("rerank-xlmr", "scale.one-percent")):
        assert name in embedded()
        reference, _ = recorded(name, "float32", "ieee")
        fresh = directions.compute_directions(_subject(name), reference, FaultyReference, only=[fault])[fault]
        shipped = bench(name).directions[fault]
        assert fresh.shape == shipped.shape
        assert np.linalg.norm(fresh - shipped) < 1e-4 * np.linalg.norm(shipped) and shipped.any()


@pytest.mark.torch
@pytest.mark.parametrize("verdict", [Verdict.FAIL, Verdict.PASS])
def test_a_faulty_engine_is_found_by_its_direction_and_a_sound_one_is_not_accused(verdict: Verdict) -> None:
    from replay import bench, embedded, recorded
    from test_reference import _subject

    from conformance.engines.transformers import TransformersRunner
    from conformance.faults.runner import FaultyRunner

    name, (_, suite) = "rerank-xlmr", embedded()["rerank-xlmr"]
    request = replace(_subject(name).request, attention="sdpa", dtype="float32")
    if verdict is Verdict.FAIL:
        request = replace(request, options={"fault": "scale.one-percent"})
    with (FaultyRunner if verdict is Verdict.FAIL else TransformersRunner)(request) as engine:
        x = engine.score_pairs(suite.inputs().pairs).values
    reference, yardstick = recorded(name, "float32", "ieee")
    r, e = reference["scores"].values, yardstick["scores"].values
    found = is_no_known_fault(x=x, r=r, e=e, directions=bench(name).directions)
    assert found.verdict is verdict, found.message
    if verdict is Verdict.FAIL:
        assert "c of scale.one-percent is" in found.message


def test_a_difference_that_padded_batches_explain_is_no_direction() -> None:
    right = np.array([[1.0, 2.0], [3.0, np.nan]])
    same = directions._direction(right * (1 + 1e-12), right)
    assert (same[0] == 0).all() and same[1, 0] == 0 and np.isnan(same[1, 1])
    moved = directions._direction(right * (1 + 1e-6), right)
    assert (moved[0] > 0).all() and moved.dtype == np.float32
