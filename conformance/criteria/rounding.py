"""Rounding to the dtypes that models are served in, to nearest, ties to even."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from conformance.criteria.arrays import Float64
from conformance.names import unknown

_DROPPED = {"bfloat16": 16, "tf32": 13}
"""Bits of a float32's mantissa that the narrower format does not have; both keep its exponent."""

FORMATS = ("float32", "tf32", "bfloat16", "float16")


def rounded(values: ArrayLike, name: str) -> Float64:
    """The nearest numbers of a format, as float64; beyond its range infinity. ValueError for an unknown format.

    From float64 through float32: the second rounding moves a result only where the first fell on a tie, one time in
    8,000 or fewer.
    """
    if name not in FORMATS:
        raise ValueError(unknown("format", name, FORMATS))
    with np.errstate(over="ignore", invalid="ignore"):
        if name == "float16":
            return np.asarray(values, dtype=np.float16).astype(np.float64)
        narrow = np.array(values, dtype=np.float32)
        if name in _DROPPED:
            drop = _DROPPED[name]
            bits = narrow.view(np.uint32)
            finite = np.isfinite(narrow)
            up = ((bits >> np.uint32(drop)) & np.uint32(1)) + np.uint32((1 << (drop - 1)) - 1)
            kept = (bits + up) & np.uint32(0xFFFFFFFF << drop & 0xFFFFFFFF)
            narrow = np.where(finite, kept.view(np.float32), narrow)
        return narrow.astype(np.float64)
