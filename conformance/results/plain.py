"""JSON types: what records become when they are written, and the strict reading of what was."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class RecordError(ValueError):
    """A recorded mapping is not what `to_json` writes; the message names the place and what was expected there."""


def number_to_json(value: float) -> float | str:
    """JSON has no NaN and no infinity: they become "nan", "inf" and "-inf"."""
    number = float(value)
    if math.isnan(number):
        return "nan"
    return number if math.isfinite(number) else ("inf" if number > 0 else "-inf")


def number_from_json(value: object, where: str) -> float:
    """The number that `number_to_json` wrote; raises `RecordError` naming `where` for anything else."""
    if isinstance(value, str) and value in _NON_FINITE:
        return _NON_FINITE[value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise RecordError(f'{where}: {value!r} is no number; a number or one of "nan", "inf", "-inf" belongs there')


def to_plain(value: Any) -> Any:
    """`value` with JSON types only: keys as strings, tuples and sets as lists, non-finite floats as strings.

    Anything else (a path, a version, a date) becomes its text, so that facts of any origin can be recorded.
    """
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return number_to_json(value)
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(str(item) for item in value)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [to_plain(item) for item in value]
    return str(value)


def exactly(data: Any, names: Sequence[str], where: str) -> Mapping[str, Any]:
    """`data`, a mapping with these keys and no other; raises `RecordError` naming `where`, as all of these do."""
    if not isinstance(data, Mapping):
        raise RecordError(f"{where}: {type(data).__name__} found where a mapping with {list(names)} belongs")
    missing = [name for name in names if name not in data]
    unknown = [str(name) for name in data if name not in names]
    if missing or unknown:
        raise RecordError(f"{where}: missing {missing}, unknown {unknown}; exactly {list(names)} belong there")
    return data


def entries_at(data: object, where: str) -> list[tuple[str, Any]]:
    """The entries of a mapping, its keys as text."""
    if not isinstance(data, Mapping):
        raise RecordError(f"{where}: {type(data).__name__} found where a mapping belongs")
    return [(str(key), value) for key, value in data.items()]


def list_at(data: object, where: str) -> list[Any]:
    """`data`, a list."""
    if not isinstance(data, list):
        raise RecordError(f"{where}: {type(data).__name__} found where a list belongs")
    return data


def text_at(value: object, where: str) -> str:
    """`value`, a text."""
    if not isinstance(value, str):
        raise RecordError(f"{where}: {value!r} found where text belongs")
    return value


def count_at(value: object, where: str) -> int:
    """`value`, an integer that is not negative."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise RecordError(f"{where}: {value!r} found where a count belongs")
    return value
