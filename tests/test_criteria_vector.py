"""Embeddings: what the criteria accept and what they must reject."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.criteria import vector
from conformance.criteria.ratio import EPS
from conformance.judgement import Judgement
from conformance.verdict import Verdict

COUNT, SIZE = 24, 64
LENGTHS = [5 + 7 * i for i in range(COUNT)]
DTYPES = ["bfloat16", "float16", "float32"]
Array = np.ndarray[Any, np.dtype[np.float64]]


def reference(seed: int = 0, count: int = COUNT) -> Array:
    vectors = np.random.default_rng(seed).normal(size=(count, SIZE))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def rounded(r: Array, dtype: str, seed: int, times: float = 1.0) -> Array:
    """An honest rounding's error: relative rms of half an eps, each prompt its own."""
    size = 0.5 * EPS[dtype] * times / np.sqrt(r.shape[1])
    return np.asarray(r + size * np.random.default_rng(seed).normal(size=r.shape))


def judge(x: Any, r: Array, e: Array, dtype: str = "bfloat16", **more: Any) -> Judgement:
    return vector.agrees(x=x, r=r, e=e, dtype=dtype, prompt_lengths=LENGTHS[: len(r)], **more)


def figures(judgement: Judgement) -> dict[str, float]:
    return {figure.name: figure.value for figure in judgement.figures}


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_an_engine_with_the_yardsticks_error_law_passes(dtype: str, seed: int) -> None:
    r = reference(seed)
    judgement = judge(rounded(r, dtype, seed + 1), r, rounded(r, dtype, seed + 2), dtype)
    assert judgement.verdict is Verdict.PASS, judgement.message


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), dtype=st.sampled_from(["bfloat16", "float16"]))
def test_a_fault_of_three_times_the_noise_fails(seed: int, dtype: str) -> None:
    r = reference(seed)
    x = rounded(r, dtype, seed + 1) + rounded(r, dtype, seed + 3, times=3) - r
    assert judge(x, r, rounded(r, dtype, seed + 2), dtype).verdict is Verdict.FAIL


@settings(max_examples=20, deadline=None, derandomize=True)
@given(factor=st.floats(0.01, 100))
def test_the_pooled_ratio_grows_linearly_with_the_error(factor: float) -> None:
    r = reference()
    x, e = rounded(r, "bfloat16", 1), rounded(r, "bfloat16", 2)
    once, scaled = (figures(judge(r + k * (x - r), r, e))["pooled ratio"] for k in (1.0, factor))
    assert scaled == pytest.approx(once * factor, rel=1e-9)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(order=st.permutations(range(COUNT)))
def test_the_order_of_prompts_changes_no_figure(order: list[int]) -> None:
    r = reference()
    x, e = rounded(r, "bfloat16", 1), rounded(r, "bfloat16", 2)
    lengths = [LENGTHS[i] for i in order]
    shuffled = vector.agrees(x=x[order], r=r[order], e=e[order], dtype="bfloat16", prompt_lengths=lengths)
    assert figures(shuffled) == pytest.approx(figures(judge(x, r, e)), rel=1e-9)


def test_every_figure_and_the_judged_arrays_are_there_on_a_pass() -> None:
    r = reference()
    judgement = judge(rounded(r, "bfloat16", 1), r, rounded(r, "bfloat16", 2))
    assert judgement.verdict is Verdict.PASS
    limited = [figure for figure in judgement.figures if figure.limit is not None]
    assert {"pooled ratio", "worst single prompt's ratio", "ratio of lengths 64 to 127"} <= {f.name for f in limited}
    assert all(figure.provenance for figure in limited)
    assert set(judgement.rows) == {"x", "r", "e", "prompt_lengths"}


def test_one_embedding_repeated_for_all_prompts_fails() -> None:
    r = reference()
    x = np.tile(rounded(r, "bfloat16", 1)[:1], (COUNT, 1))
    assert judge(x, r, rounded(r, "bfloat16", 2)).verdict is Verdict.FAIL


def test_embeddings_scaled_by_two_fail() -> None:
    r = reference()
    x = 2 * rounded(r, "bfloat16", 1)
    judgement = judge(x, r, rounded(r, "bfloat16", 2))
    assert judgement.verdict is Verdict.FAIL
    assert figures(judgement)["gain of the error on the reference"] == pytest.approx(1, abs=0.01)
    assert vector.have_unit_norm(x=x, dtype="bfloat16").verdict is Verdict.FAIL


def test_two_embeddings_swapped_fail_and_the_message_names_the_prompt() -> None:
    r = reference()
    x = rounded(r, "bfloat16", 1)
    x[[3, 9]] = x[[9, 3]]
    judgement = judge(x, r, rounded(r, "bfloat16", 2))
    assert judgement.verdict is Verdict.FAIL
    assert "prompt 3" in judgement.message or "prompt 9" in judgement.message


def test_one_wrong_prompt_among_many_fails_though_the_pooled_ratio_holds() -> None:
    r = reference(count=400)
    x, e = rounded(r, "bfloat16", 1), rounded(r, "bfloat16", 2)
    x[7] = r[7] + 3.5 * (x[7] - r[7])
    judgement = vector.agrees(x=x, r=r, e=e, dtype="bfloat16", prompt_lengths=[10] * 400)
    assert judgement.verdict is Verdict.FAIL
    assert figures(judgement)["pooled ratio"] < 1.25
    assert "(prompt 7)" in judgement.message


def test_a_fault_of_long_prompts_only_fails_by_its_bucket() -> None:
    r = reference()
    x, e = rounded(r, "bfloat16", 1), rounded(r, "bfloat16", 2)
    long = np.asarray(LENGTHS) >= 128
    x[long] = r[long] + 1.6 * (x[long] - r[long])
    judgement = judge(x, r, e)
    assert [figure.name for figure in judgement.figures if not figure.holds] >= ["ratio of lengths 128 to 255"]


def test_a_figure_just_beyond_its_limit_is_said_to_be_grey() -> None:
    r = reference()
    e = rounded(r, "bfloat16", 2)
    assert "grey zone" in judge(r + 1.4 * (e - r), r, e).message
    assert "grey zone" not in judge(r + 3 * (e - r), r, e).message


def test_in_float32_a_small_relative_error_is_no_fault_whatever_its_ratio() -> None:
    r = reference()
    e = rounded(r, "float32", 2)
    relative = float(np.linalg.norm(e - r) / np.linalg.norm(r))
    for error, verdict in ((0.9e-5, Verdict.PASS), (1.1e-5, Verdict.FAIL)):
        judgement = judge(r + error / relative * (e - r), r, e, "float32")
        assert figures(judgement)["pooled ratio"] > 100
        assert judgement.verdict is verdict


def test_in_float32_an_ieee_claim_fails_above_its_relative_error_even_if_the_yardstick_is_as_wrong() -> None:
    r = reference()
    e, x = (r + 3e-4 / np.sqrt(SIZE) * np.random.default_rng(seed).normal(size=r.shape) for seed in (1, 2))
    assert judge(x, r, e, "float32").verdict is Verdict.FAIL
    assert judge(x, r, e, "float32", precision="tf32").verdict is Verdict.PASS


def test_fewer_than_16_prompts_are_underpowered_but_a_fault_among_them_still_fails() -> None:
    r = reference(count=15)
    x, e = rounded(r, "bfloat16", 1), rounded(r, "bfloat16", 2)
    assert judge(x, r, e).verdict is Verdict.UNDERPOWERED
    assert judge(-x, r, e).verdict is Verdict.FAIL


def test_a_reference_that_hardly_varies_is_underpowered() -> None:
    one = np.tile(reference()[:1], (COUNT, 1))
    assert judge(rounded(one, "bfloat16", 1), one, rounded(one, "bfloat16", 2)).verdict is Verdict.UNDERPOWERED


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (np.zeros((0, SIZE)), "shape [0, 64]"),
        (np.zeros((COUNT - 1, SIZE)), "shape [23, 64]"),
        (np.zeros((COUNT, SIZE // 2)), "shape [24, 32]"),
        (np.zeros(COUNT), "shape [24]"),
        (np.full((COUNT, SIZE), np.nan), "1536 NaN"),
        (np.full((COUNT, SIZE), np.inf), "1536 infinite"),
        ([[0.0], [0.0, 1.0]], "no array of numbers"),
    ],
)
def test_a_wrong_shape_or_count_and_values_that_are_not_finite_fail_with_a_message(x: Any, said: str) -> None:
    r = reference()
    judgement = judge(x, r, rounded(r, "bfloat16", 2))
    assert judgement.verdict is Verdict.FAIL
    assert said in judgement.message


def test_no_prompts_at_all_fail() -> None:
    empty = np.zeros((0, SIZE))
    judgement = vector.agrees(x=empty, r=empty, e=empty, dtype="bfloat16", prompt_lengths=[])
    assert judgement.verdict is Verdict.FAIL
    assert "empty batch" in judgement.message


def test_faults_of_the_suites_own_numbers_are_errors() -> None:
    r = reference()
    e = rounded(r, "bfloat16", 2)
    with pytest.raises(ValueError, match=r"r \(reference\) holds NaN"):
        judge(r, r * np.nan, e)
    with pytest.raises(ValueError, match="they must be equal"):
        judge(r, r, e[1:])
    with pytest.raises(ValueError, match=r"'bfloat15'; did you mean 'bfloat16'\?"):
        judge(r, r, e, "bfloat15")
    with pytest.raises(ValueError, match=r"'iee'; did you mean 'ieee'\?"):
        judge(r, r, e, precision="iee")
    with pytest.raises(ValueError, match="3 prompt lengths for 24 prompts"):
        vector.agrees(x=r, r=r, e=e, dtype="bfloat16", prompt_lengths=[1, 2, 3])


@pytest.mark.parametrize(("dtype", "off"), [("bfloat16", 0.02), ("float16", 0.003), ("float32", 1e-5)])
def test_a_length_other_than_one_fails_and_that_of_a_rounded_vector_passes(dtype: str, off: float) -> None:
    r = reference()
    honest = rounded(r, dtype, 1)
    assert vector.have_unit_norm(x=honest, dtype=dtype).verdict is Verdict.PASS
    honest[5] *= 1 + off
    judgement = vector.have_unit_norm(x=honest, dtype=dtype)
    assert judgement.verdict is Verdict.FAIL
    assert "prompt 5" in judgement.message
    assert vector.have_unit_norm(x=np.zeros((0, SIZE)), dtype=dtype).verdict is Verdict.FAIL


def partnered() -> tuple[Array, list[int | None]]:
    half = reference(count=COUNT // 2)
    both = np.concatenate([half, half + 0.3 * reference(9, COUNT // 2)])
    partners: list[int | None] = [(i + COUNT // 2) % COUNT for i in range(COUNT)]
    return both, partners


def test_the_known_partner_must_be_nearest() -> None:
    x, partners = partnered()
    assert vector.nearest_are_known(x=x, partners=partners).verdict is Verdict.PASS
    x[[3, 9]] = x[[9, 3]]
    judgement = vector.nearest_are_known(x=x, partners=partners)
    assert judgement.verdict is Verdict.FAIL
    assert "prompt 3 must be nearest to prompt 15" in judgement.message


def test_one_embedding_repeated_is_nearest_to_nothing() -> None:
    x, partners = partnered()
    assert vector.nearest_are_known(x=np.tile(x[:1], (COUNT, 1)), partners=partners).verdict is Verdict.FAIL


def test_partners_are_checked_for_count_sense_and_presence() -> None:
    x, partners = partnered()
    assert vector.nearest_are_known(x=x[1:], partners=partners).verdict is Verdict.FAIL
    assert vector.nearest_are_known(x=x, partners=[None] * COUNT).verdict is Verdict.UNDERPOWERED
    assert vector.nearest_are_known(x=x[:2], partners=[1, 0]).verdict is Verdict.UNDERPOWERED
    with pytest.raises(ValueError, match=r"partners\[0\]=0"):
        vector.nearest_are_known(x=x, partners=[0, *partners[1:]])
