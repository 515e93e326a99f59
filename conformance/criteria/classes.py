"""Classification: raw class logits against the reference, and the class that comes out on top."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from conformance.criteria import divergence
from conformance.criteria.arrays import Float64, Triple, as_float64, not_finite, triple
from conformance.criteria.diagnosis import of_classes, of_scores
from conformance.criteria.finding import Decides, Measure, conclude, refuse
from conformance.criteria.limits import limits
from conformance.criteria.measures import pooled_measures
from conformance.criteria.ratio import Errors, eps, errors, pick, pooled, relative_allowance, widened
from conformance.criteria.score import rounding_gap
from conformance.judgement import Figure, Judgement

_AXES = ("prompts", "classes")


def agrees(*, x: ArrayLike, r: ArrayLike, e: ArrayLike, dtype: str, precision: str = "ieee") -> Judgement:
    """Engine's logits x against reference r, both [n, K], centred (a constant added to all K changes no class).

    Judged: the pooled ratio, the worst prompt, and the ratio of KL(r || x) to KL(r || e); in float32 also the
    relative error, where `precision` claims `ieee`. Reported: offset and gain, and in the message of a failure what
    they, or another order of the classes, suggest. UNDERPOWERED where n (K - 1) is below 256.
    ValueError where r, e, `dtype` or `precision` are at fault, or there are fewer than two classes.
    """
    name = "classes.agrees"
    limit = limits().classes
    pooled_limit = pick(dtype, limit.pooled_16bit, limits().ratio.pooled_float32)
    t = _centred(x, r, e)
    if isinstance(t, str):
        return refuse(name, f"class logits: {t}")
    count, classes = t.r.shape
    compared = f"logits of {classes} classes for {count} prompts, {dtype}"
    free = count * (classes - 1)
    power = Measure(
        Figure("free logits (prompts x (classes - 1))", free, limit.values.value, "min", limit.values.provenance),
        Decides.POWER,
    )
    start = widened(pooled_limit.value, free * limit.independent_share.value)
    if start is None:
        return conclude(name, compared, [power], rows=t.rows, doubts=["too few logits for any ratio"])
    found = errors(t, dtype)
    reference, engine, yardstick = (_log_softmax(values) for values in (t.r, t.x, t.e))
    judged = pooled_measures(found, pooled_limit, precision, widened_to=start)
    judged.append(_single(found))
    shape, diagnosis = of_classes(t.x, t.r)
    judged += divergence.ratio_measure(
        float(divergence.terms(reference, engine).sum()),
        float(divergence.terms(reference, yardstick).sum()),
        ratio_limit=pooled(found, start).limit,
        limit=limit.divergence,
        weights=divergence.uncertainty(reference),
        samples=limit.divergence_samples,
        share=(classes - 1) * limit.independent_share.value,
    )
    return conclude(name, compared, [*judged, *shape, power], rows=t.rows, diagnosis=diagnosis)


def offsets_agree(*, x: ArrayLike, r: ArrayLike, e: ArrayLike, dtype: str, precision: str = "ieee") -> Judgement:
    """The mean over classes of a prompt's logits, which no probability shows but a raw logit does: x, r, e [n, K].

    One scalar a prompt, so limits, and the 128 prompts below which it is UNDERPOWERED, are those of scores. It may be
    near 0, so relative errors are relative to the rms of the prompt's logits.
    ValueError where r, e, `dtype` or `precision` are at fault.
    """
    name = "classes.offsets_agree"
    limit = limits().score
    pooled_limit = pick(dtype, limit.pooled_16bit, limits().ratio.pooled_float32)
    t = triple(x, r, e, _AXES)
    if isinstance(t, str):
        return refuse(name, f"class logits: {t}")
    count = len(t.r)
    compared = f"offsets of the logits of {count} prompts, {dtype}"
    power = Measure(Figure("offsets", count, limit.samples.value, "min", limit.samples.provenance), Decides.POWER)
    start = widened(pooled_limit.value, count)
    if start is None:
        return conclude(name, compared, [power], rows=t.rows, doubts=["too few offsets for any ratio"])
    found = errors(Triple(*(values.mean(axis=1, keepdims=True) for values in (t.x, t.r, t.e))), dtype)
    size = np.sqrt(np.square(t.r).mean(axis=1))
    floor = limits().ratio.floor_eps.value * eps(dtype) * size / np.sqrt(t.r.shape[1])
    found = Errors(dtype, found.engine, np.maximum(found.allowed, floor), size)
    shape, diagnosis = of_scores(t.x.mean(axis=1), t.r.mean(axis=1))
    judged = [*pooled_measures(found, pooled_limit, precision, widened_to=start), _single(found), *shape]
    return conclude(name, compared, [*judged, power], rows=t.rows, diagnosis=diagnosis)


def top_classes_agree(*, x: ArrayLike, r: ArrayLike, e: ArrayLike) -> Judgement:
    """The top class of x [n, K] is that of r, or one that r rates as high within rounding.

    Within rounding: inside 6 sqrt(2) sigma, sigma the yardstick's rms error of a centred logit. UNDERPOWERED where
    fewer than two different top classes of r lie beyond that gap. ValueError where r or e are at fault.
    """
    name = "classes.top_classes_agree"
    t = _centred(x, r, e)
    if isinstance(t, str):
        return refuse(name, f"class logits: {t}")
    gap = rounding_gap(float(np.sqrt(np.square(t.e - t.r).mean())))
    prompts = np.arange(len(t.r))
    expected, given = t.r.argmax(axis=1), t.x.argmax(axis=1)
    lost = t.r[prompts, expected] - t.r[prompts, given]
    ordered = np.sort(t.r, axis=1)
    decided = ordered[:, -1] - ordered[:, -2] > gap
    faults = [
        f"prompt {i}: the engine's top class is {given[i]}, the reference's {expected[i]}, "
        f"which is higher by {lost[i]:.4g}, beyond the rounding gap of {gap:.4g}"
        for i in np.nonzero(lost > gap)[0]
    ]
    tied = [i for i in prompts if (t.x[i] == t.x[i].max()).sum() > 1 and decided[i]]
    faults += [f"prompt {i}: the engine's top class is a tie, where the reference's is clear" for i in tied]
    provenance = f"6 sqrt(2) sigma of the yardstick's error; {limits().score.order_sigma.provenance}"
    measures = [
        Measure(Figure("wrong top classes", len(faults), 0.0, "max", provenance), Decides.EXACT),
        Measure(Figure("top classes changed within rounding", int(((lost > 0) & (lost <= gap)).sum()))),
        Measure(Figure("rounding gap", gap)),
        Measure(Figure("decided prompts", int(decided.sum()))),
        _variety(len(set(expected[decided].tolist())), "different top classes beyond the rounding gap"),
    ]
    return conclude(name, f"top classes of {len(t.r)} prompts", measures, rows=t.rows, faults=faults)


def top_classes_are_known(*, x: ArrayLike, labels: Sequence[int | None]) -> Judgement:
    """The top class of x [n, K] is `labels[i]`, where one is known; a tie at the top counts as wrong.

    UNDERPOWERED with fewer than two different known labels: one answer for everything would pass.
    """
    name = "classes.top_classes_are_known"
    logits = as_float64(x)
    if not isinstance(logits, str):
        if logits.ndim != 2 or 0 in logits.shape:
            logits = f"the engine's values have shape {list(logits.shape)}, but must be [prompts, classes]"
        elif len(logits) != len(labels):
            logits = f"the engine gave logits for {len(logits)} prompts, but {len(labels)} were asked"
        else:
            logits = not_finite(logits) or logits
    if isinstance(logits, str):
        return refuse(name, f"class logits: {logits}")
    faults = []
    for i, label in enumerate(labels):
        if label is None:
            continue
        best = np.nonzero(logits[i] == logits[i].max())[0].tolist()
        if best != [label]:
            faults.append(f"prompt {i}: the top class is {' and '.join(map(str, best))}, but must be {label}")
    known = [label for label in labels if label is not None]
    measures = [
        Measure(Figure("wrong top classes", len(faults), 0.0), Decides.EXACT),
        Measure(Figure("prompts with a known class", len(known))),
        _variety(len(set(known)), "different known classes"),
    ]
    return conclude(name, f"top classes of {len(labels)} prompts", measures, rows={"x": logits}, faults=faults)


def _variety(count: int, what: str) -> Measure:
    provenance = "with fewer, one answer repeated for every prompt would pass"
    return Measure(Figure(what, count, 2.0, "min", provenance), Decides.POWER)


def _centred(x: ArrayLike, r: ArrayLike, e: ArrayLike) -> Triple | str:
    t = triple(x, r, e, _AXES)
    if isinstance(t, str):
        return t
    if t.r.shape[1] < 2:
        raise ValueError(f"r has {t.r.shape[1]} classes; a classifier has at least 2 (one logit is a score)")
    return Triple(*(values - values.mean(axis=1, keepdims=True) for values in (t.x, t.r, t.e)))


def _single(found: Errors) -> Measure:
    """The worst prompt's error in units of the yardstick's rms over prompts: one prompt has too few logits alone."""
    limit = limits().score
    sigma = float(np.sqrt(np.square(found.allowed).mean()))
    index = int(np.argmax(found.engine))
    scale = sigma or 1.0  # zero only where r is zero throughout, and then so is the limit
    size = float(np.sqrt(np.square(found.reference).mean()))
    allowed = max(
        limit.single_sigma.value * sigma,
        limit.single_over_yardstick.value * float(found.allowed.max()),
        limit.single_sigma.value * relative_allowance(found.dtype, size),
    )
    provenance = f"{limit.single_sigma.provenance}; {limit.single_over_yardstick.provenance}"
    value = float(found.engine[index]) / scale
    name = limit.single_sigma.name
    figure = Figure("worst single prompt's error, in sigma", value, allowed / scale, "max", provenance, name)
    return Measure(figure, where=f"prompt {index}")


def _log_softmax(logits: Float64) -> Float64:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))
