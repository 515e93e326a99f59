"""Embeddings: against the reference within the rounding of the dtype, of unit length, and nearest to their partners."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from conformance.criteria.arrays import Float64, Mask, Triple, as_float64, not_finite, triple
from conformance.criteria.finding import Decides, Measure, conclude, refuse
from conformance.criteria.limits import limits
from conformance.criteria.measures import bucket_measure, pooled_measures, single_measure
from conformance.criteria.ratio import eps, errors, noise, pick
from conformance.judgement import Figure, Judgement

_AXES = ("prompts", "dimensions")


def agrees(
    *, x: ArrayLike, r: ArrayLike, e: ArrayLike, dtype: str, prompt_lengths: Sequence[int], precision: str = "ieee"
) -> Judgement:
    """Engine's embeddings x against reference r, both [n, d], allowed the error of yardstick e.

    Judged: the ratio pooled, of the worst prompt, and of each bucket of prompt lengths (in tokens); in float32 also
    the relative error, where `precision` claims `ieee`. Reported: gain and cosines. UNDERPOWERED with fewer than 16
    prompts, or where the reference's embeddings lie so close together that a swap would not show.
    ValueError where r, e, `prompt_lengths`, `dtype` or `precision` are at fault.
    """
    name = "vector.agrees"
    limit = limits().vector
    pooled_limit = pick(dtype, limit.pooled_16bit, limits().ratio.pooled_float32)
    bucket_limit = pick(dtype, limit.bucket_16bit, limit.bucket_float32)
    t = triple(x, r, e, _AXES)
    if isinstance(t, str):
        return refuse(name, f"embeddings: {t}")
    if len(prompt_lengths) != len(t.r):
        raise ValueError(f"{len(prompt_lengths)} prompt lengths for {len(t.r)} prompts")
    found = errors(t, dtype)
    cosines = _cosines_to(t.x, t.r)
    spread = float(np.sqrt(np.square(t.r - t.r.mean(axis=0)).mean())) / (noise(t, dtype) or 1.0)
    measures = [
        *pooled_measures(found, pooled_limit, precision),
        single_measure(found, limit.single),
        *(
            bucket_measure(found[chosen], bucket_limit, bucket)
            for bucket, chosen in _length_buckets(np.asarray(prompt_lengths))
        ),
        Measure(Figure("gain of the error on the reference", _gain(t))),
        Measure(Figure("smallest cosine to the reference", float(cosines.min()))),
        Measure(Figure("mean of 1 - cosine to the reference", float((1 - cosines).mean()))),
        Measure(Figure("prompts", len(t.r), limit.prompts.value, "min", limit.prompts.provenance), Decides.POWER),
        Measure(
            Figure("spread of the reference over noise", spread, limit.spread.value, "min", limit.spread.provenance),
            Decides.POWER,
        ),
    ]
    rows = {**t.rows, "prompt_lengths": np.asarray(prompt_lengths)}
    return conclude(name, f"{len(t.r)} embeddings of {t.r.shape[1]} numbers, {dtype}", measures, rows=rows)


def have_unit_norm(*, x: ArrayLike, dtype: str) -> Judgement:
    """Every embedding of x [n, d] has length 1 within the rounding of the dtype. ValueError for an unknown dtype."""
    name = "vector.have_unit_norm"
    bound = pick(dtype, limits().vector.unit_norm_eps_16bit, limits().vector.unit_norm_eps_float32)
    vectors = _vectors(x)
    if isinstance(vectors, str):
        return refuse(name, f"embeddings: {vectors}")
    with np.errstate(over="ignore"):
        deviations = np.abs(np.linalg.norm(vectors, axis=1) - 1)
    index = int(np.argmax(deviations))
    provenance = f"{bound.value:g} eps of {dtype}; {bound.provenance}"
    figure = Figure(
        "greatest deviation from length 1", float(deviations[index]), bound.value * eps(dtype), "max", provenance
    )
    measures = [Measure(figure, Decides.EXACT, f"prompt {index}")]
    return conclude(name, f"lengths of {len(vectors)} embeddings, {dtype}", measures, rows={"x": vectors})


def nearest_are_known(*, x: ArrayLike, partners: Sequence[int | None]) -> Judgement:
    """The nearest other embedding of prompt i, by cosine, is prompt `partners[i]`, where one is known.

    A tie with another prompt does not count as nearest: one embedding repeated is nearest to nothing.
    UNDERPOWERED where no partner is known or there is no third prompt to be confused with.
    ValueError where a partner is the prompt itself or no prompt.
    """
    name = "vector.nearest_are_known"
    count = len(partners)
    for i, partner in enumerate(partners):
        if partner is not None and (partner == i or not 0 <= partner < count):
            raise ValueError(f"partners[{i}]={partner}, but must be another prompt: 0 to {count - 1}, not {i}")
    vectors = _vectors(x)
    if not isinstance(vectors, str) and len(vectors) != count:
        vectors = f"the engine gave {len(vectors)} embeddings, but {count} prompts were asked"
    if isinstance(vectors, str):
        return refuse(name, f"embeddings: {vectors}")
    norms = np.linalg.norm(vectors, axis=1)
    if not (norms > 0).all():
        return refuse(name, f"embeddings: that of prompt {int(np.argmin(norms))} is zero, so it has no direction")
    unit = vectors / norms[:, None]
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    wrong: list[str] = []
    margins = []
    for i, partner in enumerate(partners):
        if partner is None or count < 3:
            continue
        others = np.delete(cosines[i], [i, partner])
        margins.append(float(cosines[i, partner] - others.max()))
        if margins[-1] <= 0:
            nearest = int(np.argmax(np.where(np.arange(count) == partner, -np.inf, cosines[i])))
            wrong.append(
                f"prompt {i} must be nearest to prompt {partner} (cosine {cosines[i, partner]:.4f}), "
                f"but is as near to prompt {nearest} ({cosines[i, nearest]:.4f})"
            )
    measures = [Measure(Figure("prompts whose nearest is not the known one", len(wrong), 0.0), Decides.EXACT)]
    if margins:
        measures.append(Measure(Figure("smallest margin in cosine", min(margins))))
    measures.append(
        Measure(
            Figure("prompts with a known nearest", len(margins), 1.0, "min", "none known, none checked"), Decides.POWER
        )
    )
    return conclude(name, f"nearest of {count} embeddings by cosine", measures, rows={"x": vectors}, faults=wrong)


def _vectors(x: ArrayLike) -> Float64 | str:
    vectors = as_float64(x)
    if isinstance(vectors, str):
        return vectors
    if vectors.ndim != 2 or 0 in vectors.shape:
        return f"the engine's values have shape {list(vectors.shape)}, but must be [{', '.join(_AXES)}], none of them 0"
    return not_finite(vectors) or vectors


def _cosines_to(x: Float64, r: Float64) -> Float64:
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.linalg.norm(x, axis=1) * np.linalg.norm(r, axis=1)
        dots = (x * r).sum(axis=1)
        cosines: Float64 = np.where((norms > 0) & np.isfinite(norms), dots / np.where(norms > 0, norms, 1.0), 0.0)
    return cosines


def _gain(t: Triple) -> float:
    """<x - r, r> / <r, r>: the part of the error that is a scale factor, which an rms alone hides."""
    square = float((t.r * t.r).sum())
    with np.errstate(over="ignore", invalid="ignore"):
        return float(((t.x - t.r) * t.r).sum()) / square if square > 0 else 0.0


def _length_buckets(lengths: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Iterator[tuple[str, Mask]]:
    limit = limits().vector
    edges = [0, *(int(edge) for edge in limit.bucket_edges.values)]
    for low, high in zip(edges, [*edges[1:], None], strict=True):
        chosen = (lengths >= low) & (lengths < high) if high is not None else lengths >= low
        if chosen.sum() >= limit.bucket_prompts.value:
            yield f"lengths {low} to {high - 1}" if high is not None else f"lengths from {low}", chosen
