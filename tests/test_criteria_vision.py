"""Grids, features and order of pictures: what the criteria accept and what they must reject."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.criteria import observed, vision
from conformance.criteria.observed import VisionRequested
from conformance.criteria.ratio import EPS
from conformance.judgement import Judgement
from conformance.runner import Effective, Generations, Grid, VisionEffective
from conformance.verdict import Verdict

GRIDS: list[Grid] = [(1, 2 + 2 * (i % 4), 4) for i in range(18)] + [(3, 4, 4)]
PATCHES = sum(frames * rows * columns for frames, rows, columns in GRIDS) // 4
WIDTH = 32
FUSED, EAGER = "aten::_scaled_dot_product_flash_attention", "aten::_softmax"
RAN = Effective("bfloat16", "sdpa", {FUSED: 8 + 15}, 4, 2, VisionEffective("sdpa", 3, 5))
TOWER = VisionRequested("sdpa", [FUSED], 3)


def features(seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(PATCHES, WIDTH))


def rounded(r: Any, seed: int, dtype: str = "bfloat16", times: float = 1.0) -> Any:
    return r + 0.3 * EPS[dtype] * times * np.random.default_rng(seed).normal(size=r.shape)


def judge(x: Any, r: Any, e: Any, dtype: str = "bfloat16", grids: list[Grid] = GRIDS) -> Judgement:
    return vision.features_agree(x=x, r=r, e=e, dtype=dtype, grids=grids)


@given(seed=st.integers(0, 10**6), dtype=st.sampled_from(["bfloat16", "float16", "float32"]))
@settings(max_examples=20, deadline=None, derandomize=True)
def test_features_with_the_yardsticks_error_pass(seed: int, dtype: str) -> None:
    r = features(seed)
    judgement = judge(rounded(r, seed + 1, dtype), r, rounded(r, seed + 2, dtype), dtype)
    assert judgement.verdict is Verdict.PASS, judgement.message


def test_drift_of_a_tower_in_16_bit_fails() -> None:
    r = features()
    judgement = judge(rounded(r, 1, times=1.8), r, rounded(r, 2))
    assert judgement.verdict is Verdict.FAIL
    assert "pooled ratio" in judgement.message


def test_one_picture_that_is_wrong_is_named() -> None:
    r = features()
    x = rounded(r, 1)
    x[-12:] = rounded(r, 1, times=6)[-12:]  # the video's
    judgement = judge(x, r, rounded(r, 2))
    assert judgement.verdict is Verdict.FAIL
    assert f"prompt {len(GRIDS) - 1}" in judgement.message


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (features()[:-1], "shape"),
        (np.full((PATCHES, WIDTH), np.nan), "NaN"),
        (features()[:, :-1], "shape"),
    ],
)
def test_features_that_are_none_are_refused(x: Any, says: str) -> None:
    judgement = judge(x, features(), rounded(features(), 2))
    assert judgement.verdict is Verdict.FAIL
    assert says in judgement.message


def test_features_of_a_few_pictures_show_nothing() -> None:
    grids = GRIDS[:4]
    r = features()[: sum(f * h * w for f, h, w in grids) // 4]
    assert judge(rounded(r, 1), r, rounded(r, 2), grids=grids).verdict is Verdict.UNDERPOWERED


def test_grids_that_do_not_fit_the_features_are_the_suites_fault() -> None:
    with pytest.raises(ValueError, match="do not divide"):
        judge(features(), features(), features(), grids=[*GRIDS, (1, 2, 2), (1, 5, 1)])


def answers(ids: tuple[tuple[int, ...], ...], grids: Any = ()) -> Generations:
    none = np.zeros((0, 0))
    return Generations(tuple((1,) for _ in ids), RAN, ids, (), (), none, none.astype(int), none, grids)


SEEN = (((1, 4, 6),), ((1, 2, 2), (2, 4, 4)))


@pytest.mark.parametrize(
    "mine",
    [
        (((1, 6, 4),), SEEN[1]),  # rows and columns exchanged
        (SEEN[0], SEEN[1][::-1]),  # the order of two pictures
        (SEEN[0], ((1, 2, 2), (1, 4, 4))),  # frames dropped
        (SEEN[0],),
        (SEEN[0], ()),
        (),
    ],
)
def test_other_grids_fail(mine: Any) -> None:
    judgement = vision.same_grids(answers((), mine), answers((), SEEN))
    assert judgement.verdict is Verdict.FAIL
    assert "prompt" in judgement.message


def test_equal_grids_pass_and_one_grid_alone_shows_nothing() -> None:
    assert vision.same_grids(answers((), SEEN), answers((), SEEN)).verdict is Verdict.PASS
    alone = answers((), (((1, 4, 6),), ((1, 4, 6),)))
    assert vision.same_grids(alone, alone).verdict is Verdict.UNDERPOWERED


A, B = (5, 6, 7, 8), (7, 8, 5, 6)


def follow(*ids: tuple[int, ...], reference: Any = (A, B)) -> Judgement:
    return vision.answers_follow_order(x=answers(ids), r=answers(reference), pairs=[(0, 1)], what="images")


def test_each_order_has_its_own_answer() -> None:
    assert follow(A, B).verdict is Verdict.PASS
    assert follow((*A[:2], 1, 1), B).verdict is Verdict.PASS  # divergence is judged elsewhere


@pytest.mark.parametrize("ids", [(A, A), (B, B), (B, A), ((1, 1, 1, 1), B), (A, ()), (A,)])
def test_an_answer_of_another_order_fails(ids: Any) -> None:
    assert follow(*ids).verdict is Verdict.FAIL


def test_pairs_to_which_the_reference_answers_alike_show_nothing() -> None:
    assert follow(A, A, reference=(A, A)).verdict is Verdict.UNDERPOWERED


def ran(effective: Effective, vision: VisionRequested | None = TOWER) -> Judgement:
    return observed.ran_as_requested(
        effective, dtype="bfloat16", attention="sdpa", kernels=[FUSED], layers=4, vision=vision
    )


def test_calls_of_text_model_and_tower_are_accounted_for() -> None:
    judgement = ran(RAN)
    assert judgement.verdict is Verdict.PASS, judgement.message
    alone = replace(RAN, kernels={FUSED: 15}, forwards=0)
    assert ran(alone).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("effective", "says"),
    [
        (replace(RAN, kernels={FUSED: 8}), "unaccounted for"),
        (replace(RAN, vision=None, kernels={FUSED: 8}), "the vision tower's attention backend was 'none'"),
        (replace(RAN, vision=VisionEffective("eager", 3, 5)), "was 'eager', but 'sdpa' was requested"),
        (replace(RAN, vision=VisionEffective("sdpa", 2, 5), kernels={FUSED: 18}), "2 layers of the vision tower"),
        (replace(RAN, kernels={FUSED: 8, EAGER: 15}), "the profile expects"),
        (replace(RAN, vision=None, kernels={}, forwards=0), "no attention kernel was seen"),
        (replace(RAN, vision=VisionEffective("sdpa", 3, 0), kernels={FUSED: 8}), "seen 0 sequences"),
    ],
)
def test_a_tower_that_ran_otherwise_fails(effective: Effective, says: str) -> None:
    judgement = ran(effective)
    assert judgement.verdict is Verdict.FAIL
    assert says in judgement.message


def test_a_tower_reported_of_a_model_without_one_fails() -> None:
    """It could account for calls of the text model that nobody asked for."""
    judgement = ran(RAN, None)
    assert judgement.verdict is Verdict.FAIL
    assert "the model has none" in judgement.message


@pytest.mark.parametrize(("fused", "softmax", "verdict"), [(8, 15, Verdict.PASS), (15, 8, Verdict.FAIL)])
def test_kernels_of_text_and_tower_must_not_change_places(fused: int, softmax: int, verdict: Verdict) -> None:
    mixed = replace(RAN, kernels={FUSED: fused, EAGER: softmax}, vision=VisionEffective("eager", 3, 5))
    assert ran(mixed, VisionRequested("eager", [EAGER], 3)).verdict is verdict
