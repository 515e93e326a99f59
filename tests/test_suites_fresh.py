"""Fresh inputs of every suite: as many times more, of the same kind, and none of them its own."""

from __future__ import annotations

from typing import Any

import pytest
from replay import embedded

from conformance.execution.fresh import FACTOR, NoFreshInputs, with_fresh_inputs
from conformance.suite import Underpowered
from suites import company
from suites.inputs import draws

NAMES = sorted(embedded())


def _questions(inputs: Any) -> Any:
    names = ("prompts", "pairs", "texts", "conversations")
    found = next(getattr(inputs, name) for name in names if hasattr(inputs, name))
    return list(zip(found, inputs.continuations, strict=True)) if hasattr(inputs, "continuations") else found


@pytest.mark.parametrize("name", NAMES)
def test_a_suite_has_fresh_inputs_of_its_own_kind(name: str) -> None:
    suite = embedded()[name][1]
    try:
        fresh = with_fresh_inputs(suite, f"a case of {name}").inputs()
    except NoFreshInputs:
        pytest.fail(f"{suite.__qualname__} cannot decide what is grey")
    own = suite.inputs()
    assert type(fresh) is type(own) and len(_questions(fresh)) == FACTOR * len(_questions(own))
    shared = {repr(each) for each in _questions(own)} & {repr(each) for each in _questions(fresh)}
    assert len(shared) <= 4, shared  # the empty text and the single token are in all of them
    for field in ("partners", "grades", "groups", "labels", "continuations", "images", "videos"):
        if hasattr(own, field):
            assert len(getattr(fresh, field)) == FACTOR * len(getattr(own, field))


def test_partners_and_groups_of_later_draws_are_those_of_the_whole() -> None:
    embedding = with_fresh_inputs(embedded()["embedding-qwen3"][1], "a").inputs()
    count = len(embedding.prompts) // FACTOR
    assert all(partner is None or partner // count == i // count for i, partner in enumerate(embedding.partners))
    rerank = with_fresh_inputs(embedded()["rerank-xlmr"][1], "a").inputs()
    assert len(set(rerank.groups)) == FACTOR * 16
    assert draws.shifted([[0, 0, 1], [0, 1], [0]]) == (0, 0, 1, 2, 3, 4)


def test_pairs_of_pictures_point_into_the_whole() -> None:
    inputs = with_fresh_inputs(embedded()["multimodal-qwen2vl"][1], "a").inputs()
    own = embedded()["multimodal-qwen2vl"][1].inputs()
    assert len(inputs.image_order) == FACTOR * len(own.image_order)
    texts = [text.replace("\n", " ") for text in inputs.prompts]
    assert all(texts[i] == texts[j] for i, j in (*inputs.image_order, *inputs.frame_order))


def test_too_few_prompts_for_a_batch_show_nothing() -> None:
    with pytest.raises(Underpowered, match="7 prompts are long enough"):
        company.mixed(range(7))
