"""What an error looks like: a constant offset, a gain, or classes in another order. Reported, never judged.

Least squares (any textbook): the error d = x - r is fitted by a constant, by a multiple of r, and by both. A model
explains the share 1 - sum(d - fit)^2 / sum d^2 of the error; the simplest that explains most of it is said in words.
Standard errors are those of independent errors of one size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from conformance.criteria.arrays import Float64
from conformance.criteria.finding import Measure
from conformance.judgement import Figure

_MOST, _SIGNIFICANT, _NAMED = 0.5, 4.0, 3
"""A model is said where it explains this share of the error, its parameter being this many standard errors from none;
and so many classes are named."""

_CAUSE_OF_OFFSET = "as a bias of the head or a shifted template would"
_CAUSE_OF_GAIN = "as a scale of the head or a temperature would"


@dataclass(frozen=True)
class Fit:
    """One parameter, its standard error, and the share of the error that it explains by itself."""

    value: float
    deviation: float
    share: float

    @property
    def is_said(self) -> bool:
        """Whether it is worth a sentence."""
        return self.share >= _MOST and abs(self.value) > _SIGNIFICANT * self.deviation


@dataclass(frozen=True)
class Line:
    """The error of scores as a line in r: `offset` alone, `stretch` (the gain less one) alone, and both together.

    `slope` is the stretch beside an offset, which is what the gain is reported from.
    """

    offset: Fit
    stretch: Fit
    slope: Fit
    share: float


def line(x: Float64, r: Float64) -> Line:
    """Scores x against reference r, both [n], finite."""
    error, centred = x - r, r - r.mean()
    offset = _along(error, np.ones_like(r), 1)
    residual = error - offset.value
    slope = _along(residual, centred, 2)
    total = float(np.square(error).sum())
    left = float(np.square(residual - slope.value * centred).sum())
    return Line(offset, _along(error, r, 1), slope, 1 - left / total if total > 0 else 0.0)


def of_scores(x: Float64, r: Float64) -> tuple[list[Measure], str]:
    """The figures of the line, and what they suggest in a sentence."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = line(x, r)
    return _figures(found.offset, found.slope), _said(found)


def of_classes(x: Float64, r: Float64) -> tuple[list[Measure], str]:
    """The same for centred class logits x against r, both [n, classes]; one gain for all, an offset for each class."""
    with np.errstate(over="ignore", invalid="ignore"):
        error = x - r
        means = error.mean(axis=0)
        total = float(np.square(error).sum())
        worst = int(np.abs(means).argmax())
        count = len(r)
        share = count * float(np.square(means).sum()) / total if total > 0 else 0.0
        spread = float(error[:, worst].std(ddof=1)) if count > 1 else math.inf
        offset = Fit(float(means[worst]), spread / math.sqrt(count), share)
        gain = _along(error.ravel(), r.ravel(), 1)
        order = _order(x, r)
    figures = _figures(offset, gain, " of the class that is furthest off")
    if order is not None:
        explained, found = order
        moved = [f"{given} where {k} belongs" for k, given in enumerate(found) if k != given]
        more = f" and {len(moved) - _NAMED} more" if len(moved) > _NAMED else ""
        return figures, (
            f"The classes stand in another order, which explains {explained:.0%} of the error: the engine has class "
            f"{', '.join(moved[:_NAMED])}{more}."
        )
    if gain.is_said and gain.share >= offset.share:
        return figures, _gain_said(gain)
    if offset.is_said:
        return figures, (
            f"A constant offset of each class, {_signed(offset)} of class {worst}, explains {offset.share:.0%} of the "
            f"error, {_CAUSE_OF_OFFSET}."
        )
    return figures, _nothing(max(offset.share, gain.share))


def _said(found: Line) -> str:
    single = max(found.offset, found.stretch, key=lambda fit: fit.share)
    if found.share < _MOST:
        return _nothing(found.share)
    if single.share >= 0.9 * found.share and single.is_said:
        return _offset_said(single) if single is found.offset else _gain_said(single)
    if abs(found.slope.value) > _SIGNIFICANT * found.slope.deviation:
        return (
            f"A gain of {_gain(found.slope)} with an offset of {_signed(found.offset)} at the mean score explains "
            f"{found.share:.0%} of the error, {_cause(found.slope)}."
        )
    return _nothing(found.share)


def _offset_said(fit: Fit) -> str:
    return f"A constant offset of {_signed(fit)} explains {fit.share:.0%} of the error, {_CAUSE_OF_OFFSET}."


def _gain_said(fit: Fit) -> str:
    return f"A gain of {_gain(fit)} explains {fit.share:.0%} of the error, {_cause(fit)}."


def _cause(stretch: Fit) -> str:
    gain = 1 + stretch.value
    if abs(gain + 1) < 0.1:
        return "as two answers that are swapped, or a turned sign, would"
    if abs(gain) < 0.1:
        return "so the answers hardly follow their prompts"
    return _CAUSE_OF_GAIN


def _nothing(share: float) -> str:
    return (
        f"Neither a constant offset nor a gain explains it (together {max(0.0, share):.0%} of the error): single "
        "answers are wrong, or all are less precise."
    )


def _figures(offset: Fit, stretch: Fit, of: str = "") -> list[Measure]:
    named = (
        (f"offset{of}", offset.value),
        (f"standard error of the offset{of}", offset.deviation),
        ("gain", 1 + stretch.value),
        ("standard error of the gain", stretch.deviation),
    )
    return [Measure(Figure(name, value)) for name, value in named]


def _along(error: Float64, direction: Float64, parameters: int) -> Fit:
    """The multiple of `direction` that fits `error` best; its standard error, with so many parameters fitted."""
    size, total = float(np.square(direction).sum()), float(np.square(error).sum())
    if size == 0:
        return Fit(0.0, math.inf, 0.0)
    value = float((error * direction).sum()) / size
    left = float(np.square(error - value * direction).sum())
    free = len(error) - parameters
    deviation = math.sqrt(left / free / size) if free > 0 else math.inf
    return Fit(value, deviation, 1 - left / total if total > 0 else 0.0)


def _order(x: Float64, r: Float64) -> tuple[float, list[int]] | None:
    """The other order of the engine's classes that explains most of the error, where there is one."""
    apart = np.square(x).sum(axis=0)[None, :] - 2 * r.T @ x + np.square(r).sum(axis=0)[:, None]
    found = apart.argmin(axis=1).tolist()
    total = float(np.trace(apart))
    if sorted(found) != list(range(len(found))) or found == sorted(found) or not total > 0:
        return None
    left = float(np.square(x[:, found] - r).sum())
    explained = 1 - left / float(np.square(x - r).sum())
    return (explained, found) if explained >= _MOST else None


def _signed(fit: Fit) -> str:
    return f"{fit.value:+.4g} +- {fit.deviation:.2g}"


def _gain(fit: Fit) -> str:
    return f"{1 + fit.value:.4g} +- {fit.deviation:.2g}"
