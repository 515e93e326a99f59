"""Scalar scores: raw logits or log-odds against the reference, and the order that they give.

Never probabilities: near 0 and 1 they hide the error. Where an engine shows only P, the score is log(P / (1 - P)).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from conformance.criteria.arrays import Float64, Triple, triple
from conformance.criteria.diagnosis import of_scores
from conformance.criteria.finding import Decides, Measure, conclude, refuse
from conformance.criteria.limits import limits
from conformance.criteria.measures import pooled_measures
from conformance.criteria.ratio import EPS, eps, errors, noise, pick, relative_allowance, widened
from conformance.judgement import Figure, Judgement

_AXES = ("prompts",)


def agrees(
    *,
    x: ArrayLike,
    r: ArrayLike,
    e: ArrayLike,
    dtype: str,
    precision: str = "ieee",
    probabilities_only: bool = False,
) -> Judgement:
    """Engine's scores x against reference r, both [n] raw logits or log-odds, allowed the error of yardstick e.

    Judged: the pooled ratio, the worst score, the bias (mean error) and the slope of the error on r, each against
    the yardstick's own plus its standard error; in float32 also the relative error, where `precision` claims `ieee`.
    Reported: offset and gain, and in the message of a failure what they suggest.
    With `probabilities_only` (log-odds computed from probabilities) only prompts with a reference probability in
    0.02 to 0.98 count. UNDERPOWERED with fewer than 128 of them, where more than half are outside, or where the
    reference's scores hardly differ. ValueError where r, e, `dtype` or `precision` are at fault.
    """
    name = "score.agrees"
    limit = limits().score
    pooled_limit = pick(dtype, limit.pooled_16bit, limits().ratio.pooled_float32)
    everything = triple(x, r, e, _AXES)
    if isinstance(everything, str):
        return refuse(name, f"scores: {everything}")
    t, measures = everything, []
    if probabilities_only:
        t, saturation = _unsaturated(everything)
        measures.append(saturation)
    count = len(t.r)
    measures.append(
        Measure(Figure("scores", count, limit.samples.value, "min", limit.samples.provenance), Decides.POWER)
    )
    compared = f"{count} scores, {dtype}"
    start = widened(pooled_limit.value, count)
    if start is None:
        doubt = f"{count} scores are too few for any ratio, at least {limits().quantile.samples.values[0]:g} are needed"
        return conclude(name, compared, measures, rows=everything.rows, doubts=[doubt])
    shape, diagnosis = of_scores(t.x, t.r)
    judged = [
        *pooled_measures(errors(_unbiased(t), dtype), pooled_limit, precision, widened_to=start),
        _single(t, dtype),
        *_bias_and_slope(t, dtype),
        *_spread(t, dtype),
        *shape,
    ]
    return conclude(name, compared, [*judged, *measures], rows=everything.rows, diagnosis=diagnosis)


def are_ordered(
    *,
    x: ArrayLike,
    r: ArrayLike,
    e: ArrayLike,
    groups: Sequence[Hashable],
    grades: Sequence[int] | None,
) -> Judgement:
    """Within each group (one query), scores x [n] keep the order of r, and with `grades` the known order.

    A pair of r is decided when its gap exceeds 6 sqrt(2) sigma, sigma the yardstick's rms error; x must order it as
    r does. A pair of unequal grade must be ordered as the grades say, whatever r says; only where r's own gap is
    inside the rounding gap, and x's within twice that, it may be swapped. UNDERPOWERED where no pair is decided.
    ValueError where r, e, `groups` or `grades` are at fault.
    """
    name = "score.are_ordered"
    t = triple(x, r, e, _AXES)
    if isinstance(t, str):
        return refuse(name, f"scores: {t}")
    if len(groups) != len(t.r) or (grades is not None and len(grades) != len(t.r)):
        raise ValueError(
            f"{len(t.r)} scores, {len(groups)} groups and {'no' if grades is None else len(grades)} grades; "
            "there must be one of each a score"
        )
    sigma = float(np.sqrt(np.square(t.e - t.r).mean()))
    gap = rounding_gap(sigma)
    decided, wrong = 0, []
    for pair in _pairs(t, groups, grades):
        sound = abs(pair.reference) > gap
        if sound and (pair.grade is None or pair.grade == 0):
            decided += 1
            if pair.engine * pair.reference <= 0:
                wrong.append(pair.said("the reference orders them the other way, by more than rounding"))
        elif pair.grade is not None and pair.grade != 0:
            decided += sound
            upside_down = pair.engine * pair.grade <= 0
            if upside_down and (sound or abs(pair.engine) > 2 * gap):
                against = pair.reference * pair.grade <= 0 and sound
                wrong.append(
                    pair.said(
                        "the known order is the other way"
                        + (", and the reference is as wrong as the engine" if against else "")
                    )
                )
            elif sound and pair.engine * pair.reference <= 0:
                wrong.append(pair.said("the reference orders them the other way, by more than rounding"))
    provenance = f"6 sqrt(2) sigma of the yardstick's error; {limits().score.order_sigma.provenance}"
    measures = [
        Measure(Figure("pairs in the wrong order", len(wrong), 0.0, "max", provenance), Decides.EXACT),
        Measure(Figure("rounding gap", gap)),
        Measure(Figure("decided pairs", decided, 1.0, "min", "a gap beyond rounding is needed"), Decides.POWER),
    ]
    compared = f"order of {len(t.r)} scores in {len(set(groups))} groups"
    return conclude(name, compared, measures, rows=t.rows, faults=wrong)


def rounding_gap(sigma: float) -> float:
    """The gap of two scores inside which rounding with this error may swap them: 6 sqrt(2) sigma."""
    return float(limits().score.order_sigma.value * np.sqrt(2.0) * sigma)


@dataclass(frozen=True)
class _Pair:
    first: int
    second: int
    engine: float  # score of first minus score of second
    reference: float
    grade: int | None

    def said(self, why: str) -> str:
        return (
            f"prompts {self.first} and {self.second}: the engine's scores differ by {self.engine:+.4g}, "
            f"the reference's by {self.reference:+.4g}; {why}"
        )


def _pairs(t: Triple, groups: Sequence[Hashable], grades: Sequence[int] | None) -> Iterator[_Pair]:
    members: dict[Hashable, list[int]] = {}
    for i, group in enumerate(groups):
        members.setdefault(group, []).append(i)
    for indices in members.values():
        for position, i in enumerate(indices):
            for j in indices[position + 1 :]:
                grade = None if grades is None else grades[i] - grades[j]
                yield _Pair(i, j, float(t.x[i] - t.x[j]), float(t.r[i] - t.r[j]), grade)


def _unsaturated(t: Triple) -> tuple[Triple, Measure]:
    limit = limits().score
    probabilities = 1 / (1 + np.exp(-np.clip(t.r, -700, 700)))
    inside = (probabilities > limit.probability_low.value) & (probabilities < limit.probability_high.value)
    figure = Figure(
        "share of saturated scores",
        float(1 - inside.mean()),
        limit.saturated_share.value,
        "max",
        limit.saturated_share.provenance,
    )
    return t[inside], Measure(figure, Decides.POWER)


def _single(t: Triple, dtype: str) -> Measure:
    limit = limits().score
    sigma = noise(t, dtype)
    error = np.abs(t.x - t.r)
    index = int(np.argmax(error))
    if sigma == 0:
        return Measure(Figure("worst single score's error", float(error[index]), 0.0), where=f"prompt {index}")
    allowed = max(
        limit.single_sigma.value,
        limit.single_over_yardstick.value * float(np.abs(t.e - t.r).max()) / sigma,
        relative_allowance(dtype, _rms(t.r)) * limit.single_sigma.value / sigma,
    )
    provenance = f"{limit.single_sigma.provenance}; {limit.single_over_yardstick.provenance}"
    value = float(error[index]) / sigma
    name = limit.single_sigma.name
    figure = Figure("worst single score's error, in sigma", value, allowed, "max", provenance, name)
    return Measure(figure, where=f"prompt {index}")


def _unbiased(t: Triple) -> Triple:
    """x and e less their mean errors: prompts of one template share its rounding, and the bias is judged by itself."""
    return replace(t, x=t.x - (t.x - t.r).mean(), e=t.e - (t.e - t.r).mean())


def _bias_and_slope(t: Triple, dtype: str) -> list[Measure]:
    """Mean error, and slope of the error on r: a constant or a factor that an rms of random errors hides."""
    limit = limits().score
    factor = limits().ratio.pooled_float32.value if eps(dtype) == EPS["float32"] else 1.0
    error, allowed = t.x - t.r, t.e - t.r
    deviation = max(float(allowed.std()), _floor(t, dtype))
    standard_error = limit.bias_sigma.value * deviation / math.sqrt(len(t.r))
    shared = max(standard_error, limit.bias_shared.value * deviation)
    bias_limit = max(factor * (abs(float(allowed.mean())) + shared), relative_allowance(dtype, _rms(t.r)))
    provenance = f"the yardstick's own and {limit.bias_sigma.value:g} standard errors; {limit.bias_sigma.provenance}"
    bias_provenance = (
        f"the yardstick's own and {shared / deviation if deviation else 0:.2g} sd; {limit.bias_shared.provenance}"
    )
    bias = abs(float(error.mean()))
    measures = [Measure(Figure("bias", bias, bias_limit, "max", bias_provenance, limit.bias_shared.name))]
    spread = float(t.r.std())
    if spread > 0:
        centred = (t.r - t.r.mean()) / spread
        slope, own = (float((values * centred).mean()) / spread for values in (error, allowed))
        slope_limit = max(factor * (abs(own) + standard_error / spread), relative_allowance(dtype, 1.0))
        name = limit.bias_sigma.name
        measures.append(Measure(Figure("slope of the error", abs(slope), slope_limit, "max", provenance, name)))
    return measures


def _spread(t: Triple, dtype: str) -> list[Measure]:
    limit = limits().score
    spread, sigma, scale = float(t.r.std()), noise(t, dtype), _rms(t.r)
    over_noise = spread / sigma if sigma > 0 else 0.0
    relative = spread / scale if scale > 0 else 0.0
    return [
        Measure(Figure(name, value, bound.value, "min", bound.provenance), Decides.POWER)
        for name, value, bound in (
            ("spread of the reference over noise", over_noise, limit.spread_over_noise),
            ("spread of the reference over size", relative, limit.spread_relative),
        )
    ]


def _floor(t: Triple, dtype: str) -> float:
    return limits().ratio.floor_eps.value * eps(dtype) * _rms(t.r)


def _rms(values: Float64) -> float:
    return float(np.sqrt(np.square(values).mean()))
