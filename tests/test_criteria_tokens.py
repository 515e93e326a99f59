"""Forced logprobs: what the criteria accept and what they must reject."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.criteria import tokens
from conformance.judgement import Judgement
from conformance.verdict import Verdict

COUNT, LENGTH, VOCABULARY, CANDIDATES = 32, 24, 80, 41
NOISE = {"bfloat16": 0.03, "float16": 0.004, "float32": 1e-6}
PROMPT_LENGTHS = [20 + 5 * i for i in range(COUNT)]
FORCED = np.arange(LENGTH)[None, :] < np.array([LENGTH - i % 8 for i in range(COUNT)])[:, None]
Array = np.ndarray[Any, np.dtype[Any]]


def log_softmax(logits: Array) -> Array:
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True)))


def logits(seed: int = 0, count: int = COUNT) -> Array:
    sharpness = np.random.default_rng(seed + 1).uniform(1, 3, size=(count, LENGTH, 1))
    return np.asarray(sharpness * np.random.default_rng(seed).normal(size=(count, LENGTH, VOCABULARY)))


def candidates(seed: int = 0, count: int = COUNT) -> Array:
    """[n, T, m]: a forced token, the reference's top 20, then 20 drawn from a seed."""
    rng = np.random.default_rng(seed + 2)
    top = np.argsort(-logits(seed, count), axis=-1)[..., :20]
    drawn = rng.integers(0, VOCABULARY, size=(count, LENGTH, CANDIDATES - 20))
    return np.concatenate([drawn[..., :1], top, drawn[..., 1:]], axis=-1)


def chosen(values: Array, seed: int = 0) -> Array:
    """Logprobs of the candidates, NaN where nothing is forced, as an engine hands them over."""
    logprobs = np.take_along_axis(log_softmax(values), candidates(seed, len(values)), axis=-1)
    return np.asarray(np.where(FORCED[: len(values), :, None], logprobs, np.nan))


def noisy(values: Array, dtype: str, seed: int, times: float = 1.0) -> Array:
    return np.asarray(values + NOISE[dtype] * times * np.random.default_rng(seed).normal(size=values.shape))


def judge(x: Any, r: Array, e: Array, dtype: str = "bfloat16", **more: Any) -> Judgement:
    count = len(r)
    return tokens.logprobs_agree(
        x=x, r=r, e=e, dtype=dtype, prompt_lengths=PROMPT_LENGTHS[:count], forced=FORCED[:count], **more
    )


def honest(dtype: str = "bfloat16", seed: int = 0) -> tuple[Array, Array, Array]:
    z = logits(seed)
    return chosen(noisy(z, dtype, seed + 5), seed), chosen(z, seed), chosen(noisy(z, dtype, seed + 6), seed)


def figures(judgement: Judgement) -> dict[str, float]:
    return {figure.name: figure.value for figure in judgement.figures}


def broken(judgement: Judgement) -> set[str]:
    return {figure.name for figure in judgement.figures if not figure.holds}


@pytest.mark.parametrize("dtype", list(NOISE))
@settings(max_examples=10, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_an_engine_with_the_yardsticks_error_law_passes(dtype: str, seed: int) -> None:
    x, r, e = honest(dtype, seed)
    judgement = judge(x, r, e, dtype)
    assert judgement.verdict is Verdict.PASS, judgement.message


@settings(max_examples=10, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), dtype=st.sampled_from(["bfloat16", "float16"]))
def test_a_fault_of_three_times_the_noise_fails(seed: int, dtype: str) -> None:
    _, r, e = honest(dtype, seed)
    faulty = noisy(noisy(logits(seed), dtype, seed + 5), dtype, seed + 7, times=3)
    assert judge(chosen(faulty, seed), r, e, dtype).verdict is Verdict.FAIL


@settings(max_examples=10, deadline=None, derandomize=True)
@given(order=st.permutations(range(COUNT)))
def test_the_order_of_prompts_changes_no_figure(order: list[int]) -> None:
    x, r, e = honest()
    lengths = [PROMPT_LENGTHS[i] for i in order]
    shuffled = tokens.logprobs_agree(
        x=x[order], r=r[order], e=e[order], dtype="bfloat16", prompt_lengths=lengths, forced=FORCED[order]
    )
    assert figures(shuffled) == pytest.approx(figures(judge(x, r, e)), rel=1e-9)


def test_every_kind_of_figure_is_judged_on_a_pass() -> None:
    judgement = judge(*honest())
    limited = {figure.name for figure in judgement.figures if figure.limit is not None}
    assert {
        "pooled ratio",
        "worst single prompt's ratio",
        "ratio of the first 16 forced positions",
        "ratio of positions within 2 of multiples of 16",
        "divergence ratio",
        "margin given away, summed, in sigma_gap",
        "greatest margin given away, in sigma_gap",
    } <= limited
    assert set(judgement.rows) == {"x", "r", "e", "prompt_lengths", "forced"}


@pytest.mark.parametrize("dtype", list(NOISE))
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda x: x - 100, id="off by 100 nats"),
        pytest.param(lambda x: x + 100, id="above 0 by 100 nats"),
        pytest.param(lambda x: x[..., ::-1], id="values swapped between tokens"),
        pytest.param(lambda x: np.nan_to_num(np.roll(x, 1, axis=1), nan=-3.0), id="of the neighbouring position"),
        pytest.param(lambda x: np.roll(x, 1, axis=0) * 0 + np.nanmean(x), id="constant"),
        pytest.param(lambda x: np.full_like(x, np.nan), id="all NaN"),
        pytest.param(lambda x: x[:0], id="an empty batch"),
        pytest.param(lambda x: x[:, :1], id="stops after one position"),
        pytest.param(lambda x: x[..., :20], id="other candidates"),
    ],
)
def test_damaged_logprobs_fail(dtype: str, damage: Any) -> None:
    x, r, e = honest(dtype)
    judgement = judge(damage(x), r, e, dtype)
    assert judgement.verdict is Verdict.FAIL


def test_one_nan_where_a_position_counts_fails_and_elsewhere_does_not() -> None:
    x, r, e = honest()
    x[3, 2, 1] = np.nan
    judgement = judge(x, r, e)
    assert judgement.verdict is Verdict.FAIL
    assert "the first at [3, 2, 1]" in judgement.message


def test_a_wrong_hand_over_at_the_first_positions_fails_by_its_bucket() -> None:
    z = logits()
    faulty = noisy(z, "bfloat16", 5)
    faulty[:, :2] = noisy(z, "bfloat16", 8, times=6)[:, :2]
    _, r, e = honest()
    assert "ratio of the first 16 forced positions" in broken(judge(chosen(faulty), r, e))


def test_a_fault_at_block_boundaries_fails_by_its_bucket() -> None:
    z = logits()
    faulty = noisy(z, "bfloat16", 5)
    absolute = np.array(PROMPT_LENGTHS)[:, None] + np.arange(LENGTH)
    at = absolute % 64 == 0
    faulty[at] = noisy(z, "bfloat16", 8, times=8)[at]
    _, r, e = honest()
    assert "ratio of positions within 2 of multiples of 64" in broken(judge(chosen(faulty), r, e))


def test_a_wrong_first_choice_beyond_rounding_fails_by_its_margin() -> None:
    x, r, e = honest()
    best, tenth = x[0, 0, 1], x[0, 0, 10]
    x[0, 0, 1], x[0, 0, 10] = tenth, best
    judgement = judge(x, r, e)
    assert "greatest margin given away, in sigma_gap" in broken(judgement)
    assert "prompt 0, forced position 0" in judgement.message


def test_many_small_wrong_choices_fail_by_their_sum() -> None:
    x, r, e = honest()
    sigma = tokens.sigma_gap(r=r, e=e, forced=FORCED)
    gap = r[..., 1] - r[..., 2]
    near = FORCED & (gap > 3 * sigma) & (gap < 7 * sigma)
    x[near, 1], x[near, 2] = x[near, 2], x[near, 1]
    assert "margin given away, summed, in sigma_gap" in broken(judge(x, r, e))


def test_errors_in_the_likely_tokens_fail_by_their_divergence() -> None:
    x, r, e = honest()
    x[..., 1:3] = r[..., 1:3] + 1.8 * (x[..., 1:3] - r[..., 1:3])
    judgement = judge(x, r, e)
    assert figures(judgement)["pooled ratio"] < 1.25
    assert "divergence ratio" in broken(judgement)


def test_in_float32_logprobs_beyond_the_ieee_relative_error_fail() -> None:
    x, r, e = (chosen(z) for z in (noisy(logits(), "float16", 5), logits(), noisy(logits(), "float16", 6)))
    assert broken(judge(x, r, e, "float32")) == {"relative error"}
    assert judge(x, r, e, "float32", precision="tf32").verdict is Verdict.PASS


def test_fewer_than_32_prompts_are_underpowered() -> None:
    x, r, e = honest()
    assert judge(x[:31], r[:31], e[:31]).verdict is Verdict.UNDERPOWERED


def test_faults_of_the_suites_own_forced_positions_are_errors() -> None:
    x, r, e = honest()
    call: dict[str, Any] = {"x": x, "r": r, "e": e, "dtype": "bfloat16", "prompt_lengths": PROMPT_LENGTHS}
    with pytest.raises(ValueError, match="forced is bool"):
        tokens.logprobs_agree(**call, forced=FORCED[1:])
    with pytest.raises(ValueError, match="forced marks no position"):
        tokens.logprobs_agree(**call, forced=np.zeros_like(FORCED))
    with pytest.raises(ValueError, match="holds NaN"):
        tokens.logprobs_agree(**call, forced=np.ones_like(FORCED))
    with pytest.raises(ValueError, match="2 prompt lengths for 32"):
        tokens.logprobs_agree(**{**call, "prompt_lengths": [1, 2]}, forced=FORCED)


def test_sigma_gap_is_the_yardsticks_error_of_the_first_gap() -> None:
    _, r, e = honest()
    given = tokens.sigma_gap(r=r, e=e, forced=FORCED)
    assert given == pytest.approx(NOISE["bfloat16"] * np.sqrt(2), rel=0.1)
    assert tokens.sigma_gap(r=r, e=e) == given
    filled_r, filled_e = (np.where(np.isnan(values), -2.5, values) for values in (r, e))
    assert tokens.sigma_gap(r=filled_r, e=filled_e) == given
    with pytest.raises(ValueError, match="they must be bool"):
        tokens.sigma_gap(r=r[0], e=e[0])
