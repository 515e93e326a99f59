"""Attention kernels in numpy: one that computes as fused kernels do, and copies of it with one thing wrong each.

Written apart from the criteria's own exact attention, key by key in blocks, as kernels are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.criteria.rounding import rounded
from conformance.runner import RAISED, AttentionCall, AttentionOutputs, Effective, LoadRequest, Runner

BLOCK = 64
KERNEL = "numpy::attention"


@dataclass(frozen=True)
class Flash:
    """Online softmax over blocks of keys: S in float32, P and O rounded to the dtype. Fields make it wrong."""

    later: int = 0  # so many keys behind its own position are seen
    wider: int = 0  # so many keys before its window are seen
    tail: bool = False  # keys of padding up to the end of the last block count, with score 0 and value 0
    padding: bool = False  # padding of ragged rows is seen
    scale: float = 1.0  # times the right one
    capped: bool = True
    tiled: bool = False  # query head h reads key head h % kv_heads
    narrow_sum: bool = False  # the accumulator is rounded to the dtype after every block of 16
    narrow_weights: bool = False  # P in 4 bits of mantissa, as float8 has
    blind: bool = False  # the last query misses its own key
    stale: int | None = None  # this key has the value of the one before
    page: int | None = None  # the last page of so many keys is read from the first
    gain: float = 1.0

    def __call__(self, call: AttentionCall, dtype: str) -> Any:
        batch, heads, queries, size = call.query.shape
        kv_heads, keys = call.key.shape[1:3]
        own = np.arange(heads) % kv_heads if self.tiled else np.arange(heads) // (heads // kv_heads)
        key, value = call.key[:, own].astype(np.float32), call.value[:, own].astype(np.float32)
        if self.stale is not None and keys > self.stale > 0:
            value = value.copy()
            value[:, :, self.stale] = value[:, :, self.stale - 1]
        if self.page is not None and keys > self.page:
            last = (keys - 1) // self.page * self.page
            key, value = key.copy(), value.copy()
            key[:, :, last:], value[:, :, last:] = key[:, :, : keys - last], value[:, :, : keys - last]
        scale = np.float32((call.scale or size**-0.5) * self.scale)
        lengths = np.array(call.lengths or [keys] * batch)
        place = lengths[:, None] - queries + np.arange(queries)
        end = -(-keys // BLOCK) * BLOCK if self.tail else keys
        peak = np.full((batch, heads, queries, 1), -np.inf, np.float32)
        total = np.zeros_like(peak)
        output = np.zeros((batch, heads, queries, size), np.float32)
        for start in range(0, end, 16 if self.narrow_sum else BLOCK):
            at = np.arange(start, min(start + (16 if self.narrow_sum else BLOCK), end))
            real = at[at < keys]
            score = np.zeros((batch, heads, queries, len(at)), np.float32)
            score[..., : len(real)] = (call.query.astype(np.float32) @ key[:, :, real].swapaxes(2, 3)) * scale
            if call.softcap and self.capped:
                score = np.float32(call.softcap) * np.tanh(score / np.float32(call.softcap))
            seen = np.broadcast_to(
                (at < (keys if self.padding else lengths[:, None])) | ((at >= keys) & self.tail), (batch, len(at))
            )[:, None]
            seen = np.broadcast_to(seen, (batch, queries, len(at))).copy()
            if call.causal or call.window:
                seen &= (at <= place[..., None] + self.later) | (at >= keys)
            if call.window:
                seen &= (at > place[..., None] - call.window - self.wider) | (at >= keys)
            if self.blind:
                seen[:, -1] &= at != place[:, -1:]
            score = np.where(seen[:, None], score, -np.inf)
            block = np.zeros((batch, heads, len(at), size), np.float32)
            block[:, :, : len(real)] = value[:, :, real]
            higher = np.maximum(peak, score.max(axis=3, keepdims=True, initial=-np.inf))
            shift = np.where(np.isfinite(higher), higher, 0)
            weights = np.exp(score - shift)
            before = np.exp(np.where(np.isfinite(peak), peak - shift, -np.inf))
            narrow = _eighth(weights) if self.narrow_weights else rounded(weights, dtype)
            output = output * before + narrow.astype(np.float32) @ block
            if self.narrow_sum:
                output = rounded(output, dtype).astype(np.float32)
            total = total * before + weights.sum(axis=3, keepdims=True)
            peak = higher
        answer = self.gain * output / np.where(total > 0, total, 1)
        return rounded(answer, dtype).astype(np.float32)


def _eighth(weights: Any) -> Any:
    mantissa, exponent = np.frexp(weights)
    return np.ldexp(np.round(mantissa * 16) / 16, exponent)


def changed(change: Callable[[Any, AttentionCall], Any]) -> Callable[[AttentionCall, str], Any]:
    """The right kernel, its answer changed by `change(answer, call)`; what that says instead of an array is a fault."""
    return lambda call, dtype: change(Flash()(call, dtype), call)


@dataclass
class KernelInNumpy(Runner):
    """Answers attention calls with a kernel in numpy; a text in place of an array is a sentence about the answer."""

    kernel: Callable[[AttentionCall, str], Any]
    dtype: str = "bfloat16"

    capabilities = frozenset({"attention"})

    def __post_init__(self) -> None:
        self.request = LoadRequest("toy", "", "attention", "cpu", "plain", self.dtype)

    def __enter__(self) -> KernelInNumpy:
        return self

    def __exit__(self, *_: object) -> None: ...

    def attention(self, calls: Sequence[AttentionCall], *, repeats: int = 1, poison: bool = False) -> AttentionOutputs:
        answers = [self.kernel(call, self.dtype) for call in calls for _ in range(repeats)]
        values = tuple(np.zeros(0, np.float32) if isinstance(each, str) else each for each in answers)
        faults = tuple((each,) if isinstance(each, str) else () for each in answers)
        made = sum(not (isinstance(each, str) and each.startswith(RAISED)) for each in answers)
        ran = Effective(self.dtype, "plain", {KERNEL: made} if made else {}, layers=1, forwards=made)
        return AttentionOutputs((), ran, values, faults)


def with_nan_in_a_tile(answer: Any, call: AttentionCall) -> Any:
    """The last tile was not written, and memory held NaN."""
    answer = answer.copy()
    answer[:, -1, -min(64, answer.shape[2]) :] = np.nan
    return answer
