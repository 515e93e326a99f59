"""Attention in float64: exact, and as the ideal kernel of a precision class rounds it.

O = P V / sum(P), P = exp(S - max S), S = scale Q K^T, with softcap C where there is one: C tanh(S / C). The ideal
kernels follow FlashAttention (fused: S in float32, P and O rounded to the dtype) and transformers' eager functions
(every intermediate result rounded to the dtype, the softmax in float32).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from conformance.criteria.arrays import Float64, Mask
from conformance.criteria.measures import PRECISIONS
from conformance.criteria.rounding import rounded
from conformance.names import unknown
from conformance.runner import AttentionCall

_CHUNK = 16
"""Products that a matrix unit adds up exactly before it rounds to a 16 bit accumulator."""


def counted(call: AttentionCall) -> Mask:
    """Which queries are no padding: bool [batch, queries]."""
    return _positions(call) >= 0


def visible(call: AttentionCall) -> Mask:
    """Which keys each query sees: bool [batch, queries, keys]; for padding, what its position would see."""
    positions = _positions(call)[:, :, None]
    keys = np.arange(call.key.shape[2])
    seen: Mask = np.broadcast_to(keys < _lengths(call)[:, None, None], (*positions.shape[:2], len(keys))).copy()
    if call.causal:
        seen &= keys <= positions
    if call.window is not None:
        seen &= (keys > positions - call.window) & (keys <= positions)
    return seen


def exact(call: AttentionCall) -> Float64:
    """The output, float64 [batch, heads, queries, size]; zeros for queries that see no key."""
    scores = _products(call.query, call.key, call) * _scale(call)
    return _finish(scores, call, lambda p: p, lambda s: s)


def ideal(call: AttentionCall, dtype: str, precision: str) -> Float64:
    """The output of an ideal kernel of the claimed class, whose sums are exact, rounded to the served dtype.

    ieee: S, P and O rounded to float32, O to the dtype. tf32: as that, factors of products rounded to tf32. fused: S
    in float32, P and O in the dtype. eager: all in the dtype. fp16-acc: as fused, sums in float16. ValueError for
    another class.
    """
    if precision not in PRECISIONS:
        raise ValueError(unknown("precision", precision, PRECISIONS))

    def narrow(values: Float64) -> Float64:
        return rounded(values, dtype)

    def single(values: Float64) -> Float64:
        return rounded(values, "float32")

    if precision == "eager":
        scores = narrow(narrow(_products(call.query, call.key, call)) * _scale(call))
        return narrow(_finish(scores, call, narrow, narrow, normalised=True))
    if precision == "fp16-acc":
        scores = single(_products(call.query, call.key, call, half=True) * _scale(call))
        return narrow(_finish(scores, call, narrow, single, half=True))
    if precision == "tf32":
        query, key = rounded(call.query, "tf32"), rounded(call.key, "tf32")
        scores = single(_products(query, key, call) * _scale(call))
        return narrow(_finish(scores, call, lambda p: rounded(p, "tf32"), single, value=rounded(call.value, "tf32")))
    scores = single(_products(call.query, call.key, call) * _scale(call))
    return narrow(_finish(scores, call, narrow if precision == "fused" else single, single))


def _finish(
    scores: Float64,
    call: AttentionCall,
    round_weights: Callable[[Float64], Float64],
    round_scores: Callable[[Float64], Float64],
    *,
    normalised: bool = False,
    half: bool = False,
    value: NDArray[np.floating] | None = None,
) -> Float64:
    """From scores to outputs; `scores` are [batch, kv_heads, group, queries, keys]."""
    if call.softcap is not None:
        scores = round_scores(call.softcap * round_scores(np.tanh(round_scores(scores / call.softcap))))
    seen = visible(call)[:, None, None]
    scores = np.where(seen, scores, -np.inf)
    peak = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(peak), peak, 0.0))
    total = weights.sum(axis=-1, keepdims=True)
    total = np.where(total == 0, 1.0, total)
    if normalised:
        weights = round_weights(weights / total)
        total = np.ones_like(total)
    else:
        weights = round_weights(weights)
    values = np.asarray(call.value if value is None else value, dtype=np.float64)[:, :, None]
    # What nobody sees may hold anything: its weight is 0, but 0 times infinity is not.
    looked_at: Mask = np.logical_or.reduce(seen, axis=3)
    values = np.where(looked_at[..., None], values, 0.0)
    outputs = (_in_half(weights, values) if half else weights @ values) / total
    batch, heads, queries, size = call.query.shape
    found: Float64 = outputs.reshape(batch, heads, queries, size)
    return found


def _products(
    query: NDArray[np.floating], key: NDArray[np.floating], call: AttentionCall, half: bool = False
) -> Float64:
    """Q K^T for each group of query heads: [batch, kv_heads, group, queries, keys]."""
    batch, heads, queries, size = call.query.shape
    kv_heads = call.key.shape[1]
    q = np.asarray(query, dtype=np.float64).reshape(batch, kv_heads, heads // kv_heads, queries, size)
    k = np.asarray(key, dtype=np.float64)[:, :, None].swapaxes(-1, -2)
    return _in_half(q, k) if half else q @ k


def _in_half(left: Float64, right: Float64) -> Float64:
    """left @ right, the running sum rounded to float16 after every chunk of products."""
    total = np.zeros((*left.shape[:-1], right.shape[-1]))
    for start in range(0, left.shape[-1], _CHUNK):
        chunk = slice(start, start + _CHUNK)
        total = rounded(total + left[..., chunk] @ right[..., chunk, :], "float16")
    return total


def _scale(call: AttentionCall) -> float:
    return float(call.query.shape[-1] ** -0.5) if call.scale is None else call.scale


def _lengths(call: AttentionCall) -> NDArray[np.int64]:
    lengths = [call.key.shape[2]] * len(call.query) if call.lengths is None else call.lengths
    return np.array(lengths, dtype=np.int64)


def _positions(call: AttentionCall) -> NDArray[np.int64]:
    queries = call.query.shape[2]
    found: NDArray[np.int64] = _lengths(call)[:, None] - queries + np.arange(queries)
    return found
