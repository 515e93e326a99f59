"""JSON from outside, as the standard has it: in UTF-8, without NaN, of numbers and depths that can be handled."""

from __future__ import annotations

import json
import math
from typing import Any

_LONGEST_INTEGER = 20  # characters: 64 bits


def loads(data: bytes) -> Any:
    """The value that `data` holds; raises ValueError saying what is wrong, also where json raises something else."""
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_constant, parse_float=_float, parse_int=_integer)
    except RecursionError:
        raise ValueError("lists or mappings are nested too deeply") from None


def _constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large for a number")
    return number


def _integer(text: str) -> int:
    if len(text) > _LONGEST_INTEGER:
        raise ValueError(f"{text[:40]} is too large for a number")
    return int(text)
