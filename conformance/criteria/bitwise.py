"""Answers that are promised to be the same in every bit, by an engine that has a mode for it."""

from __future__ import annotations

import numpy as np

from conformance.criteria.arrays import as_float64, not_finite
from conformance.criteria.finding import Decides, Measure, conclude, refuse
from conformance.criteria.metamorphic import other_tokens
from conformance.judgement import Figure, Judgement
from conformance.runner import Observation


def are_identical(one: Observation, other: Observation, *, rounded: Observation, what: str) -> Judgement:
    """Two answers to the same questions are equal in every bit: `what` says how they were asked.

    `rounded` are answers to them that are rounded otherwise, without the mode: UNDERPOWERED where those are equal in
    every bit too, since then the comparison may see no last bits, or nothing in it depends on how it is computed.
    """
    name = "bitwise.are_identical"
    a, b, c = (as_float64(each.values) for each in (one, other, rounded))  # type: ignore[attr-defined]
    for each in (a, b, c):
        if isinstance(each, str):
            return refuse(name, f"{what}: {each}")
    assert not isinstance(a, str) and not isinstance(b, str) and not isinstance(c, str)
    if a.shape != b.shape or a.shape != c.shape:
        return refuse(name, f"{what}: answers of shapes {list(a.shape)}, {list(b.shape)} and {list(c.shape)}")
    if fault := not_finite(a):
        return refuse(name, f"{what}: {fault}")
    differ = a != b
    faults = other_tokens(one, other)
    measures = [
        Measure(Figure("values that differ", int(differ.sum()), 0.0, "max", "claimed: exact = true"), Decides.EXACT),
        Measure(Figure("prompts that differ", int(differ.reshape(len(a), -1).any(axis=1).sum()))),
        Measure(Figure("greatest difference", float(np.abs(a - b).max(initial=0.0)))),
        Measure(
            Figure(
                "values that differ without the mode",
                int((a != c).sum()),
                1.0,
                "min",
                "where nothing differs without it, equal bits show nothing",
            ),
            Decides.POWER,
        ),
    ]
    return conclude(name, f"{len(a)} answers {what}, bit by bit", measures, rows={"a": a, "b": b}, faults=faults)
