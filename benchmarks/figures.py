"""What a benchmark found: figures with their limits, judged, printed, and as data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Figure:
    """One number and the limit that it must keep. `note` says in one line what it is made of."""

    name: str
    value: float
    limit: float
    must_be: Literal["at most", "at least"] = "at most"
    unit: str = ""
    note: str = ""

    @property
    def ok(self) -> bool:
        """Whether the limit is kept; a figure that is no number keeps none."""
        return self.value <= self.limit if self.must_be == "at most" else self.value >= self.limit

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; a value that is not finite is null there."""
        return {**asdict(self), "value": self.value if math.isfinite(self.value) else None, "ok": self.ok}


def report(figures: Sequence[Figure]) -> str:
    """A line a figure: ok, too much or too little, what it is, and its limit; below it what it is made of."""
    lines = []
    for figure in figures:
        verdict = "ok" if figure.ok else "TOO MUCH" if figure.must_be == "at most" else "TOO LITTLE"
        unit = f" {figure.unit}" if figure.unit else ""
        lines.append(f"{verdict:10}  {figure.name}: {figure.value:.4g}{unit} ({figure.must_be} {figure.limit:g}{unit})")
        if figure.note:
            lines.append(f"{'':12}{figure.note}")
    return "\n".join(lines)
