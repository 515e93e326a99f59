"""Exact attention, ideal kernels and rounding by definitions written out here; the criteria on answers made by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.criteria import attention, attention_probes
from conformance.criteria.attention_calls import words
from conformance.criteria.attention_math import counted, exact, ideal, visible
from conformance.criteria.attention_probes import one_hot_values, page_coded
from conformance.criteria.rounding import rounded
from conformance.runner import AttentionCall, AttentionOutputs, Effective
from conformance.verdict import Verdict

RAN = Effective("bfloat16", "plain", {"k": 1}, 1, 1)


def call(batch: int = 1, heads: tuple[int, int] = (4, 2), queries: int = 5, keys: int = 7, **how: Any) -> AttentionCall:
    rng = np.random.default_rng(3)
    shapes = [(batch, heads[0], queries, 4), *[(batch, heads[1], keys, 4)] * 2]
    query, key, value = (rounded(rng.standard_normal(shape), "bfloat16").astype(np.float32) for shape in shapes)
    return AttentionCall(query, key, value, **how)


def by_definition(asked: AttentionCall, b: int, h: int, i: int) -> list[float] | None:
    """One output, from the words of `AttentionCall`; None for padding."""
    _, heads, queries, size = asked.query.shape
    g = h // (heads // asked.key.shape[1])
    length = asked.lengths[b] if asked.lengths else asked.key.shape[2]
    position = length - queries + i
    if position < 0:
        return None
    weights = {}
    for j in range(length):
        behind = j > position and (asked.causal or asked.window is not None)
        if behind or (asked.window is not None and position - j > asked.window - 1):
            continue
        score = sum(float(a) * float(c) for a, c in zip(asked.query[b, h, i], asked.key[b, g, j], strict=True))
        score *= asked.scale if asked.scale is not None else 1 / math.sqrt(size)
        if asked.softcap is not None:
            score = asked.softcap * math.tanh(score / asked.softcap)
        weights[j] = math.exp(score)
    total = sum(weights.values())
    return [sum(w * float(asked.value[b, g, j, d]) for j, w in weights.items()) / total for d in range(size)]


@pytest.mark.parametrize(
    "asked",
    [
        call(),
        call(causal=False),
        call(queries=7, window=3),
        call(causal=False, window=2),
        call(batch=3, queries=4, lengths=(7, 3, 1)),
        call(batch=2, queries=1, lengths=(7, 2), window=2),
        call(heads=(5, 1), softcap=0.5, scale=2.0),
    ],
    ids=words,
)
def test_exact_attention_is_that_of_the_definition(asked: AttentionCall) -> None:
    found = exact(asked)
    for b, h, i in np.ndindex(*asked.query.shape[:3]):
        expected = by_definition(asked, b, h, i)
        assert (expected is not None) == counted(asked)[b, i]
        if expected is not None:
            assert found[b, h, i] == pytest.approx(expected, abs=1e-12)


def test_padding_may_hold_anything() -> None:
    asked = call(batch=2, lengths=(7, 3))
    value = asked.value.copy()
    value[1, :, 3:] = np.nan
    assert np.array_equal(exact(replace(asked, value=value)), exact(asked))


def test_a_query_that_sees_no_key_gets_zeros() -> None:
    asked = call(batch=2, lengths=(7, 1))
    assert not visible(asked)[1, :4].any() and not exact(asked)[1, :, :4].any()


@pytest.mark.parametrize(
    ("dtype", "precision", "low", "high"),
    [
        ("float32", "ieee", 1e-8, 3e-7),
        ("float32", "tf32", 5e-5, 2e-3),
        ("bfloat16", "fused", 5e-4, 6e-3),
        ("bfloat16", "eager", 1e-3, 1.5e-2),
        ("float16", "fused", 5e-5, 6e-4),
        ("float16", "fp16-acc", 5e-5, 2e-3),
        ("bfloat16", "ieee", 4e-4, 4e-3),
    ],
)
def test_an_ideal_kernel_errs_by_the_rounding_of_its_class(dtype: str, precision: str, low: float, high: float) -> None:
    asked = call(queries=64, keys=64)
    r, found = exact(asked), ideal(asked, dtype, precision)
    assert low < np.linalg.norm(found - r) / np.linalg.norm(r) < high
    assert np.array_equal(rounded(found, dtype), found)


def test_classes_order_as_they_round() -> None:
    asked = replace(call(queries=64, keys=64), scale=4.0)

    def error(precision: str) -> float:
        return float(np.linalg.norm(ideal(asked, "bfloat16", precision) - exact(asked)))

    assert error("ieee") < error("fused") < error("eager")


def test_an_unknown_class_or_format_is_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"'fuzed'.*did you mean 'fused'"):
        ideal(call(), "bfloat16", "fuzed")
    with pytest.raises(ValueError, match=r"'bfloat6'.*did you mean 'bfloat16'"):
        rounded([1.0], "bfloat6")


@settings(deadline=None, max_examples=200)
@given(st.floats(width=32, allow_nan=False), st.sampled_from([("bfloat16", 8), ("tf32", 11), ("float16", 11)]))
def test_rounding_is_to_the_nearest_ties_to_even(value: float, format: tuple[str, int]) -> None:
    name, bits = format
    found = float(rounded(value, name))
    smallest, largest = (2.0**-14, 65504.0) if name == "float16" else (2.0**-126, (2 - 2.0 ** (1 - bits)) * 2.0**127)
    if value == 0 or math.isinf(value):
        assert found == value
        return
    step = 2.0 ** (max(math.floor(math.log2(abs(value))), math.log2(smallest)) - bits + 1)
    nearest = round(value / step) * step if math.isfinite(value / step) else value
    assert found == (nearest if abs(nearest) <= largest else math.copysign(math.inf, value))


def test_every_key_shows_once_in_one_hot_values() -> None:
    values, lengths = one_hot_values((10, 3), kv_heads=2, keys=10, size=3)
    assert values.shape == (4, 2, 10, 3) and lengths == (10, 10, 3, 3)
    for rows in (values[:2], values[2:]):
        assert np.array_equal(rows.sum(axis=(0, 1, 3)), np.ones(10))


def test_page_codes_tell_all_keys_apart_and_are_exact_in_bfloat16() -> None:
    codes = page_coded(500, 40)
    assert len(np.unique(codes, axis=0)) == 500 and np.array_equal(rounded(codes, "bfloat16"), codes)


def answered(*values: Any, faults: Any = None) -> AttentionOutputs:
    return AttentionOutputs((), RAN, tuple(values), faults or ((),) * len(values))


def honest(asked: AttentionCall) -> Any:
    return ideal(asked, "bfloat16", "fused").astype(np.float32)


def agrees(x: Any, asked: AttentionCall, dtype: str = "bfloat16", precision: str = "fused") -> Any:
    return attention.agrees([asked], answered(x), dtype=dtype, precision=precision)


def figures(judgement: Any) -> dict[str, float]:
    return {figure.name: figure.value for figure in judgement.figures}


def test_the_ideal_itself_agrees_with_a_ratio_of_one() -> None:
    asked = call(queries=64, keys=64)
    found = agrees(honest(asked), asked)
    assert found.verdict is Verdict.PASS and figures(found)["pooled ratio"] == pytest.approx(1)


def test_a_wrong_row_is_found_and_named_where_the_pooled_ratio_holds() -> None:
    asked = call(queries=500, keys=500)
    x = honest(asked)
    x[0, 2, 77] = x[0, 2, 77] * 1.03
    found = agrees(x, asked)
    assert found.verdict is Verdict.FAIL and figures(found)["pooled ratio"] < 1.25
    assert "worst row's ratio is" in found.message and "row 0, head 2, query 77: batch 1, 4 heads on 2" in found.message


def test_a_gain_within_the_noise_of_each_call_is_found() -> None:
    asked = call(queries=500, keys=500)
    found = agrees(exact(asked) * (1 + 2.0**-9), asked)
    assert found.verdict is Verdict.FAIL and "gain is" in found.message and figures(found)["pooled ratio"] < 1.25


def test_padding_is_not_judged() -> None:
    asked = call(batch=2, queries=7, lengths=(7, 3))
    x = honest(asked)
    x[1, :, :4] = np.nan
    assert agrees(x, asked).verdict is Verdict.PASS
    assert attention.are_finite([asked], answered(x)).verdict is Verdict.PASS


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_never_agrees(value: float) -> None:
    asked = call()
    x = honest(asked)
    x[0, 1, 2, 3] = value
    assert agrees(x, asked).verdict is Verdict.FAIL
    found = attention.are_finite([asked], answered(x))
    assert found.verdict is Verdict.FAIL and "1 numbers are NaN or infinite" in found.message


def test_a_float32_kernel_may_err_by_one_in_a_hundred_thousand_and_no_more() -> None:
    asked = call(queries=64, keys=64)
    r = exact(asked)
    noise = np.random.default_rng(0).standard_normal(r.shape)
    noise *= np.linalg.norm(r) / np.linalg.norm(noise)
    assert agrees(r + 0.9e-5 * noise, asked, "float32", "ieee").verdict is Verdict.PASS
    assert agrees(r + 1.1e-5 * noise, asked, "float32", "ieee").verdict is Verdict.FAIL
    assert agrees(ideal(asked, "float32", "tf32"), asked, "float32", "ieee").verdict is Verdict.FAIL
    assert agrees(ideal(asked, "float32", "tf32"), asked, "float32", "tf32").verdict is Verdict.PASS


def test_a_kernel_that_rounds_scores_is_no_fused_one() -> None:
    asked = replace(call(queries=64, keys=64), scale=4.0)
    x = ideal(asked, "bfloat16", "eager")
    assert agrees(x, asked).verdict is Verdict.FAIL and agrees(x, asked, precision="eager").verdict is Verdict.PASS


def test_too_few_answers_and_other_shapes_are_refused_before_any_number() -> None:
    asked = call()
    x = honest(asked)
    for judge in (attention.are_answered, attention.are_finite, attention_probes.sees_its_keys):
        assert "0 answers and 0 accounts of them, but 1 calls were made" in judge([asked], answered()).message
        assert "shape is [4, 5, 4]" in judge([asked], answered(x[0])).message
        found = judge([asked], answered(x, faults=(("wrote into its key",),)))
        assert found.verdict is Verdict.FAIL and "wrote into its key (batch 1, 4 heads on 2" in found.message


def test_ones_may_be_an_ulp_off_in_16_bit_and_32_in_float32() -> None:
    asked = replace(call(), value=np.ones((1, 2, 7, 4), np.float32))

    def verdict(off: float, dtype: str) -> Verdict:
        x = np.ones(asked.query.shape) + off
        return attention_probes.ones_give_one([asked], answered(x), dtype=dtype, precision="ieee").verdict

    assert [verdict(off * 2.0**-7, "bfloat16") for off in (-0.5, 1, 1.5)] == ["PASS", "PASS", "FAIL"]
    assert [verdict(off * 2.0**-23, "float32") for off in (-32, 32, 40)] == ["PASS", "PASS", "FAIL"]
