"""Outputs of attention kernels against exact attention, allowed the error of an ideal kernel of the claimed class.

R = ||x - r|| / ||i - r||: x the kernel, r exact in float64, i as the ideal kernel rounds (`attention_math.ideal`), both
computed for each call where it is judged. A call's R finds what is wrong everywhere, that of a tile (a head's 64
queries) and of a row (one query of one head) what is wrong in one place, the gain what the errors have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from conformance.criteria.arrays import Float64
from conformance.criteria.attention_calls import are_answered, are_finite, gate, grouped, kept, words
from conformance.criteria.attention_math import counted, exact, ideal
from conformance.criteria.finding import Decides, Measure, conclude
from conformance.criteria.limits import limits
from conformance.criteria.ratio import EPS, eps, pick
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
    pooled, tile, row, gain = _Worst(), _Worst(), _Worst(), _Worst()
    squares: list[float] = []
    worst_of_all, rows = 0.0, {}
    for call, answers in zip(calls, grouped(outputs, repeats), strict=True):
        if not counted(call).any():
            continue
        r, i = exact(call), ideal(call, dtype, precision)
        said = words(call)
        for x in answers:
            found = _Errors.of(call, x, r, i, dtype)
            ratios = found.pooled, found.tile, found.row
            squares.append(found.pooled**2)
            pooled = pooled.or_worse(found.pooled, call_limit.value, said)
            tile = tile.or_worse(found.tile, tile_limit.value, f"{found.tile_at}: {said}")
            row = row.or_worse(found.row, row_limit.value, f"{found.row_at}: {said}")
            gain = gain.or_worse(found.gain, found.gain_limit, said)
            limits_of = call_limit.value, tile_limit.value, row_limit.value
            worst = max(a / b for a, b in zip((*ratios, found.gain), (*limits_of, found.gain_limit), strict=True))
            if worst > worst_of_all:
                worst_of_all, rows = worst, kept(call, x, r, i)
    of_all = float(np.sqrt(np.mean(squares))) if squares else 0.0
    measures = [
        Measure(Figure("pooled ratio", of_all, call_limit.value, "max", call_limit.provenance)),
        Measure(Figure("worst call's ratio", pooled.value, pooled.limit, "max", call_limit.provenance), where=pooled.where),
        Measure(Figure("worst tile's ratio", tile.value, tile_limit.value, "max", tile_limit.provenance), where=tile.where),
        Measure(Figure("worst row's ratio", row.value, row_limit.value, "max", row_limit.provenance), where=row.where),
        Measure(
            Figure("gain", gain.value, gain.limit, "max", limit.gain_sigma.provenance), Decides.EXACT, gain.where
        ),
        Measure(Figure("calls", len(squares), 1.0, "min", "none made, none checked"), Decides.POWER),
    ]
    measures[1] = Measure(
        Figure("worst call's ratio", pooled.value, call_limit.value, "max", call_limit.provenance), where=pooled.where
    )
    return conclude(name, f"outputs of {len(squares)} calls, {dtype} claimed {precision}", measures, rows=rows)


def repeats_are_equal(calls: Sequence[AttentionCall], outputs: AttentionOutputs, *, repeats: int) -> Judgement:
    """All answers to one call are equal to the last bit, but for padding: a claim of the profile."""
    name = "attention.repeats_are_equal"
    if refused := gate(name, calls, outputs, repeats):
        return refused
    faults, rows = [], {}
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
    def of(cls, call: AttentionCall, x: Float64, r: Float64, i: Float64, dtype: str) -> _Errors:
        limit = limits()
        inside = counted(call)[:, None, :]
        with np.errstate(over="ignore", invalid="ignore"):
            engine = _squares(x - r) * inside
            honest, size = _squares(i - r) * inside, _squares(r) * inside
        floor = (limit.ratio.floor_eps.value * eps(dtype)) ** 2 * size
        # A row or tile whose ideal error is luckily small is held against the call's middling one.
        row_allowed = np.maximum(np.maximum(honest, floor), _median(honest, inside))
        engine_tiles, honest_tiles, counts = (_tiles(each) for each in (engine, np.maximum(honest, floor), inside * 1.0))
        middling = _median(honest, inside)
        tile_allowed = np.maximum(honest_tiles, middling * counts)
        if dtype == "float32":
            never = limit.ratio.allowed_relative_error_float32.value ** 2
            row_allowed, tile_allowed = (np.maximum(a, never * b) for a, b in ((row_allowed, size), (tile_allowed, _tiles(size))))
        row, row_index = _greatest(engine, row_allowed)
        tile, tile_index = _greatest(engine_tiles, tile_allowed)
        total, allowed = float(engine.sum()), float(np.maximum(honest.sum(), floor.sum()))
        gain, gain_limit = _gain(x, r, i, inside, dtype)
        b, h, q = row_index
        return cls(
            pooled=_root_of_quotient(total, allowed),
            tile=tile,
            tile_at=f"row {tile_index[0]}, head {tile_index[1]}, queries from {tile_index[2] * TILE}",
            row=row,
            row_at=f"row {b}, head {h}, query {q}",
            gain=gain,
            gain_limit=gain_limit,
        )


def _gain(x: Float64, r: Float64, i: Float64, inside: np.ndarray, dtype: str) -> tuple[float, float]:
    """|<x - r, r>| / <r, r>, and its limit: 4 standard errors over rows, the ideal's own gain, and a floor."""
    limit = limits().attention
    size = float((_squares(r) * inside).sum())
    if size == 0:
        return 0.0, 1.0
    dots = np.einsum("bhqd,bhqd->bhq", x - r, r) * inside
    own = float((np.einsum("bhqd,bhqd->bhq", i - r, r) * inside).sum()) / size
    gain = float(dots.sum()) / size
    spread = float(np.sqrt(np.square(dots - gain * _squares(r) * inside).sum())) / size
    return abs(gain), limit.gain_sigma.value * spread + abs(own) + limit.gain_floor_eps.value * eps(dtype)


def _squares(values: Float64) -> Float64:
    found: Float64 = np.square(values).sum(axis=-1)
    return found


def _tiles(squares: Float64) -> Float64:
    """Sums over tiles of queries: [batch, heads, tiles]."""
    queries = squares.shape[2]
    found: Float64 = np.add.reduceat(squares, np.arange(0, queries, TILE), axis=2)
    return found


def _median(squares: Float64, inside: np.ndarray) -> float:
    return float(np.median(squares[np.broadcast_to(inside, squares.shape)]))


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
