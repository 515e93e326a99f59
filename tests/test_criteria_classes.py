"""Class logits: what the criteria accept and what they must reject."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.criteria import classes
from conformance.judgement import Judgement
from conformance.verdict import Verdict

COUNT, CLASSES = 128, 5
NOISE = {"bfloat16": 0.03, "float16": 0.004, "float32": 2e-6}
LABELS = [i % CLASSES for i in range(COUNT)]
Array = np.ndarray[Any, np.dtype[np.float64]]


def reference(seed: int = 0, count: int = COUNT) -> Array:
    logits = np.random.default_rng(seed).normal(size=(count, CLASSES))
    logits[np.arange(count), LABELS[:count]] += 4
    return np.asarray(logits)


def rounded(r: Array, dtype: str = "bfloat16", seed: int = 1, times: float = 1.0) -> Array:
    return np.asarray(r + NOISE[dtype] * times * np.random.default_rng(seed).normal(size=r.shape))


def judge(x: Any, r: Array, e: Array, dtype: str = "bfloat16", **more: Any) -> Judgement:
    return classes.agrees(x=x, r=r, e=e, dtype=dtype, **more)


def figures(judgement: Judgement) -> dict[str, float]:
    return {figure.name: figure.value for figure in judgement.figures}


@pytest.mark.parametrize("dtype", list(NOISE))
@settings(max_examples=30, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_an_engine_with_the_yardsticks_error_law_passes(dtype: str, seed: int) -> None:
    r = reference(seed)
    x, e = rounded(r, dtype, seed + 1), rounded(r, dtype, seed + 2)
    judgement = judge(x, r, e, dtype)
    assert judgement.verdict is Verdict.PASS, judgement.message
    assert classes.top_classes_agree(x=x, r=r, e=e).verdict is Verdict.PASS


@settings(max_examples=30, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), dtype=st.sampled_from(["bfloat16", "float16"]))
def test_a_fault_of_three_times_the_noise_fails(seed: int, dtype: str) -> None:
    r = reference(seed)
    x = rounded(r, dtype, seed + 1) + rounded(r, dtype, seed + 3, times=3) - r
    assert judge(x, r, rounded(r, dtype, seed + 2), dtype).verdict is Verdict.FAIL


def test_a_constant_added_to_all_logits_of_a_prompt_changes_nothing() -> None:
    r, e = reference(), rounded(reference(), seed=2)
    shifted = rounded(r) + np.arange(COUNT)[:, None]
    assert figures(judge(shifted, r, e)) == pytest.approx(figures(judge(rounded(r), r, e)), rel=1e-6)


@pytest.mark.parametrize("dtype", list(NOISE))
def test_permuted_class_labels_fail(dtype: str) -> None:
    r = reference()
    x, e = rounded(r, dtype)[:, [1, 2, 3, 4, 0]], rounded(r, dtype, 2)
    assert judge(x, r, e, dtype).verdict is Verdict.FAIL
    judgement = classes.top_classes_agree(x=x, r=r, e=e)
    assert judgement.verdict is Verdict.FAIL
    assert "the engine's top class is 4, the reference's 0" in judgement.message
    assert classes.top_classes_are_known(x=x, labels=LABELS).verdict is Verdict.FAIL


def offsets(x: Any, r: Array, e: Array, dtype: str = "bfloat16") -> Judgement:
    return classes.offsets_agree(x=x, r=r, e=e, dtype=dtype)


@pytest.mark.parametrize("dtype", list(NOISE))
def test_offsets_within_rounding_pass_even_near_zero(dtype: str) -> None:
    r = reference()
    for centred in (r, r - r.mean(axis=1, keepdims=True)):
        judgement = offsets(rounded(centred, dtype), centred, rounded(centred, dtype, 2), dtype)
        assert judgement.verdict is Verdict.PASS, judgement.message


@pytest.mark.parametrize("dtype", list(NOISE))
def test_a_constant_added_to_every_logit_fails_by_its_offset_only(dtype: str) -> None:
    r = reference()
    x, e = rounded(r, dtype) + 0.5, rounded(r, dtype, 2)
    assert judge(x, r, e, dtype).verdict is Verdict.PASS
    assert offsets(x, r, e, dtype).verdict is Verdict.FAIL


def test_one_wrong_offset_fails_and_few_are_underpowered() -> None:
    r = reference()
    x, e = rounded(r), rounded(r, seed=2)
    assert offsets(x[:127], r[:127], e[:127]).verdict is Verdict.UNDERPOWERED
    assert offsets(x[:4], r[:4], e[:4]).verdict is Verdict.UNDERPOWERED
    x[17] += 0.3
    assert "prompt 17" in offsets(x, r, e).message
    assert offsets(x[1:], r, e).verdict is Verdict.FAIL


def test_one_wrong_prompt_fails() -> None:
    r = reference()
    x = rounded(r)
    x[17] = r[17] + 15 * NOISE["bfloat16"] * np.array([1, -1, 1, -1, 0])
    judgement = judge(x, r, rounded(r, seed=2))
    assert judgement.verdict is Verdict.FAIL
    assert "prompt 17" in judgement.message


def test_errors_where_the_classes_are_uncertain_fail_by_their_divergence() -> None:
    r = np.repeat(reference(), 8, axis=0)
    r[:64] *= 0.3
    r[64:] *= 5  # saturated: an error moves no probability
    x, e = rounded(r), rounded(r, seed=2)
    x[:64] = r[:64] + 2 * (x[:64] - r[:64])
    judgement = judge(x, r, e)
    assert figures(judgement)["pooled ratio"] < 1.25
    assert [figure.name for figure in judgement.figures if not figure.holds] == ["divergence ratio"]


def test_saturated_classes_have_their_divergence_reported_not_judged() -> None:
    r = 20 * reference()
    judgement = judge(rounded(r), r, rounded(r, seed=2))
    assert judgement.verdict is Verdict.PASS
    assert {figure.name: figure.limit for figure in judgement.figures}["divergence ratio"] is None


@pytest.mark.parametrize("count", [2, 63])
def test_too_few_logits_are_underpowered(count: int) -> None:
    r = reference(count=count)
    assert judge(rounded(r), r, rounded(r, seed=2)).verdict is Verdict.UNDERPOWERED


def test_in_float32_logits_beyond_the_ieee_relative_error_fail() -> None:
    r = reference()
    x, e = (r + 2e-3 * np.random.default_rng(seed).normal(size=r.shape) for seed in (1, 2))
    assert judge(x, r, e, "float32").verdict is Verdict.FAIL
    assert judge(x, r, e, "float32", precision="tf32").verdict is Verdict.PASS


@pytest.mark.parametrize(
    "x", [np.zeros((0, CLASSES)), np.zeros((COUNT, CLASSES - 1)), np.zeros(COUNT), np.full((COUNT, CLASSES), np.nan)]
)
def test_a_wrong_shape_and_nan_fail_with_a_message(x: Array) -> None:
    r = reference()
    e = rounded(r)
    known = classes.top_classes_are_known(x=x, labels=[*LABELS[:-1], 7])
    for judgement in (judge(x, r, e), classes.top_classes_agree(x=x, r=r, e=e), known):
        assert judgement.verdict is Verdict.FAIL
        assert "must be" in judgement.message or "but" in judgement.message


def test_a_single_class_is_the_suites_fault() -> None:
    one = np.zeros((COUNT, 1))
    with pytest.raises(ValueError, match="at least 2"):
        judge(one, one, one)


def test_a_top_class_may_change_inside_the_rounding_gap_only() -> None:
    r = reference()
    e = rounded(r, seed=2)
    best = r.argmax(axis=1)[0]
    other = (best + 1) % CLASSES
    for gap, verdict in ((4 * NOISE["bfloat16"], Verdict.PASS), (20 * NOISE["bfloat16"], Verdict.FAIL)):
        near, x = r.copy(), rounded(r)
        near[0, other] = near[0, best] - gap
        x[0] = near[0]
        x[0, other] += 1.5 * gap
        assert classes.top_classes_agree(x=x, r=near, e=e + near - r).verdict is verdict


def test_a_tie_for_a_clear_top_class_fails() -> None:
    r = reference()
    tied = np.repeat(r.max(axis=1, keepdims=True), CLASSES, axis=1)
    assert classes.top_classes_agree(x=tied, r=r, e=rounded(r)).verdict is Verdict.FAIL
    assert classes.top_classes_are_known(x=tied, labels=LABELS).verdict is Verdict.FAIL


def test_a_reference_with_one_answer_is_underpowered() -> None:
    r = reference()
    r[:, 2] += 100
    assert classes.top_classes_agree(x=r, r=r, e=rounded(r)).verdict is Verdict.UNDERPOWERED


def test_known_classes_pass_and_one_answer_or_none_known_is_underpowered() -> None:
    x = rounded(10 * np.eye(CLASSES)[LABELS])
    assert classes.top_classes_are_known(x=x, labels=LABELS).verdict is Verdict.PASS
    assert classes.top_classes_are_known(x=x, labels=[None, *LABELS[1:]]).verdict is Verdict.PASS
    assert classes.top_classes_are_known(x=x, labels=[None] * COUNT).verdict is Verdict.UNDERPOWERED
    assert classes.top_classes_are_known(x=x, labels=[0, *[None] * (COUNT - 1)]).verdict is Verdict.UNDERPOWERED
    assert classes.top_classes_are_known(x=x, labels=[1, *LABELS[1:]]).verdict is Verdict.FAIL
