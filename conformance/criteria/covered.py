"""What the figures of the matched filter say of its cover: the part that reports need, without numpy."""

from __future__ import annotations

from conformance.criteria.limits import limits
from conformance.judgement import Judgement

UNCERTAINTY = "uncertainty of "
"""What the name of such a figure begins with; the known fault follows."""


def uncovered(judgement: Judgement) -> list[str]:
    """The known faults that a judgement could not have seen: c is not known to 0.1."""
    most = limits().matched.covered.value
    return [
        figure.name.removeprefix(UNCERTAINTY)
        for figure in judgement.figures
        if figure.name.startswith(UNCERTAINTY) and not figure.value <= most
    ]
