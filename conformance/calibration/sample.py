"""What is taken from a null's judgements: its figures on the scale of their limits, and whether it was accused."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from conformance.criteria.limit import Limit
from conformance.judgement import Figure, Judgement, accusing
from conformance.verdict import Verdict

GREATEST = 1e9
"""No sample is above: limits are tens at most, and what is worked out from samples stays a number that is written."""


@dataclass(frozen=True)
class Question:
    """What was asked of a null, whichever null it is: one test of a suite on one model and target.

    `device` is the class of device; attention backend and device together are one of those that a limit has to hold
    for when it was left out.
    """

    device: str
    attention: str
    dtype: str
    precision: str  # claimed, which picks the yardstick
    suite: str
    test: str
    model: str

    @property
    def backend(self) -> str:
        """The attention backend with its class of device, as people call it: "cpu sdpa"."""
        return f"{self.device} {self.attention}"


@dataclass(frozen=True)
class Sample:
    """One figure of one null. `value` is on the scale of the limit `entry`: there it holds while it is at most that."""

    entry: str
    figure: str
    question: Question
    null: str
    value: float


@dataclass(frozen=True)
class Alarm:
    """A null that was accused: the case, and the judgement's own words."""

    null: str
    case: str
    criterion: str
    message: str


@dataclass
class Taken:
    """What has been taken so far. Results that are equal to the last bit are one judgement, however they came about."""

    samples: list[Sample] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)
    judgements: int = 0
    identical: int = 0
    inconclusive: int = 0
    _seen: set[tuple[Any, ...]] = field(default_factory=set)

    def take(
        self,
        question: Question,
        null: str,
        case: str,
        judgements: Sequence[Judgement],
        limits: Mapping[str, Limit],
        *,
        seed: int = 0,
    ) -> None:
        """The judgements of one case; those without rows judge evidence, not numbers, and count only as alarms.

        A figure in the grey zone that fresh prompts cleared is a sample and no alarm. Equal results are told by what
        was judged, not by the attention backend: where two share a kernel, it is one.
        """
        self.alarms += [Alarm(null, case, one.criterion, one.message) for one in accusing(judgements)]
        for judgement in judgements:
            if not judgement.rows:
                continue
            alike = (replace(question, attention=""), seed, judgement.criterion, digest(judgement))
            if alike in self._seen:
                self.identical += 1
                continue
            self._seen.add(alike)
            self.judgements += 1
            self.inconclusive += judgement.verdict is Verdict.UNDERPOWERED
            for figure in judgement.figures:
                scaled = on_scale(figure, limits)
                if scaled is not None:
                    self.samples.append(Sample(figure.limit_name, figure.name, question, null, scaled))


def on_scale(figure: Figure, limits: Mapping[str, Limit]) -> float | None:
    """The figure on the scale of the entry that its limit follows from; None where that is no measured one.

    Nor is there one for a figure that is not finite or beyond `GREATEST`, which is an alarm and no measure of rounding.

    A figure's limit may be wider than the entry (in float32, for few samples) or a multiple of it, so the figure's
    share of its limit is taken as the share of the entry: equal to the figure itself where the limit is the entry.
    """
    entry = limits.get(figure.limit_name)
    if entry is None or entry.floor is None or not figure.limit or figure.bound != "max":
        return None
    scaled = figure.value / figure.limit * entry.value
    return max(scaled, 0.0) if abs(scaled) <= GREATEST else None  # nor is NaN


def digest(judgement: Judgement) -> str:
    """Of what was judged, to the last bit: the engine's rows, which `x` names, or all that there are."""
    rows = {"x": judgement.rows["x"]} if "x" in judgement.rows else judgement.rows
    found = hashlib.sha256()
    for name in sorted(rows):
        array = np.ascontiguousarray(rows[name])
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()
