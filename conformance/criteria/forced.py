"""Teacher-forced logprobs of fixed candidates against the reference: the sharpest view of a text model.

Candidates [n, T, m]: column 0 is the forced token, columns 1 to 20 the reference's best (best first), the rest drawn
from a seed. Prompts are ragged: `forced` [n, T] marks the positions that count.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from conformance.criteria import divergence
from conformance.criteria.arrays import Float64, Mask, Triple, triple
from conformance.criteria.finding import Decides, Measure, conclude, refuse
from conformance.criteria.limits import limits
from conformance.criteria.measures import bucket_measure, pooled_measures, single_measure
from conformance.criteria.ratio import errors, pick, pooled, relative_allowance
from conformance.judgement import Figure, Judgement

_AXES = ("prompts", "positions", "candidates")


def logprobs_agree(
    *,
    x: ArrayLike,
    r: ArrayLike,
    e: ArrayLike,
    dtype: str,
    prompt_lengths: Sequence[int],
    forced: ArrayLike,
    precision: str = "ieee",
) -> Judgement:
    """Engine's forced logprobs x against reference r, both [n, T, m] in nats, allowed the error of yardstick e.

    Judged: the error ratio, pooled, of the worst prompt, and of position buckets (the first 16 forced positions; near
    multiples of page, chunk and tile sizes, counted from the prompt's start); the ratio of KL divergences over the
    reference's best tokens and a tail bucket; the margin that changed first choices give away (DiFR, 2511.20621:
    r's best candidate minus r of the one that x ranks first), summed and singly. In float32 also the relative error,
    where `precision` claims `ieee`. UNDERPOWERED with fewer than 32 prompts.
    ValueError where r, e, `forced`, `prompt_lengths`, `dtype` or `precision` are at fault.
    """
    name = "tokens.logprobs_agree"
    limit = limits().tokens
    pooled_limit = pick(dtype, limit.pooled_16bit, limits().ratio.pooled_float32)
    counted, lengths = _positions(forced, prompt_lengths, np.shape(r))
    t = triple(x, r, e, _AXES, counted=counted)
    if isinstance(t, str):
        return refuse(name, f"forced logprobs: {t}")
    t = _silenced(t, counted)
    found = errors(t, dtype)
    long_enough = counted.sum(axis=1) >= limit.single_positions.value
    measures = pooled_measures(found, pooled_limit, precision)
    if long_enough.any():
        measures.append(single_measure(found[long_enough], limit.single, np.nonzero(long_enough)[0].tolist()))
    bucket_limit = pick(dtype, limit.bucket_16bit, limit.bucket_float32)
    for bucket, chosen in _buckets(lengths, counted):
        if chosen.sum() >= limit.bucket_positions.value and chosen.any(axis=1).sum() >= limit.bucket_prompts.value:
            measures.append(bucket_measure(errors(t, dtype, counted=chosen), bucket_limit, bucket))
    measures += _divergence(t, counted, pooled(found, pooled_limit.value).limit)
    measures += _margins(t, counted, dtype)
    measures.append(
        Measure(Figure("prompts", len(t.r), limit.prompts.value, "min", limit.prompts.provenance), Decides.POWER)
    )
    rows = {**t.rows, "prompt_lengths": lengths, "forced": counted}
    total = int(counted.sum())
    compared = f"logprobs of {t.r.shape[2]} candidates at {total} forced positions of {len(t.r)} prompts, {dtype}"
    return conclude(name, compared, measures, rows=rows)


def sigma_gap(*, r: ArrayLike, e: ArrayLike, forced: ArrayLike | None = None) -> float:
    """Rms error in nats, in yardstick e, of the gap between the reference's two best tokens.

    r and e are [n, T, m] with the candidates' layout, `forced` [n, T]; without it every position counts that r has a
    number and two different best tokens for (two equal logprobs in fp64 are one token twice: the filling behind a
    short prompt). ValueError where one of them is at fault.
    """
    reference = np.asarray(r, dtype=np.float64)
    if forced is None and reference.ndim == 3 and reference.shape[2] > 2:
        forced = np.isfinite(reference).min(axis=2) & (reference[..., 1] != reference[..., 2])
    counted, _ = _positions(np.zeros(0) if forced is None else forced, None, reference.shape)
    t = triple(e, r, e, _AXES, counted=counted)
    if isinstance(t, str):
        raise ValueError(f"sigma_gap: {t}")
    return _gap_noise(t, counted)


def _positions(
    forced: ArrayLike, prompt_lengths: Sequence[int] | None, shape: tuple[int, ...]
) -> tuple[Mask, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    counted = np.asarray(forced)
    if counted.dtype != np.bool_ or len(shape) != 3 or counted.shape != shape[:2]:
        raise ValueError(
            f"forced is {counted.dtype} {list(counted.shape)} and r {list(shape)}; "
            "they must be bool [prompts, positions] and [prompts, positions, candidates]"
        )
    if shape[2] < 3:
        raise ValueError(
            f"r has {shape[2]} candidates; it needs the forced token and the reference's best two at least"
        )
    if not counted.any(axis=1).all():
        raise ValueError("forced marks no position of some prompt; every prompt must have one that counts")
    lengths = (
        np.zeros(shape[0], dtype=np.int64) if prompt_lengths is None else np.asarray(prompt_lengths, dtype=np.int64)
    )
    if lengths.shape != shape[:1]:
        raise ValueError(f"{len(lengths)} prompt lengths for {shape[0]} prompts")
    return counted, lengths


def _silenced(t: Triple, counted: Mask) -> Triple:
    """Zero in all three where nothing is forced, so that those positions add no error."""
    return Triple(*(np.where(counted[:, :, None], values, 0.0) for values in (t.x, t.r, t.e)))


def _buckets(lengths: np.ndarray[tuple[int], np.dtype[np.int64]], counted: Mask) -> Iterator[tuple[str, Mask]]:
    limit = limits().tokens
    index = np.arange(counted.shape[1])[None, :]
    first = int(limit.first_positions.value)
    yield f"the first {first} forced positions", counted & (index < first)
    absolute = lengths[:, None] + index
    reach = int(limit.boundary_reach.value)
    for boundary in map(int, limit.boundaries.values):
        rest = absolute % boundary
        near = (np.minimum(rest, boundary - rest) <= reach) & (absolute >= boundary - reach)
        yield f"positions within {reach} of multiples of {boundary}", counted & near


def _top(values: Float64) -> Float64:
    return values[..., 1 : int(limits().tokens.top.value) + 1]


def _divergence(t: Triple, counted: Mask, ratio_limit: float) -> list[Measure]:
    limit = limits().tokens
    reference, engine, yardstick = (_top(values)[counted] for values in (t.r, t.x, t.e))
    return divergence.ratio_measure(
        _kl(reference, engine),
        _kl(reference, yardstick),
        ratio_limit=ratio_limit,
        limit=limit.divergence,
        weights=divergence.uncertainty(reference),
        samples=limit.divergence_samples,
        share=1.0,
    )


def _kl(reference: Float64, other: Float64) -> float:
    """KL over the best tokens and one bucket for all others, summed over positions, in nats."""
    total = divergence.terms(reference, other).sum()
    tail, other_tail = (1 - np.exp(np.minimum(values, 0.0)).sum(axis=-1) for values in (reference, other))
    kept = tail > limits().tokens.tail.value
    smallest = limits().tokens.tail.value * limits().tokens.tail.value
    logs = (np.log(values[kept].clip(smallest)) for values in (tail, other_tail))
    return float(total + divergence.terms(*logs).sum())


def _gap_noise(t: Triple, counted: Mask) -> float:
    gaps = (t.e[..., 1] - t.e[..., 2]) - (t.r[..., 1] - t.r[..., 2])
    return float(np.sqrt(np.square(gaps[counted]).mean()))


def _margins(t: Triple, counted: Mask, dtype: str) -> list[Measure]:
    """What changed first choices give away, in units of sigma_gap.

    Flips are few, so the yardstick's own sum is a poor limit by itself: it is held at the sum expected of normal
    errors (sum of g P(error > g), g the gap of the best two), and widened by that sum's standard deviation and by one
    single margin that is still legal.
    """
    limit = limits().tokens
    r = t.r[counted]
    sigma = max(_gap_noise(t, counted), relative_allowance(dtype, float(np.sqrt(np.square(r).mean()))))
    best, positions = r.max(axis=1), np.arange(len(r))
    given, own_given = (best - r[positions, values[counted].argmax(axis=1)] for values in (t.x, t.e))
    index = int(np.argmax(given))
    prompt, position = (int(i) for i in np.argwhere(counted)[index])
    where = f"prompt {prompt}, forced position {position}"
    changed = Measure(Figure("changed first choices", int((given > 0).sum())))
    if sigma == 0:
        return [Measure(Figure("greatest margin given away", float(given[index]), 0.0), Decides.EXACT, where), changed]
    ordered = np.sort(r, axis=1)
    gaps = (ordered[:, -1] - ordered[:, -2]) / sigma
    chance = np.array([0.5 * math.erfc(gap / math.sqrt(2)) for gap in gaps.tolist()])
    expected = float((gaps * chance).sum())
    deviation = float(np.sqrt((gaps**2 * chance * (1 - chance)).sum()))
    single = limit.gap_sigma.value
    summed, own_sum = (float(np.minimum(values / sigma, single).sum()) for values in (given, own_given))
    allowed = limit.margin.value * max(own_sum, expected) + limit.margin_sigma.value * deviation + single
    return [
        Measure(
            Figure(
                "margin given away, summed, in sigma_gap",
                summed,
                allowed,
                "max",
                limit.margin.provenance,
                limit.margin.name,
            )
        ),
        Measure(
            Figure(
                "greatest margin given away, in sigma_gap",
                float(given[index]) / sigma,
                single,
                "max",
                limit.gap_sigma.provenance,
                limit.gap_sigma.name,
            ),
            where=where,
        ),
        changed,
        Measure(Figure("sigma_gap in nats", sigma)),
    ]
