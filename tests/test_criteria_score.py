"""Scores: what the criteria accept and what they must reject."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.criteria import score
from conformance.judgement import Judgement
from conformance.verdict import Verdict

COUNT = 128
NOISE = {"bfloat16": 0.02, "float16": 0.0025, "float32": 1e-6}
Array = np.ndarray[Any, np.dtype[np.float64]]


def reference(seed: int = 0, count: int = COUNT) -> Array:
    return np.asarray(np.random.default_rng(seed).normal(0.3, 1.5, size=count))


def rounded(r: Array, dtype: str = "bfloat16", seed: int = 1, times: float = 1.0) -> Array:
    return np.asarray(r + NOISE[dtype] * times * np.random.default_rng(seed).normal(size=r.shape))


def judge(x: Any, r: Array, e: Array, dtype: str = "bfloat16", **more: Any) -> Judgement:
    return score.agrees(x=x, r=r, e=e, dtype=dtype, **more)


def figures(judgement: Judgement) -> dict[str, float]:
    return {figure.name: figure.value for figure in judgement.figures}


@pytest.mark.parametrize("dtype", list(NOISE))
@settings(max_examples=30, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_an_engine_with_the_yardsticks_error_law_passes(dtype: str, seed: int) -> None:
    r = reference(seed)
    judgement = judge(rounded(r, dtype, seed + 1), r, rounded(r, dtype, seed + 2), dtype)
    assert judgement.verdict is Verdict.PASS, judgement.message


@pytest.mark.parametrize("dtype", list(NOISE))
def test_the_yardstick_itself_passes(dtype: str) -> None:
    r = reference()
    e = rounded(r, dtype)
    assert judge(e, r, e, dtype).verdict is Verdict.PASS


@settings(max_examples=30, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), dtype=st.sampled_from(["bfloat16", "float16"]))
def test_a_fault_of_three_times_the_noise_fails(seed: int, dtype: str) -> None:
    r = reference(seed)
    x = rounded(r, dtype, seed + 1) + rounded(r, dtype, seed + 3, times=3) - r
    assert judge(x, r, rounded(r, dtype, seed + 2), dtype).verdict is Verdict.FAIL


@settings(max_examples=20, deadline=None, derandomize=True)
@given(order=st.permutations(range(COUNT)))
def test_the_order_of_prompts_changes_no_figure(order: list[int]) -> None:
    r = reference()
    x, e = rounded(r), rounded(r, seed=2)
    assert figures(judge(x[order], r[order], e[order])) == pytest.approx(figures(judge(x, r, e)), rel=1e-6, abs=1e-12)


def test_a_constant_added_to_every_score_fails_by_its_bias() -> None:
    r = reference()
    judgement = judge(rounded(r, seed=4, times=0.5) + 1.2 * NOISE["bfloat16"], r, rounded(r, seed=2))
    assert judgement.verdict is Verdict.FAIL
    assert [figure.name for figure in judgement.figures if not figure.holds] == ["bias"]


def test_a_bias_as_prompts_with_a_shared_prefix_have_it_passes() -> None:
    r = reference()
    x, e = rounded(r) + 0.7 * NOISE["bfloat16"], rounded(r, seed=2) - 0.2 * NOISE["bfloat16"]
    assert judge(x, r, e).verdict is Verdict.PASS


def test_scores_that_grow_too_fast_fail_by_their_slope() -> None:
    r = reference()
    x = rounded(r, seed=4, times=0.6) + 0.012 * (r - r.mean())
    judgement = judge(x, r, rounded(r, seed=2))
    assert [figure.name for figure in judgement.figures if not figure.holds] == ["slope of the error"]


@pytest.mark.parametrize("dtype", list(NOISE))
def test_two_documents_swapped_fail(dtype: str) -> None:
    r = reference()
    x = rounded(r, dtype)
    low, high = int(r.argmin()), int(r.argmax())
    x[[low, high]] = x[[high, low]]
    judgement = judge(x, r, rounded(r, dtype, 2), dtype)
    assert judgement.verdict is Verdict.FAIL
    assert f"prompt {low}" in judgement.message or f"prompt {high}" in judgement.message


@pytest.mark.parametrize("dtype", list(NOISE))
def test_yes_and_no_swapped_fail(dtype: str) -> None:
    r = reference()
    assert judge(-rounded(r, dtype), r, rounded(r, dtype, 2), dtype).verdict is Verdict.FAIL


def test_in_float32_scores_beyond_the_ieee_relative_error_fail() -> None:
    r = reference()
    x, e = (r + 5e-4 * np.random.default_rng(seed).normal(size=COUNT) for seed in (1, 2))
    assert judge(x, r, e, "float32").verdict is Verdict.FAIL
    assert judge(x, r, e, "float32", precision="tf32").verdict is Verdict.PASS


@pytest.mark.parametrize("count", [4, 12, 64, 127])
def test_too_few_scores_are_underpowered(count: int) -> None:
    r = reference(count=count)
    judgement = judge(rounded(r), r, rounded(r, seed=2))
    assert judgement.verdict is Verdict.UNDERPOWERED
    assert "at least 128" in judgement.message or "at least 8" in judgement.message


def test_64_faulty_scores_fail() -> None:
    r = reference(count=64)
    assert judge(rounded(r, times=5), r, rounded(r, seed=2)).verdict is Verdict.FAIL


def test_scores_that_hardly_differ_are_underpowered() -> None:
    near = 5 + 0.01 * reference()
    assert judge(rounded(near), near, rounded(near, seed=2)).verdict is Verdict.UNDERPOWERED


def test_saturated_probabilities_are_underpowered_and_the_others_are_judged() -> None:
    saturated = 8 * reference()
    judgement = judge(rounded(saturated), saturated, rounded(saturated, seed=2), probabilities_only=True)
    assert judgement.verdict is Verdict.UNDERPOWERED
    assert "share of saturated scores" in judgement.message
    spread = np.concatenate([reference(), np.full(20, 9.0)])
    x = rounded(spread)
    x[-1] = 30.0  # where the probability is 1 to all digits its log-odds mean nothing
    e = rounded(spread, seed=2)
    judgement = judge(x, spread, e, probabilities_only=True)
    assert judgement.verdict is Verdict.PASS, judgement.message
    assert judge(x, spread, e).verdict is Verdict.FAIL


@pytest.mark.parametrize("x", [np.zeros(0), np.zeros(COUNT - 1), np.zeros((COUNT, 1)), np.full(COUNT, np.nan)])
def test_a_wrong_count_and_nan_fail_with_a_message(x: Array) -> None:
    r = reference()
    judgement = judge(x, r, rounded(r))
    assert judgement.verdict is Verdict.FAIL
    assert "must be" in judgement.message
    ordered = score.are_ordered(x=x, r=r, e=rounded(r), groups=[0] * COUNT, grades=None)
    assert ordered.verdict is Verdict.FAIL


GROUPS = [query for query in range(4) for _ in range(4)]
GRADES = [3, 2, 1, 0] * 4
SCORES = np.array([2.0, 1.0, 0.0, -1.0] * 4)


def order(x: Any, r: Any = SCORES, grades: list[int] | None = GRADES) -> Judgement:
    return score.are_ordered(x=x, r=r, e=rounded(np.asarray(r), seed=2), groups=GROUPS, grades=grades)


@pytest.mark.parametrize("grades", [None, GRADES])
def test_an_order_kept_passes_and_two_documents_swapped_fail(grades: list[int] | None) -> None:
    x = rounded(SCORES)
    assert order(x, grades=grades).verdict is Verdict.PASS
    x[[4, 5]] = x[[5, 4]]
    judgement = order(x, grades=grades)
    assert judgement.verdict is Verdict.FAIL
    assert "prompts 4 and 5" in judgement.message
    assert order(-rounded(SCORES), grades=grades).verdict is Verdict.FAIL


def test_scores_of_different_groups_are_not_compared() -> None:
    x = rounded(SCORES)
    x[:4] += 100
    assert order(x).verdict is Verdict.PASS


def test_a_wrong_reference_does_not_rescue_a_wrong_order() -> None:
    wrong = SCORES.copy()
    wrong[[0, 1]] = wrong[[1, 0]]
    judgement = order(rounded(wrong), wrong)
    assert judgement.verdict is Verdict.FAIL
    assert "the reference is as wrong" in judgement.message


def test_a_pair_may_swap_only_inside_the_rounding_gap() -> None:
    near = SCORES.copy()
    near[1] = near[0] - 0.05
    x = rounded(near)
    x[[0, 1]] = near[1], near[0]
    assert order(x, near).verdict is Verdict.PASS
    x[[0, 1]] = near[1] - 1, near[0]
    assert order(x, near).verdict is Verdict.FAIL


def test_equal_scores_for_a_decided_pair_fail() -> None:
    x = rounded(SCORES)
    x[1] = x[0]
    assert order(x).verdict is Verdict.FAIL


def test_no_decided_pair_is_underpowered() -> None:
    equal = np.zeros(16)
    assert order(rounded(equal), equal).verdict is Verdict.UNDERPOWERED
    alone = score.are_ordered(x=SCORES, r=SCORES, e=rounded(SCORES), groups=list(range(16)), grades=None)
    assert alone.verdict is Verdict.UNDERPOWERED


def test_groups_and_grades_of_another_length_are_errors() -> None:
    with pytest.raises(ValueError, match="3 groups"):
        score.are_ordered(x=SCORES, r=SCORES, e=SCORES, groups=[1, 2, 3], grades=None)
    with pytest.raises(ValueError, match="1 grades"):
        score.are_ordered(x=SCORES, r=SCORES, e=SCORES, groups=GROUPS, grades=[1])
