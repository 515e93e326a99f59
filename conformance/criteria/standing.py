"""What a judgement's limits are worth on the device that was judged by them."""

from __future__ import annotations

from dataclasses import replace

from conformance.criteria.limits import named
from conformance.judgement import Figure, Judgement


def stamped(judgement: Judgement, device: str) -> Judgement:
    """The judgement with each figure's standing on this class of device ("cpu", "cuda" ...).

    Criteria know no device, so this is done where a case's judgements are taken.
    """
    return replace(judgement, figures=tuple(_stamped(figure, device) for figure in judgement.figures))


def _stamped(figure: Figure, device: str) -> Figure:
    if not figure.limit_name:
        return figure
    try:
        limit = named(figure.limit_name)
    except KeyError:  # a suite from elsewhere, with limits of its own
        return figure
    return replace(figure, standing=limit.standing(device))
