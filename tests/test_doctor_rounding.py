"""The bounds of rounding: no honest computation breaks them, and faults do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stand_in_torch import rounded

from conformance.doctor.arithmetic import exact_inputs
from conformance.doctor.rounding import (
    SMALLEST,
    UNIT,
    attention_bound,
    attention_right,
    gamma,
    product_bound,
    rounding,
)

DTYPES = ("float32", "bfloat16", "float16")


def inputs(seed: int, dtype: str, *shapes: tuple[int, ...], scale: float = 1.0) -> list[Any]:
    random = np.random.default_rng(seed)
    return [rounded(scale * exact_inputs(random, shape, dtype), dtype).astype(np.float64) for shape in shapes]


def test_a_units_roundoff_is_half_the_distance_from_1_to_the_next_number() -> None:
    for dtype in DTYPES:
        after = rounded(np.float32(1 + 2.1 * UNIT[dtype]), dtype)
        assert after == 1 + 2 * UNIT[dtype] and rounded(np.float32(1 + 0.9 * UNIT[dtype]), dtype) == 1
    assert np.finfo(np.float32).smallest_subnormal == SMALLEST["float32"]
    assert np.finfo(np.float16).smallest_subnormal == SMALLEST["float16"]


def test_gamma_is_no_bound_where_every_digit_may_be_lost() -> None:
    assert gamma(10, 2.0**-24) == pytest.approx(10 * 2.0**-24, rel=1e-5)
    assert gamma(2**8, 2.0**-8) == float("inf")


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**31), dtype=st.sampled_from(DTYPES), count=st.integers(1, 300), backwards=st.booleans())
def test_no_order_of_a_sum_in_32_bits_breaks_the_bound(seed: int, dtype: str, count: int, backwards: bool) -> None:
    a, b = inputs(seed, dtype, (3, count), (count, 2))
    products = (a[:, :, None] * b[None, :, :]).astype(np.float32)
    if backwards:
        products = products[:, ::-1]
    total = np.zeros((3, 2), np.float32)
    for index in range(count):
        total += products[:, index]
    error = np.abs(rounded(total, dtype) - a @ b)
    assert (error <= product_bound(a, b, rounding(dtype, ["ieee"]))).all()


@pytest.mark.parametrize("inner", [64, 256])
def test_tf32_breaks_the_bound_of_ieee_and_not_its_own(inner: int) -> None:
    a, b = inputs(1, "float32", (64, inner), (inner, 64))
    error = np.abs(rounded(a, "tf32").astype(np.float64) @ rounded(b, "tf32") - a @ b)
    assert (error / product_bound(a, b, rounding("float32", ["ieee"]))).max() > 4
    assert (error <= product_bound(a, b, rounding("float32", ["tf32"]))).all()
    assert (error / product_bound(a, b, rounding("float32", ["tf32", "ieee"]))).max() > 4, "the strictest claim counts"


def test_sums_in_16_bits_break_the_bound_unless_they_are_claimed() -> None:
    a, b = inputs(1, "float16", (8, 256), (256, 8))
    total = np.zeros((8, 8), np.float32)
    for index in range(256):
        total = rounded(total + rounded(a[:, index, None] * b[None, index], "float16"), "float16")
    error = np.abs(total - a @ b)
    assert (error / product_bound(a, b, rounding("float16", ["fused"]))).max() > 2
    assert (error <= product_bound(a, b, rounding("float16", ["fp16-acc"]))).all()


def attend(q: Any, k: Any, v: Any, seen: Any, dtype: str, *, scale: float = 1.0, fused: bool = False) -> Any:
    """An attention as honest kernels compute it: every step stored in the dtype, or only probabilities and output."""
    q, k, v = (each.astype(np.float32) for each in (q, k, v))
    stored = "float32" if fused else dtype
    root = np.float32(np.sqrt(scale) * q.shape[-1] ** -0.25)  # both factors scaled, as torch's math kernel does
    scores = rounded(rounded(q * root, stored) @ rounded(k * root, stored).swapaxes(-1, -2), stored)
    scores = np.where(seen, scores, np.float32(-np.inf))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    if fused:  # normalised last
        return rounded(rounded(weights, dtype) @ v / weights.sum(-1, keepdims=True), dtype)
    return rounded(rounded(weights / weights.sum(-1, keepdims=True), dtype) @ v, dtype)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**31),
    dtype=st.sampled_from(DTYPES),
    size=st.sampled_from([8, 64, 128]),
    fused=st.booleans(),
    scale=st.sampled_from([0.1, 1.0, 3.0]),
)
def test_no_honest_attention_breaks_the_bound(seed: int, dtype: str, size: int, fused: bool, scale: float) -> None:
    q, k, v = inputs(seed, dtype, (2, 33, size), (2, 33, size), (2, 33, size), scale=scale)
    seen = np.tri(33, dtype=bool)
    right = attention_right(q, k, v, seen)[2]
    bound = attention_bound(q, k, v, seen, rounding(dtype, ["fused"]))
    assert (np.abs(attend(q, k, v, seen, dtype, fused=fused) - right) <= bound).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_under_the_wrong_mask_breaks_the_bound_in_every_dtype(dtype: str) -> None:
    q, k, v = inputs(1, dtype, (1, 100, 64), (1, 100, 64), (1, 100, 64))
    causal = np.tri(100, dtype=bool)
    right = attention_right(q, k, v, causal)[2]
    bound = attention_bound(q, k, v, causal, rounding(dtype, ["fused"]))
    without_first = causal & ((np.arange(100) > 0) | (np.arange(100) == 0)[:, None])
    for wrong in (np.ones_like(causal), np.tri(100, k=1, dtype=bool), without_first):
        assert (np.abs(attend(q, k, v, wrong, dtype) - right) / bound).max() > 2


@pytest.mark.parametrize("fault", ["scale", "tf32"])
def test_float32_attention_with_a_scale_1_percent_off_or_tf32_breaks_the_bound(fault: str) -> None:
    q, k, v = inputs(1, "float32", (1, 100, 64), (1, 100, 64), (1, 100, 64))
    seen = np.ones((100, 100), dtype=bool)
    right = attention_right(q, k, v, seen)[2]
    bound = attention_bound(q, k, v, seen, rounding("float32", ["ieee"]))
    if fault == "scale":
        wrong = attend(q, k, v, seen, "float32", scale=1.01)
    else:
        wrong = attend(*(rounded(each, "tf32").astype(np.float64) for each in (q, k, v)), seen, "float32")
    assert (np.abs(wrong - right) / bound).max() > 2
