"""Outputs of attention kernels against exact attention, allowed the error of an ideal kernel of the claimed class.

R = ||x - r|| / ||i - r||: x the kernel, r exact in float64, i as the ideal kernel rounds (`attention_math.ideal`), both
computed for each call where it is judged. A call's R finds what is wrong everywhere, that of a tile (a head's 64
queries) and of a row (one query of one head) what is wrong in one place, the gain what the errors have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conformance.criteria.arrays import Float64, Mask
from conformance.criteria.attention_calls import are_answered, are_finite, gate, grouped, kept, words
from conformance.criteria.attention_math import counted, exact, ideal
from conformance.criteria.finding import Decides, Measure, conclude
from conformance.criteria.limits import Limit, limits
from conformance.criteria.ratio import eps, pick
from conformance.judgement import Figure, Judgement
from conformance.runner import AttentionCall, AttentionOutputs

__all__ = ["agrees", "are_answered", "are_finite", "repeats_are_equal"]

TILE = 64
"""Queries that a kernel's block usually has, and rows of a tile here."""


@dataclass(frozen=True)
class _Worst:
    """A figure's worst value relative to its limit, and where it was found."""

    value: float = 0.0
    limit: float = 1.0
    where: str = ""

    def or_worse(self, value: float, limit: float, where: str) -> _Worst:
        return _Worst(value, limit, where) if value / limit > self.value / self.limit or not self.where else self


def agrees(
    calls: Sequence[AttentionCall], outputs: AttentionOutputs, *, dtype: str, precision: str, repeats: int = 1
) -> Judgement:
    """Each answer is exact attention within the rounding of the claimed class: pooled, by tile, by row, in its gain.

    With `repeats`, every answer to each call. ValueError for an unknown dtype or precision.
    """
    name = "attention.agrees"
    limit = limits().attention
    if refused := gate(name, calls, outputs, repeats):
        return refused
    call_limit = pick(dtype, limit.pooled_16bit, limit.pooled_float32)
    tile_limit = pick(dtype, limit.tile_16bit, limit.tile_float32)
    row_limit = pick(dtype, limit.row_16bit, limit.row_float32)
    if precision == "tf32":
        call_limit, tile_limit, row_limit = limit.pooled_tf32, limit.local_tf32, limit.local_tf32
    pooled, tile, row, gain = _Worst(), _Worst(), _Worst(), _Worst()
    squares: list[float] = []
    greatest = 0.0
    rows: dict[str, NDArray[Any]] = {}
    for call, answers in zip(calls, grouped(outputs, repeats), strict=True):
        r, i = exact(call), ideal(call, dtype, precision)
        said = words(call)
        for x in answers:
            found = _Errors.of(call, x, r, i, dtype, precision)
            squares.append(found.pooled**2)
            pooled = pooled.or_worse(found.pooled, call_limit.value, said)
            tile = tile.or_worse(found.tile, tile_limit.value, f"{found.tile_at}: {said}")
            row = row.or_worse(found.row, row_limit.value, f"{found.row_at}: {said}")
            gain = gain.or_worse(found.gain, found.gain_limit, said)
            shares = (
                found.pooled / call_limit.value,
                found.tile / tile_limit.value,
                found.row / row_limit.value,
                found.gain / found.gain_limit,
            )
            if max(shares) >= greatest:
                greatest, rows = max(shares), kept(call, x, r, i)
    of_all = float(np.sqrt(np.mean(squares))) if squares else 0.0
    measures = [
        _measure("pooled ratio", _Worst(of_all, call_limit.value), call_limit),
        _measure("worst call's ratio", pooled, call_limit),
        _measure("worst tile's ratio", tile, tile_limit),
        _measure("worst row's ratio", row, row_limit),
        Measure(Figure("gain", gain.value, gain.limit, "max", limit.gain_sigma.provenance), Decides.EXACT, gain.where),
        Measure(Figure("calls", len(calls), 1.0, "min", "none made, none checked"), Decides.POWER),
    ]
    return conclude(name, f"outputs of {len(calls)} calls, {dtype} claimed {precision}", measures, rows=rows)


def _measure(name: str, worst: _Worst, limit: Limit) -> Measure:
    return Measure(Figure(name, worst.value, limit.value, "max", limit.provenance, limit.name), where=worst.where)


def repeats_are_equal(calls: Sequence[AttentionCall], outputs: AttentionOutputs, *, repeats: int) -> Judgement:
    """All answers to one call are equal to the last bit, but for padding: a claim of the profile."""
    name = "attention.repeats_are_equal"
    if refused := gate(name, calls, outputs, repeats):
        return refused
    faults: list[str] = []
    rows: dict[str, NDArray[Any]] = {}
    for call, answers in zip(calls, grouped(outputs, repeats), strict=True):
        inside = counted(call)[:, None, :, None]
        first = np.where(inside, answers[0], 0.0)
        other = [i for i, x in enumerate(answers) if not np.array_equal(np.where(inside, x, 0.0), first)]
        if other:
            faults.append(f"{len(other)} of {repeats} answers differ from the first ({words(call)})")
            rows = rows or kept(call, answers[other[0]], answers[0])
    measures = [
        Measure(Figure("calls whose repeats differ", len(faults), 0.0), Decides.EXACT),
        Measure(Figure("repeats", repeats if calls else 0, 2.0, "min", "one answer equals itself"), Decides.POWER),
    ]
    return conclude(name, f"{repeats} answers to each of {len(calls)} calls", measures, rows=rows, faults=faults)


@dataclass(frozen=True)
class _Errors:
    """The ratios of one answer, pooled and worst, where the worst are, and the gain beside its limit."""

    pooled: float
    tile: float
    tile_at: str
    row: float
    row_at: str
    gain: float
    gain_limit: float

    @classmethod
    def of(cls, call: AttentionCall, x: Float64, r: Float64, i: Float64, dtype: str, precision: str) -> _Errors:
        inside = counted(call)[:, None, :]
        x, i = (np.where(inside[..., None], each, r) for each in (x, i))  # padding's outputs mean nothing
        with np.errstate(over="ignore", invalid="ignore"):
            engine, ideal_error = _squares(x - r), _squares(i - r)
            size = _squares(r) * inside
        least = _least_allowed(dtype) ** 2
        honest = np.maximum(ideal_error, least * size)
        # A row or tile whose ideal error is small by luck is held against the call's middling one.
        middling = float(np.median(honest[np.broadcast_to(inside, honest.shape)]))
        row, row_index = _greatest(engine, np.maximum(honest, middling))
        rows = _tiles(inside.astype(np.float64))
        tile, tile_index = _greatest(_tiles(engine), np.maximum(_tiles(honest), middling * rows))
        gain, gain_limit = _gain(x, r, i, inside, _gain_floor(dtype, precision))
        b, h, q = row_index
        return cls(
            pooled=_root_of_quotient(float(engine.sum()), max(float(ideal_error.sum()), least * float(size.sum()))),
            tile=tile,
            tile_at=f"row {tile_index[0]}, head {tile_index[1]}, queries from {tile_index[2] * TILE}",
            row=row,
            row_at=f"row {b}, head {h}, query {q}",
            gain=gain,
            gain_limit=gain_limit,
        )


def _gain(x: Float64, r: Float64, i: Float64, inside: Mask, floor: float) -> tuple[float, float]:
    """|<x - r, r>| / <r, r>, and its limit: 4 standard errors over rows, the ideal's own gain, and a floor."""
    squares = _squares(r) * inside
    size = float(squares.sum())
    if size == 0:
        return 0.0, 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        dots = np.einsum("bhqd,bhqd->bhq", x - r, r)
        gain = float(dots.sum()) / size
        spread = float(np.sqrt(np.square(dots - gain * squares).sum())) / size
    own = float(np.einsum("bhqd,bhqd->bhq", i - r, r).sum()) / size
    return abs(gain), limits().attention.gain_sigma.value * spread + abs(own) + floor


def _gain_floor(dtype: str, precision: str) -> float:
    limit = limits().attention
    if precision == "tf32":
        return limit.gain_floor_eps_tf32.value * eps(dtype)
    return pick(dtype, limit.gain_floor_eps_16bit, limit.gain_floor_eps_float32).value * eps(dtype)


def _squares(values: Float64) -> Float64:
    found: Float64 = np.square(values).sum(axis=-1)
    return found


def _tiles(squares: Float64) -> Float64:
    """Sums over tiles of queries: [batch, heads, tiles]."""
    queries = squares.shape[2]
    found: Float64 = np.add.reduceat(squares, np.arange(0, queries, TILE), axis=2)
    return found


def _least_allowed(dtype: str) -> float:
    """The relative error that is always allowed: a luckier ideal is held at that.

    In 16 bit 0.2 eps, as in every ratio; in float32 so much that the limit is reached at 1e-5.
    """
    limit = limits()
    if dtype != "float32":
        return limit.ratio.floor_eps.value * eps(dtype)
    return limit.ratio.allowed_relative_error_float32.value / limit.attention.pooled_float32.value


def _greatest(engine: Float64, allowed: Float64) -> tuple[float, tuple[int, ...]]:
    ratios = np.where(engine > 0, engine / np.where(allowed > 0, allowed, np.finfo(np.float64).tiny), 0.0)
    ratios = np.where(np.isnan(ratios), np.inf, ratios)
    index = np.unravel_index(int(ratios.argmax()), ratios.shape)
    return float(np.sqrt(ratios[index])), tuple(int(each) for each in index)


def _root_of_quotient(error: float, allowed: float) -> float:
    if np.isnan(error):
        return float("inf")
    if allowed > 0:
        return float(np.sqrt(error / allowed))
    return 0.0 if error == 0 else float("inf")
