"""Observations and arguments as a JSON-able tree beside a list of plain arrays, and back.

The same form crosses the channel to a worker and is stored in files. It is closed: only the dataclasses of
`conformance.runner` are ever instantiated, by name, with exactly their fields; nothing is evaluated or unpickled.

In the tree None, bool, int, finite float, str and list stand for themselves; everything else is a table:
`{"tuple": [...]}`, `{"dict": {...}}`, `{"float": "nan" | "inf" | "-inf"}`, `{"array": index}`,
`{"dataclass": name, "fields": {...}}`, and `{"code points": [...]}` for a str with surrogates, which JSON would join.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from conformance import runner


class ProtocolError(Exception):
    """A message, or a stored observation, that does not have the agreed form."""


Tree = bool | int | float | str | list[Any] | dict[str, Any] | None
Array = NDArray[Any]

MAX_DEPTH = 32
MAX_DIMENSIONS = 8
MAX_ARRAYS = 65_536
MAX_ARRAY_BYTES = 2**31
_INTEGERS = range(-(2**63), 2**64)

DTYPES: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(name).newbyteorder("<")
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64"),
    )
}
"""The dtypes that travel, little-endian."""

_DATACLASSES: Mapping[str, type] = {
    kind.__name__: kind
    for kind in (
        runner.LoadRequest,
        runner.VisionEffective,
        runner.Effective,
        runner.Observation,
        runner.Vectors,
        runner.Scalars,
        runner.ClassLogits,
        runner.TokenLogprobs,
        runner.Generations,
        runner.ForcedLogprobs,
        runner.VisionFeatures,
        runner.AttentionCall,
        runner.AttentionOutputs,
    )
}
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def pack(value: object) -> tuple[Tree, list[Array]]:
    """`value` as a JSON-able tree and the arrays it refers to, C-ordered and little-endian.

    Numpy scalars become Python numbers and every mapping a dict; all else comes back from `unpack` as it was.
    Raises ProtocolError for anything that has no form here, naming where in `value` it is.
    """
    arrays: list[Array] = []
    return _pack(value, "value", 0, arrays), arrays


def unpack(tree: Tree, arrays: Sequence[Array]) -> Any:
    """The value that `pack` was given. Raises ProtocolError where tree or arrays are not what `pack` makes."""
    if len(arrays) > MAX_ARRAYS:
        raise ProtocolError(f"{len(arrays)} arrays, but at most {MAX_ARRAYS} are allowed")
    used: set[int] = set()
    value = _unpack(tree, "value", 0, arrays, used)
    if len(used) != len(arrays):
        unused = sorted(set(range(len(arrays))) - used)
        raise ProtocolError(f"{len(unused)} of {len(arrays)} arrays are referred to nowhere, the first is {unused[0]}")
    return value


def check_array(array: object, where: str) -> Array:
    """`array` in the form that travels, or ProtocolError where its kind, dtype or size is not allowed."""
    if type(array) is not np.ndarray:
        raise ProtocolError(f"{where} is a {type(array).__name__}, but should be a plain numpy array")
    wanted = DTYPES.get(array.dtype.name)
    if wanted is None:
        raise ProtocolError(f"{where} has dtype {array.dtype.name}, but only {', '.join(DTYPES)} travel")
    if array.ndim > MAX_DIMENSIONS:
        raise ProtocolError(f"{where} has {array.ndim} dimensions, but at most {MAX_DIMENSIONS} are allowed")
    if array.nbytes > MAX_ARRAY_BYTES:
        raise ProtocolError(f"{where} has {array.nbytes} bytes, but at most {MAX_ARRAY_BYTES} are allowed")
    return array.astype(wanted, order="C", copy=False)


def _pack(value: object, where: str, depth: int, arrays: list[Array]) -> Tree:
    if depth > MAX_DEPTH:
        raise ProtocolError(f"{where} is nested more than {MAX_DEPTH} deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _pack_str(str.__str__(value))
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return _integer(int(value), where)
    if isinstance(value, (float, np.floating)):
        return _pack_float(float(value))
    if isinstance(value, np.ndarray):
        array = check_array(value, where)
        if len(arrays) == MAX_ARRAYS:
            raise ProtocolError(f"{where} is one array too many: at most {MAX_ARRAYS} are allowed")
        arrays.append(array)
        return {"array": len(arrays) - 1}
    if isinstance(value, list):
        return [_pack(item, f"{where}[{i}]", depth + 1, arrays) for i, item in enumerate(value)]
    if type(value) is tuple:
        return {"tuple": [_pack(item, f"{where}[{i}]", depth + 1, arrays) for i, item in enumerate(value)]}
    if isinstance(value, Mapping):
        return {"dict": _pack_fields(value, where, depth, arrays)}
    name = type(value).__name__
    if _DATACLASSES.get(name) is type(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(_DATACLASSES[name])}
        _check_fields(name, fields, where)
        return {"dataclass": name, "fields": _pack_fields(fields, where, depth, arrays)}
    raise ProtocolError(f"{where} is a {name}, which does not travel; {_what_travels()}")


def _pack_fields(fields: Mapping[Any, Any], where: str, depth: int, arrays: list[Array]) -> dict[str, Tree]:
    for key in fields:
        if not isinstance(key, str):
            raise ProtocolError(f"{where} has the key {key!r}, a {type(key).__name__}; only str keys travel")
    return {str(key): _pack(item, f"{where}.{key}", depth + 1, arrays) for key, item in fields.items()}


def _pack_str(value: str) -> Tree:
    try:
        value.encode()
    except UnicodeEncodeError:
        return {"code points": [ord(character) for character in value]}
    return value


def _pack_float(value: float) -> Tree:
    if math.isfinite(value):
        return value
    return {"float": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}


def _integer(value: int, where: str) -> int:
    if value not in _INTEGERS:
        raise ProtocolError(f"{where} is an integer of {value.bit_length()} bits, but at most 64 travel")
    return value


def _unpack(tree: object, where: str, depth: int, arrays: Sequence[Array], used: set[int]) -> Any:
    if depth > MAX_DEPTH:
        raise ProtocolError(f"{where} is nested more than {MAX_DEPTH} deep")
    if tree is None or isinstance(tree, (bool, str)):
        return tree
    if isinstance(tree, int):
        return _integer(tree, where)
    if isinstance(tree, float):
        if not math.isfinite(tree):
            raise ProtocolError(f"{where} is the bare number {tree}; it should be written as a table")
        return tree
    if isinstance(tree, list):
        return [_unpack(item, f"{where}[{i}]", depth + 1, arrays, used) for i, item in enumerate(tree)]
    if not isinstance(tree, dict):
        raise ProtocolError(f"{where} is a {type(tree).__name__}, which is not JSON")
    keys = set(tree)
    if keys == {"tuple"} and isinstance(tree["tuple"], list):
        items = enumerate(tree["tuple"])
        return tuple(_unpack(item, f"{where}[{i}]", depth + 1, arrays, used) for i, item in items)
    if keys == {"dict"} and isinstance(tree["dict"], dict):
        return _unpack_fields(tree["dict"], where, depth, arrays, used)
    if keys == {"float"} and isinstance(tree["float"], str) and tree["float"] in _FLOATS:
        return _FLOATS[tree["float"]]
    if keys == {"code points"} and isinstance(tree["code points"], list):
        return _unpack_str(tree["code points"], where)
    if keys == {"array"}:
        return _unpack_array(tree["array"], where, arrays, used)
    if keys == {"dataclass", "fields"} and isinstance(tree["dataclass"], str) and isinstance(tree["fields"], dict):
        return _unpack_dataclass(tree["dataclass"], tree["fields"], where, depth, arrays, used)
    raise ProtocolError(
        f"{where} is a table with the keys {sorted(map(str, keys))[:5]}, which is none of the agreed forms: "
        "tuple, dict, float, array, code points, dataclass with fields"
    )


def _unpack_fields(
    fields: dict[Any, Any], where: str, depth: int, arrays: Sequence[Array], used: set[int]
) -> dict[str, Any]:
    for key in fields:
        if not isinstance(key, str):
            raise ProtocolError(f"{where} has the key {key!r}, a {type(key).__name__}, but should have only str keys")
    return {key: _unpack(item, f"{where}.{key}", depth + 1, arrays, used) for key, item in fields.items()}


def _unpack_str(points: list[Any], where: str) -> str:
    if not all(type(point) is int and 0 <= point <= 0x10FFFF for point in points):
        raise ProtocolError(f"{where} has code points that are no integers from 0 to 0x10ffff")
    return "".join(map(chr, points))


def _unpack_array(index: object, where: str, arrays: Sequence[Array], used: set[int]) -> Array:
    if type(index) is not int or not 0 <= index < len(arrays):
        raise ProtocolError(f"{where} refers to array {index!r}, but there are {len(arrays)} arrays")
    if index in used:
        raise ProtocolError(f"{where} refers to array {index}, which is referred to elsewhere already")
    used.add(index)
    return check_array(arrays[index], where)


def _unpack_dataclass(
    name: str, tree: dict[Any, Any], where: str, depth: int, arrays: Sequence[Array], used: set[int]
) -> Any:
    kind = _DATACLASSES.get(name)
    if kind is None:
        near = difflib.get_close_matches(name, _DATACLASSES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(_DATACLASSES)}"
        raise ProtocolError(f"{where} names the dataclass {name[:80]!r}, which is not known{hint}")
    expected = [field.name for field in dataclasses.fields(kind)]
    # A field with a default may be younger than the stored file.
    needed = [field.name for field in dataclasses.fields(kind) if _has_no_default(field)]
    if not set(needed) <= set(tree) <= set(expected):
        missing = [field for field in needed if field not in tree]
        unknown = sorted(map(str, set(tree) - set(expected)))
        raise ProtocolError(f"{where} is no {name}: missing fields {missing}, unknown fields {unknown[:5]}")
    fields = _unpack_fields(tree, where, depth, arrays, used)
    _check_fields(name, fields, where)
    return kind(**fields)


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _is_tuple_of(kinds: type | tuple[type, ...]) -> Callable[[object], bool]:
    return lambda value: type(value) is tuple and all(isinstance(item, kinds) for item in value)


def _is_token_ids(value: object) -> bool:
    ids = _is_tuple_of((int, np.integer))
    return type(value) is tuple and all(ids(item) for item in value)


def _is_grid(value: object) -> bool:
    return _is_tuple_of((int, np.integer))(value) and len(value) == 3  # type: ignore[arg-type]


def _is_grids(value: object) -> bool:
    return type(value) is tuple and all(_is_grid(item) for item in value)


def _is_array_of(kind: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, np.ndarray) and np.issubdtype(value.dtype, kind)


# By the annotation as it is written in runner.py, whose array types exist for type checkers only.
FIELD_RULES: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "str": (lambda value: isinstance(value, str), "str"),
    "int": (lambda value: isinstance(value, (int, np.integer)) and not isinstance(value, bool), "int"),
    "Mapping[str, int]": (
        lambda value: isinstance(value, Mapping) and all(isinstance(n, (int, np.integer)) for n in value.values()),
        "a mapping to int",
    ),
    "Mapping[str, Any]": (lambda value: isinstance(value, Mapping), "a mapping"),
    "Effective": (lambda value: type(value) is runner.Effective, "Effective"),
    "VisionEffective | None": (
        lambda value: value is None or type(value) is runner.VisionEffective,
        "VisionEffective or None",
    ),
    "tuple[Grid, ...]": (_is_grids, "a tuple of tuples of three int"),
    "tuple[tuple[Grid, ...], ...]": (
        lambda value: type(value) is tuple and all(_is_grids(item) for item in value),
        "a tuple of tuples of grids, each of three int",
    ),
    "tuple[TokenIds, ...]": (_is_token_ids, "a tuple of tuples of int"),
    "tuple[str, ...]": (_is_tuple_of(str), "a tuple of str"),
    "tuple[tuple[str, ...], ...]": (
        lambda value: type(value) is tuple and all(_is_tuple_of(str)(item) for item in value),
        "a tuple of tuples of str",
    ),
    "tuple[Floats, ...]": (
        lambda value: type(value) is tuple and all(_is_array_of(np.floating)(item) for item in value),
        "a tuple of float arrays",
    ),
    "tuple[int, ...] | None": (lambda value: value is None or _is_tuple_of(int)(value), "a tuple of int or None"),
    "int | None": (lambda value: value is None or type(value) is int, "int or None"),
    "float | None": (lambda value: value is None or type(value) in (int, float), "float or None"),
    "Evidence": (lambda value: value in get_args(runner.Evidence), "counted, resolved or undisclosed"),
    "Mapping[str, str]": (
        lambda value: isinstance(value, Mapping) and all(isinstance(each, str) for each in value.values()),
        "a mapping to str",
    ),
    "bool": (lambda value: type(value) is bool, "bool"),
    "Floats": (_is_array_of(np.floating), "a float array"),
    "Integers": (_is_array_of(np.integer), "an integer array"),
}


def _check_fields(name: str, fields: Mapping[str, object], where: str) -> None:
    for field in dataclasses.fields(_DATACLASSES[name]):
        if field.name not in fields:
            continue
        holds, expected = FIELD_RULES[str(field.type)]
        value = fields[field.name]
        if not holds(value):
            got = f"{value.dtype} array" if isinstance(value, np.ndarray) else type(value).__name__
            raise ProtocolError(f"{where}: {name}.{field.name} is {got} ({value!r:.60}), but should be {expected}")


def _what_travels() -> str:
    return f"None, bool, int, float, str, list, tuple, dict, numpy arrays and {', '.join(_DATACLASSES)} do"
