"""From measured figures to a judgement: which figure decides, and how it is said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from numpy.typing import NDArray

from conformance.criteria.limits import limits
from conformance.judgement import Figure, Judgement
from conformance.verdict import Verdict

_NAMED_FAULTS = 3


class Decides(Enum):
    """What it means when a figure does not hold."""

    RATIO = "a statistic of errors: a fault, with a grey zone just beyond its limit"
    EXACT = "no statistic: a fault"
    POWER = "not a fault: the inputs could not have shown one"


@dataclass(frozen=True)
class Measure:
    """A figure, what it decides, and where it was found (which prompt, bucket or pair), for the message."""

    figure: Figure
    decides: Decides = Decides.RATIO
    where: str = ""


def conclude(
    criterion: str,
    compared: str,
    measures: Sequence[Measure],
    *,
    rows: Mapping[str, NDArray[Any]],
    faults: Sequence[str] = (),
    doubts: Sequence[str] = (),
    diagnosis: str = "",
) -> Judgement:
    """The judgement that follows from the figures.

    FAIL where a deciding figure does not hold or a fault was found; else UNDERPOWERED where a power figure does not
    hold or there is a doubt; else PASS. `compared` says what was compared, on what ("12 embeddings of 64 numbers"),
    `diagnosis` what a failure looks like.
    """
    figures = tuple(measure.figure for measure in measures)
    broken = [measure for measure in measures if not measure.figure.holds]
    wrong = [measure for measure in broken if measure.decides is not Decides.POWER]
    weak = [measure for measure in broken if measure.decides is Decides.POWER]
    if wrong or faults:
        said = [*_all_said(wrong), *faults]
        message = " ".join([f"{compared}: {_listed(said)}", *([diagnosis] if diagnosis else [])])
        if wrong and not faults and all(_is_grey(measure) for measure in wrong):
            message += f" It lies in the grey zone, within {limits().ratio.grey_zone.value:g} times the limit."
            return Judgement(criterion, Verdict.FAIL, message, figures, rows, stage="grey")
        return Judgement(criterion, Verdict.FAIL, message, figures, rows)
    if weak or doubts:
        said = [*doubts, *_all_said(weak)]
        message = f"{compared}: nothing wrong was found, but the inputs could not have shown it: {_listed(said)}"
        return Judgement(criterion, Verdict.UNDERPOWERED, message, figures, rows)
    held = [measure for measure in measures if measure.figure.limit is not None]
    closest = [measure for measure in held if measure.decides is Decides.RATIO][:1] or held[:1]
    message = f"{compared}: {_said(closest[0])}" if closest else f"{compared}: as it must be"
    if len(held) > 1:
        message += f"; all {len(held)} limits hold"
    return Judgement(criterion, Verdict.PASS, message + ".", figures, rows)


def refuse(criterion: str, message: str, *, rows: Mapping[str, NDArray[Any]] | None = None) -> Judgement:
    """FAIL before any figure could be computed: wrong shape or count, or numbers that are none."""
    return Judgement(criterion, Verdict.FAIL, message, (), rows or {})


def _all_said(measures: Iterable[Measure]) -> list[str]:
    """What is said of each; where limits come from the same place, only the first says where."""
    told: set[str] = set()
    said = []
    for measure in measures:
        said.append(_said(measure, sourced=measure.figure.provenance not in told))
        told.add(measure.figure.provenance)
    return said


def _said(measure: Measure, *, sourced: bool = True) -> str:
    figure = measure.figure
    assert figure.limit is not None
    side = "at most" if figure.bound == "max" else "at least"
    where = f" ({measure.where})" if measure.where else ""
    value = f"{figure.value:.4g}"
    if figure.holds:
        return f"{figure.name} {value}{where}, {side} {figure.limit:.4g} allowed"
    source = f" [{figure.provenance}]" if sourced and figure.provenance else ""
    return f"{figure.name} is {value}{where}, but must be {side} {figure.limit:.4g}{source}"


def _is_grey(measure: Measure) -> bool:
    figure = measure.figure
    if measure.decides is not Decides.RATIO or figure.limit is None:
        return False
    zone = limits().ratio.grey_zone.value
    return figure.value <= figure.limit * zone if figure.bound == "max" else figure.value >= figure.limit / zone


def _listed(said: Sequence[str]) -> str:
    rest = len(said) - _NAMED_FAULTS
    return "; ".join(said[:_NAMED_FAULTS]) + (f"; and {rest} more" if rest > 0 else "") + "."
