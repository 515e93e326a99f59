"""What an error looks like is said in words: an offset, a gain, both, other classes, or none of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.criteria import classes, score
from conformance.criteria.diagnosis import line, of_classes, of_scores

RNG = np.random.default_rng(3)
R = 2 + 3 * RNG.standard_normal(128)
NOISE = 0.01 * RNG.standard_normal(128)
K = 3 * RNG.standard_normal((64, 6))
K -= K.mean(axis=1, keepdims=True)
K_NOISE = 0.01 * RNG.standard_normal((64, 6))


def test_a_constant_offset_is_named_with_its_size() -> None:
    said = of_scores(R + 0.31 + NOISE, R)[1]
    assert "constant offset of +0.3" in said and "100% of the error" in said and "template" in said


def test_a_gain_is_named_with_its_size() -> None:
    said = of_scores(1.02 * R + NOISE, R)[1]
    assert said.startswith("A gain of 1.02 +- ") and "offset" not in said


def test_a_gain_about_another_point_than_zero_is_named_with_its_offset() -> None:
    said = of_scores(R + 0.1 * (R - 9) + NOISE, R)[1]
    assert "A gain of 1.1" in said and "offset of -0.7" in said


def test_swapped_answers_are_named() -> None:
    assert "swapped" in of_scores(-R + NOISE, R)[1]


def test_one_answer_for_all_is_named() -> None:
    assert "hardly follow" in of_scores(NOISE, R)[1]


def test_plain_noise_is_neither() -> None:
    assert of_scores(R + NOISE, R)[1].startswith("Neither")


def test_a_single_wrong_score_is_neither() -> None:
    wrong = R + NOISE
    wrong[7] += 5
    assert of_scores(wrong, R)[1].startswith("Neither")


@given(offset=st.floats(-5, 5), stretch=st.floats(-0.5, 0.5), seed=st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_offset_and_gain_are_found_within_their_standard_errors(offset: float, stretch: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    r = rng.standard_normal(128)
    found = line(r + offset + stretch * r + 0.01 * rng.standard_normal(128), r)
    at_mean = offset + stretch * r.mean()
    assert abs(found.offset.value - at_mean) <= 6 * found.offset.deviation + 1e-9
    assert abs(found.slope.value - stretch) <= 6 * found.slope.deviation + 1e-9
    assert found.share <= 1


@pytest.mark.parametrize("values", [np.zeros(128), np.full(128, 3.0), np.full(128, 1e300)])
def test_numbers_without_any_spread_are_no_error(values: Any) -> None:
    assert of_scores(values, values)[1]
    assert of_scores(R, values)[1]
    assert of_scores(values, R)[1]


def test_permuted_classes_are_named() -> None:
    said = of_classes((K + K_NOISE)[:, [0, 2, 1, 3, 4, 5]], K)[1]
    assert "another order" in said and "2 where 1 belongs, 1 where 2 belongs" in said


def test_an_offset_of_a_class_is_named() -> None:
    x = K + K_NOISE
    x[:, 4] += 0.5
    x -= x.mean(axis=1, keepdims=True)
    said = of_classes(x, K)[1]
    assert "constant offset of each class" in said and "of class 4" in said


def test_a_gain_of_all_classes_is_named() -> None:
    assert "gain of 0.9" in of_classes(0.97 * K + K_NOISE, K)[1]


def test_noise_of_classes_is_neither() -> None:
    assert of_classes(K + K_NOISE, K)[1].startswith("Neither")


def test_a_failing_judgement_says_it_and_a_passing_one_has_the_figures() -> None:
    found = score.agrees(x=R + 0.31 + NOISE, r=R, e=R + NOISE[::-1], dtype="bfloat16")
    assert "constant offset of +0.3" in found.message
    honest = score.agrees(x=R + NOISE, r=R, e=R + NOISE[::-1], dtype="bfloat16")
    names = {figure.name for figure in honest.figures if figure.limit is None}
    assert {"offset", "gain", "standard error of the offset", "standard error of the gain"} <= names
    assert "Neither" not in honest.message
    rolled = classes.agrees(x=np.roll(K, 1, axis=1), r=K, e=K + K_NOISE, dtype="bfloat16")
    assert "another order" in rolled.message
