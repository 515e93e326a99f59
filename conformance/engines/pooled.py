"""Models that answer a prompt with one vector, score or row of logits: which roles they play, how they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from conformance.runner import Floats

_ROLES = ("embedding", "rerank.cross_encoder", "classification", "reward")


def is_pooled(role: str) -> bool:
    """Whether models of a role answer with one vector, score or row of logits, and not with tokens."""
    return any(role == each or role.startswith(f"{each}.") for each in _ROLES)


def stacked(rows: Sequence[Floats], engine: str) -> Floats:
    """Rows of one width as float [n, width]; ValueError, which names the engine, where they have several or more axes.

    Of no rows, an empty array in float32.
    """
    shapes = sorted({row.shape for row in rows})
    if len(shapes) > 1 or any(len(shape) != 1 for shape in shapes):
        raise ValueError(f"{engine} pooled prompts to shapes {shapes}, but each should have one and the same width")
    return np.stack(rows) if rows else np.zeros((0, 0), np.float32)


def single(values: Floats) -> Floats:
    """Scores [n] of answers [n, 1]; ValueError where there are more than one a prompt."""
    if values.ndim != 2 or values.shape[1] != 1:
        raise ValueError(f"the model answers {values.shape[1:]} values a prompt, but one score was asked for")
    return values[:, 0]
