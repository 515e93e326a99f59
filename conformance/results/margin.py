"""How much of its limit a figure uses: the number that ranks figures of different kinds by how close they came."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from conformance.judgement import Figure
from conformance.results.plain import number_from_json, number_to_json
from conformance.results.record import figure_from_json, figure_to_json

_JUST_OVER = math.nextafter(1.0, 2.0)


@dataclass(frozen=True)
class Margin:
    """The margin of one figure, and the case it belongs to. Above 1 the figure is outside its limit."""

    margin: float
    figure: Figure
    case: str

    def to_json(self) -> dict[str, Any]:
        """A mapping of JSON types only."""
        return {"margin": number_to_json(self.margin), "case": self.case, "figure": figure_to_json(self.figure)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Margin:
        """The margin that `to_json` wrote; raises `RecordError` for figures that are none."""
        figure = figure_from_json(data["figure"], "worst margin, figure")
        return Margin(number_from_json(data["margin"], "worst margin"), figure, str(data["case"]))


def margin(figure: Figure) -> float | None:
    """value/limit for a maximum, limit/value for a minimum: at most 1 exactly where the figure holds.

    None where there is no limit. Where a ratio says nothing (zero or negative numbers, such as a count of
    differing tokens that must be 0) it is 0 if the figure holds and infinity if it does not; NaN never holds.
    """
    if figure.limit is None:
        return None
    numerator, denominator = figure.value, figure.limit
    if figure.bound == "min":
        numerator, denominator = denominator, numerator
    if numerator > 0 and denominator > 0 and math.isfinite(numerator):
        # Division may round a value just outside its limit to 1.
        ratio = numerator / denominator
        return min(ratio, 1.0) if figure.holds else max(ratio, _JUST_OVER)
    return 0.0 if figure.holds else math.inf


def worst_margin(figures: Iterable[tuple[str, Figure]]) -> Margin | None:
    """The largest margin among (case id, figure) pairs, the first of equals; None where no figure has a limit.

    A minimum that holds comes after every maximum: such figures say how much the inputs could have shown, and
    having exactly the 16 prompts that are needed is no closeness to a fault.
    """
    worst: tuple[tuple[bool, float], Margin] | None = None
    for case, figure in figures:
        share = margin(figure)
        if share is None:
            continue
        rank = (figure.bound == "max" or not figure.holds, share)
        if worst is None or rank > worst[0]:
            worst = rank, Margin(share, figure, case)
    return None if worst is None else worst[1]
