"""The multimodal suite: what can go wrong with pictures shows in the promise that is about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from replay import bench, embedded, outcomes

from conformance.runner import Generations
from conformance.tokenization import Tokenizer
from conformance.verdict import Verdict
from suites import anchoring

NAME = "multimodal-qwen2vl"


def _moved(found: Generations, pairs: Any, order: Callable[[int, int], tuple[int, int]]) -> Generations:
    """The answers to pairs of prompts, each taken from the prompt of its pair that `order` names."""
    rows = list(range(len(found.token_ids)))
    for one, other in pairs:
        rows[one], rows[other] = order(one, other)
    named = {name: tuple(getattr(found, name)[row] for row in rows) for name in ("token_ids", "texts")}
    arrays = {name: getattr(found, name)[rows] for name in ("logprobs", "top_ids", "top_logprobs")}
    return replace(found, **named, **arrays)


def _failing(alter: Callable[[Generations], Generations]) -> set[str]:
    found = outcomes(NAME, bench(NAME, alter=lambda asked, honest: alter(honest) if asked == "greedy" else honest))
    return {test for test, outcome in found.items() if outcome.verdict is Verdict.FAIL}


@pytest.mark.parametrize("what", ["image", "frame"])
@pytest.mark.parametrize(
    "order",
    [
        pytest.param(lambda one, other: (other, one), id="exchanged"),
        pytest.param(lambda one, other: (one, one), id="ignored"),
    ],
)
def test_an_order_that_is_not_followed_fails(what: str, order: Any) -> None:
    pairs = getattr(embedded()[NAME][1].inputs(), f"{what}_order")
    failing = _failing(lambda found: _moved(found, pairs, order))
    assert f"test_answers_follow_{what}_order" in failing
    other = "frame" if what == "image" else "image"
    assert f"test_answers_follow_{other}_order" not in failing
    assert {"test_answer_is_known", "test_greedy_tokens_agree"} <= failing


def test_a_grid_with_rows_and_columns_exchanged_fails() -> None:
    def turned(found: Generations) -> Generations:
        grids = tuple(tuple((t, w, h) for t, h, w in each) for each in found.grids)
        return replace(found, grids=grids)

    assert _failing(turned) == {"test_grids_agree"}


@pytest.mark.parametrize("cap", [1, 8])
def test_an_honest_engine_whose_text_a_quirk_caps_does_not_fail(cap: int) -> None:
    """A cap may leave too little of the text to tell two orders apart; that shows nothing, and is no failure."""
    tokenizer = Tokenizer(embedded()[NAME][0].folder)

    def cut(asked: str, honest: Any) -> Any:
        return anchoring.capped(honest, cap, tokenizer) if asked in ("greedy", "anchored") else honest

    working = bench(NAME, alter=cut)
    working.settings = {"max_tokens": cap}
    found = {test: outcome.verdict for test, outcome in outcomes(NAME, working).items()}
    assert set(found.values()) <= {Verdict.PASS, Verdict.UNDERPOWERED}, found
    weak = {test for test, verdict in found.items() if verdict is Verdict.UNDERPOWERED}
    assert weak <= {"test_answers_follow_image_order", "test_answers_follow_frame_order"}


def test_every_prompt_has_pictures_and_each_kind_of_them_is_there() -> None:
    inputs = embedded()[NAME][1].inputs()
    assert len(inputs.prompts) >= 32
    counts = {(len(images), len(videos)) for images, videos in zip(inputs.images, inputs.videos, strict=True)}
    assert {(1, 0), (2, 0), (3, 0), (0, 1)} <= counts
    assert (0, 0) not in counts
    sides = {side for images in inputs.images for image in images for side in image.shape[:2]}
    assert all(side % 28 for side in sides)
    frames = {len(video) for videos in inputs.videos for video in videos}
    assert {frame % 2 for frame in frames} == {0, 1}
