"""Some of a role's prompts again in other company, as the default run asks them, in plain Python.

The rules by which prompts are chosen are those of `suites/company.py`, written down again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from bare_model import Asked

EIGHT, CROWD, SHORTEST, LONGER, DRAWN_FROM = 8, 64, 8, 300, 20261130
FORCED, EDITED = 12, 8

Some = Callable[[Asked, Sequence[int]], Any]


@dataclass(frozen=True)
class Company:
    """How a role's prompts are asked: `some` of them, one in `share`, all or those with a text of so many `tokens`."""

    compared: str
    some: Some
    share: int = 4
    tokens: int = 0

    def lengths(self, asked: Asked) -> list[int]:
        return [len(ids) for ids in asked.part("reference")[self.compared]["prompt_token_ids"]]

    def order(self, asked: Asked) -> list[int]:
        lengths = self.lengths(asked)
        return sorted((row for row, tokens in enumerate(lengths) if tokens >= SHORTEST), key=lambda row: lengths[row])

    def rows(self, asked: Asked) -> list[int]:
        order = self.order(asked)
        if self.tokens:
            texts = asked.part("reference")["greedy"]["token_ids"]
            chosen = [row for row in order if len(texts[row]) >= self.tokens][:EIGHT]
        else:
            chosen = order[: max(EIGHT, len(order) // self.share // EIGHT * EIGHT)]
        random.Random(DRAWN_FROM).shuffle(chosen)
        return chosen

    def among_longer(self, asked: Asked) -> list[int]:
        lengths, rows = self.lengths(asked), self.rows(asked)
        longest = max(lengths[row] for row in rows)
        first, last = (
            min(self.order(asked), key=lambda row: abs(lengths[row] - wanted))
            for wanted in (2 * longest - 1, max(LONGER, 4 * longest))
        )
        return [first, *rows, last]

    def alone(self, asked: Asked) -> Any:
        return np.concatenate([self.some(asked, [row]) for row in self.rows(asked)])

    def in_eights(self, asked: Asked, some: Some | None = None) -> Any:
        return np.concatenate([(some or self.some)(asked, rows) for rows in eights(self.rows(asked))])

    def turned(self, asked: Asked) -> Any:
        return np.concatenate([self.some(asked, rows[::-1]) for rows in eights(self.rows(asked))])

    def in_crowd(self, asked: Asked) -> Any:
        rows = self.rows(asked)
        return self.some(asked, [rows[at % len(rows)] for at in range(max(CROWD, len(rows)))])

    def beside_longer(self, asked: Asked) -> Any:
        return self.some(asked, self.among_longer(asked))

    def answers(self) -> dict[str, Callable[[Asked], Any]]:
        """An answer for each of the observations."""
        return {
            "alone": self.alone,
            "in_eights": self.in_eights,
            "again": self.in_eights,
            "turned": self.turned,
            "in_crowd": self.in_crowd,
            "beside_longer": self.beside_longer,
        }


def eights(rows: Sequence[int]) -> list[list[int]]:
    """Eight rows at a time."""
    return [list(rows[start : start + EIGHT]) for start in range(0, len(rows), EIGHT)]


def with_another_end(text: str) -> str:
    """The text with another last word."""
    words = text.split(" ")
    return " ".join([*words[:-1], "winter" if words[-1] != "winter" else "summer"])
