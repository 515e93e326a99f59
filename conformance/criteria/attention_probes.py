"""Probes of attention kernels whose answers are known to the last bit, so that no tolerance hides a wrong key.

Where all scores are equal and the values one-hot, what is not zero was seen. Values of one give one and values of a
head's number show which head was read, each within the rounding of the weights that are added up; where each query
points at one key, which then has all the weight, that key's pages come out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conformance.criteria.arrays import Float64
from conformance.criteria.attention_calls import gate, grouped, kept, real, words
from conformance.criteria.attention_math import visible
from conformance.criteria.finding import Decides, Measure, conclude
from conformance.criteria.limits import Limit, limits
from conformance.criteria.ratio import eps
from conformance.judgement import Figure, Judgement
from conformance.runner import AttentionCall, AttentionOutputs

PAGES = (16, 64, 128)
"""Page sizes whose numbers the page-coded values show."""


def one_hot_values(lengths: Sequence[int], kv_heads: int, keys: int, size: int) -> tuple[Float64, tuple[int, ...]]:
    """Values by which every key shows: float64 [rows, kv_heads, keys, size], and each row's length.

    A row and head show `size` keys, so each length is repeated until all keys are shown; see `shown`.
    """
    blocks = -(-keys // (kv_heads * size))
    values = np.zeros((len(lengths), blocks, kv_heads, keys, size))
    for block in range(blocks):
        for head in range(kv_heads):
            start = (block * kv_heads + head) * size
            here = np.arange(start, min(start + size, keys))
            values[:, block, head, here, here - start] = 1.0
    return values.reshape(-1, kv_heads, keys, size), tuple(n for n in lengths for _ in range(blocks))


def sees_its_keys(calls: Sequence[AttentionCall], outputs: AttentionOutputs) -> Judgement:
    """Each query sees exactly the keys that its position, window and row let it see, by `one_hot_values`."""
    name = "attention_probes.sees_its_keys"
    if refused := gate(name, calls, outputs):
        return refused
    faults: list[str] = []
    rows: dict[str, NDArray[Any]] = {}
    wrong = pairs = 0
    for call, (x,) in zip(calls, grouped(outputs, 1), strict=True):
        expected = np.repeat(_shown(call), call.query.shape[1] // call.key.shape[1], axis=1)
        inside = real(call)
        differs = ((x != 0) != expected) & inside
        pairs += int(inside.sum())
        if differs.any():
            wrong += int(differs.sum())
            faults.append(f"{_first_key(call, x, expected, differs)} ({words(call)})")
            rows = rows or kept(call, x, expected.astype(np.float32))
    measures = [
        Measure(Figure("keys wrongly seen or not seen", wrong, 0.0, "max", "exact: nonzero is seen"), Decides.EXACT),
        Measure(Figure("query and key pairs looked at", pairs, 1.0, "min", "none made, none checked"), Decides.POWER),
    ]
    return conclude(name, f"the keys that queries see, in {len(calls)} calls", measures, rows=rows, faults=faults)


def ones_give_one(
    calls: Sequence[AttentionCall], outputs: AttentionOutputs, *, dtype: str, precision: str
) -> Judgement:
    """Where every key that is seen has the value one, so has every output."""
    return _values_are(
        "attention_probes.ones_give_one",
        "outputs for values of one",
        calls,
        outputs,
        lambda call: np.ones(call.query.shape),
        dtype,
        _allowed(dtype, precision),
    )


def heads_are_mapped(
    calls: Sequence[AttentionCall], outputs: AttentionOutputs, *, dtype: str, precision: str
) -> Judgement:
    """Where the values are a key head's number, from 1, query head h gives that of key head h // group."""

    def expected(call: AttentionCall) -> Float64:
        batch, heads, queries, size = call.query.shape
        own = np.arange(heads) // (heads // call.key.shape[1]) + 1.0
        return np.broadcast_to(own[None, :, None, None], (batch, heads, queries, size))

    return _values_are(
        "attention_probes.heads_are_mapped",
        "the key head that each query head reads",
        calls,
        outputs,
        expected,
        dtype,
        _allowed(dtype, precision),
    )


def page_coded(keys: int, size: int) -> Float64:
    """Values that say where a key lies: [keys, size]; for each of `PAGES` its page, and its place therein, from 1."""
    key = np.arange(keys)
    codes = [code for page in PAGES for code in (key // page + 1, key % page + 1)]
    return np.stack([codes[channel % len(codes)] for channel in range(size)], axis=1).astype(np.float64)


def reads_what_it_points_at(
    calls: Sequence[AttentionCall], outputs: AttentionOutputs, targets: Sequence[NDArray[Any]], *, dtype: str
) -> Judgement:
    """Where query i points at one key, `targets[call][batch, head, i]`, its `page_coded` value comes out."""
    expected = {
        id(call): page_coded(call.key.shape[2], call.key.shape[3])[chosen]
        for call, chosen in zip(calls, targets, strict=True)
    }
    return _values_are(
        "attention_probes.reads_what_it_points_at",
        "the pages of the keys that queries point at",
        calls,
        outputs,
        lambda call: expected[id(call)],
        dtype,
        limits().attention.chosen_eps,
    )


def masked_rows_are_zero(calls: Sequence[AttentionCall], outputs: AttentionOutputs) -> Judgement:
    """Queries that see no key give zeros, where the profile claims it."""
    name = "attention_probes.masked_rows_are_zero"
    if refused := gate(name, calls, outputs):
        return refused
    faults: list[str] = []
    rows: dict[str, NDArray[Any]] = {}
    checked = 0
    for call, (x,) in zip(calls, grouped(outputs, 1), strict=True):
        blind = ~visible(call).any(axis=2)
        checked += int(blind.sum())
        found = x * np.where(blind, 1.0, 0.0)[:, None, :, None]
        wrong = (found != 0) | np.isnan(found)
        if wrong.any():
            b, h, q, _ = (int(i) for i in np.argwhere(wrong)[0])
            faults.append(f"query {q} of row {b} sees no key, but head {h} gives {x[b, h, q, :3]} ({words(call)})")
            rows = rows or kept(call, x)
    measures = [
        Measure(Figure("calls with other numbers for queries that see no key", len(faults), 0.0), Decides.EXACT),
        Measure(Figure("queries that see no key", checked, 1.0, "min", "none asked, none checked"), Decides.POWER),
    ]
    return conclude(name, f"queries that see no key, in {len(calls)} calls", measures, rows=rows, faults=faults)


def denormals_stay(calls: Sequence[AttentionCall], outputs: AttentionOutputs, *, dtype: str) -> Judgement:
    """Where all values are one denormal number and 2^n keys are seen alike, that number comes out."""
    return _values_are(
        "attention_probes.denormals_stay",
        "outputs for denormal values",
        calls,
        outputs,
        lambda call: np.broadcast_to(np.asarray(call.value, dtype=np.float64)[:, :1, :1], call.query.shape),
        dtype,
        limits().attention.chosen_eps,
    )


def _values_are(
    name: str,
    compared: str,
    calls: Sequence[AttentionCall],
    outputs: AttentionOutputs,
    expected: Callable[[AttentionCall], Float64],
    dtype: str,
    limit: Limit,
) -> Judgement:
    if refused := gate(name, calls, outputs):
        return refused
    worst, where = 0.0, ""
    rows: dict[str, NDArray[Any]] = {}
    for call, (x,) in zip(calls, grouped(outputs, 1), strict=True):
        r = expected(call)
        with np.errstate(invalid="ignore", over="ignore"):
            off = np.where(real(call), np.abs(x - r) / (eps(dtype) * np.abs(r)), 0.0)
        off = np.where(np.isnan(off), np.inf, off)
        if off.max(initial=0.0) > worst:
            worst = float(off.max())
            b, h, q, d = (int(i) for i in np.unravel_index(int(off.argmax()), off.shape))
            where = f"row {b}, head {h}, query {q} gives {x[b, h, q, d]:.6g} for {r[b, h, q, d]:.6g}: {words(call)}"
            rows = kept(call, x, r)
    measures = [
        Measure(Figure("greatest error in eps", worst, limit.value, "max", limit.provenance), Decides.EXACT, where),
        Measure(Figure("calls", len(calls), 1.0, "min", "none made, none checked"), Decides.POWER),
    ]
    return conclude(name, f"{compared}, in {len(calls)} calls, {dtype}", measures, rows=rows)


def _allowed(dtype: str, precision: str) -> Limit:
    limit = limits().attention
    if precision == "fp16-acc":
        return limit.sum_eps_fp16_acc
    if dtype == "float32":
        return limit.sum_eps_tf32 if precision == "tf32" else limit.sum_eps_float32
    return limit.sum_eps_16bit


def _shown(call: AttentionCall) -> NDArray[np.bool_]:
    """What must not be zero: bool [rows, kv_heads, queries, size], from the keys that rows and heads show."""
    seen = visible(call)
    hot = np.asarray(call.value) != 0
    found: NDArray[np.bool_] = np.einsum("bqk,bgkd->bgqd", seen.astype(np.float32), hot.astype(np.float32)) > 0
    return found


def _first_key(call: AttentionCall, x: Float64, expected: NDArray[np.bool_], differs: NDArray[np.bool_]) -> str:
    b, h, q, _ = (int(i) for i in np.argwhere(differs)[0])
    group = call.query.shape[1] // call.key.shape[1]
    key_of = np.asarray(call.value)[b, h // group].argmax(axis=0)
    extra = key_of[(x[b, h, q] != 0) & differs[b, h, q]]
    missing = key_of[(x[b, h, q] == 0) & differs[b, h, q]]
    allowed = np.nonzero(visible(call)[b, q])[0]
    may = f"keys {allowed[0]} to {allowed[-1]}" if len(allowed) else "no key"
    said = [f"sees {_some(extra)}, which it must not"] * bool(len(extra)) + [f"does not see {_some(missing)}"] * bool(
        len(missing)
    )
    return f"row {b}, head {h}, query {q} must see {may}, but {' and '.join(said)}"


def _some(keys: NDArray[Any]) -> str:
    named = ", ".join(str(int(key)) for key in sorted(keys)[:4])
    return f"key{'s' if len(keys) > 1 else ''} {named}" + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")
