"""A point in time by which something must have happened, on the clock that never jumps."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

LOAD_SECONDS, CASE_SECONDS = 600.0, 300.0
"""How long loading a model and running one case may take, unless the user says otherwise."""


@dataclass(frozen=True)
class Deadline:
    """`at` is in seconds of `time.monotonic()`; `seconds` is how long was allowed, for messages."""

    at: float
    seconds: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """The deadline that many seconds from now."""
        return cls(time.monotonic() + seconds, seconds)

    @classmethod
    def never(cls) -> Deadline:
        """The deadline that does not come."""
        return cls(math.inf, math.inf)

    def remaining(self) -> float | None:
        """Seconds left, 0 where it has passed, None where it never comes (what a socket's timeout expects)."""
        return None if math.isinf(self.at) else max(0.0, self.at - time.monotonic())

    @property
    def has_passed(self) -> bool:
        """Whether it is too late."""
        return time.monotonic() >= self.at

    def or_sooner(self, other: Deadline) -> Deadline:
        """The earlier of two deadlines."""
        return self if self.at <= other.at else other

    def __str__(self) -> str:
        return "ever" if math.isinf(self.seconds) else f"{self.seconds:g} s"


NEVER = Deadline.never()
