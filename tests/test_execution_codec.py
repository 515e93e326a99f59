"""What crosses to a worker comes back the same, and what is malformed is refused by name."""

from __future__ import annotations

import dataclasses
import json
import math
import types
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance import codec, runner
from conformance.codec import ProtocolError, pack, unpack

EFFECTIVE = runner.Effective("float32", "sdpa", {"flash": 3}, 1, 3)
VECTORS = runner.Vectors(((1, 2), ()), EFFECTIVE, np.zeros((2, 4), np.float32))


def same(a: Any, b: Any) -> bool:
    """Equality that looks into arrays, types and NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return bool(a.dtype == b.dtype) and a.shape == b.shape and a.tobytes() == b.tobytes()
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, field.name), getattr(b, field.name)) for field in dataclasses.fields(a))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return bool(a == b)


def arrays() -> st.SearchStrategy[np.ndarray[Any, Any]]:
    def make(name: str, shape: list[int], seed: int) -> np.ndarray[Any, Any]:
        data = np.random.default_rng(seed).integers(0, 2 if name == "bool" else 256, size=shape)
        return np.asarray(data).astype(name)

    return st.builds(
        make, st.sampled_from(sorted(codec.DTYPES)), st.lists(st.integers(0, 4), max_size=4), st.integers(0, 9)
    )


def values() -> st.SearchStrategy[Any]:
    leaves = (
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**64 - 1)
        | st.floats()
        | st.text()
        | st.text(st.characters(categories=["Cs", "Cc"]), max_size=4)
        | arrays()
    )
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.lists(inner, max_size=4).map(tuple)
            | st.dictionaries(st.text(max_size=8), inner, max_size=4)
            | st.just(VECTORS)
        ),
        max_leaves=12,
    )


@settings(max_examples=100, deadline=None)
@given(values())
def test_what_is_packed_comes_back_the_same_by_way_of_json(value: Any) -> None:
    tree, packed = pack(value)
    assert same(unpack(json.loads(json.dumps(tree, allow_nan=False)), packed), value)


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["tuple", "dict", "float", "array", "dataclass", "fields", "code points"]),
                inner,
                max_size=2,
            )
        ),
    )
)
def test_an_arbitrary_tree_is_unpacked_or_refused_but_never_anything_else(tree: Any) -> None:
    try:
        unpack(tree, [np.zeros(2)])
    except ProtocolError as error:
        assert str(error)


def test_every_observation_comes_back_the_same() -> None:
    generations = runner.Generations(
        prompt_token_ids=((1,), (2, 3)),
        effective=EFFECTIVE,
        token_ids=((5, 6), ()),
        texts=("a\x00b", "\u2028"),
        finish_reasons=("length", "stop"),
        logprobs=np.array([[-1.0, -2.0], [np.nan, np.nan]], np.float32),
        top_ids=np.full((2, 2, 3), -1, np.int64),
        top_logprobs=np.full((2, 2, 3), -np.inf, np.float16),
    )
    request = runner.LoadRequest("m", "f", "r", "cpu", "sdpa", "float32", {"pooling": "last", "n": [1, 2.5]})
    assert same(unpack(*pack((generations, VECTORS, request))), (generations, VECTORS, request))


def test_an_array_of_any_layout_arrives_in_c_order_and_little_endian() -> None:
    for array in (np.arange(6, dtype=">i4").reshape(2, 3), np.arange(6.0).reshape(2, 3).T, np.arange(9)[::-2]):
        _, (packed,) = pack(array)
        assert packed.flags.c_contiguous and packed.dtype.str[0] in "<|" and np.array_equal(packed, array)


def test_numpy_scalars_and_other_mappings_become_plain_ones() -> None:
    value = types.MappingProxyType({"a": np.int64(3), "b": np.float32(0.5), "c": np.bool_(True)})
    assert same(unpack(*pack(value)), {"a": 3, "b": 0.5, "c": True})


def test_each_field_of_each_dataclass_has_a_rule() -> None:
    for name in ("LoadRequest", "Effective", "Vectors", "Generations", "ForcedLogprobs", "Scalars", "ClassLogits"):
        for field in dataclasses.fields(getattr(runner, name)):
            assert field.type in codec.FIELD_RULES


@dataclasses.dataclass(frozen=True)
class Vectors:
    """Of the same name as an observation, and yet another class."""

    values: int


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), r"value is a object, which does not travel"),
        ({"a": [1, {2}]}, r"value\.a\[1\] is a set"),
        ({1: 2}, r"has the key 1, a int; only str keys"),
        (2**64, r"integer of 65 bits"),
        (b"bytes", r"value is a bytes"),
        (1j, r"value is a complex"),
        (np.array(["a"]), r"dtype str"),
        (np.array([None]), r"dtype object"),
        (np.zeros(2, complex), r"dtype complex128"),
        (np.zeros((1,) * 9), r"9 dimensions"),
        (np.broadcast_to(np.zeros(1), (2**29,)), r"4294967296 bytes"),
        (np.ma.array([1.0], mask=[True]), r"MaskedArray, but should be a plain numpy array"),
        (Vectors(1), r"value is a Vectors, which does not travel"),
        (runner.Vectors(((1,),), EFFECTIVE, [1.0]), r"Vectors\.values is list .*should be a float array"),  # type: ignore[arg-type]
        (runner.Vectors(((1,),), EFFECTIVE, np.zeros(1, int)), r"Vectors\.values is int64 array"),
        (runner.Vectors([[1]], EFFECTIVE, np.zeros(1)), r"prompt_token_ids is list"),  # type: ignore[arg-type]
        (runner.Vectors(((1.5,),), EFFECTIVE, np.zeros(1)), r"should be a tuple of tuples of int"),  # type: ignore[arg-type]
        (runner.Effective("f", "s", {}, True, 1), r"Effective\.layers is bool"),
    ],
)
def test_what_cannot_travel_is_refused_with_its_place(value: Any, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        pack(value)


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(ProtocolError, match="nested more than 32 deep"):
        pack(value)


FIELDS: Any = pack(EFFECTIVE)[0]["fields"]  # type: ignore[index,call-overload]


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (math.nan, "bare number"),
        ({"tuple": 3}, "none of the agreed forms"),
        ({"tuple": [], "dict": {}}, "none of the agreed forms"),
        ({"float": "1e5"}, "none of the agreed forms"),
        ({"float": ["nan"]}, "none of the agreed forms"),
        ({"code points": [-1]}, "code points that are no integers"),
        ({"code points": ["a"]}, "code points that are no integers"),
        ({"array": 1}, "refers to array 1, but there are 1"),
        ({"array": -1}, "refers to array -1"),
        ({"array": True}, "refers to array True"),
        ([{"array": 0}, {"array": 0}], "referred to elsewhere"),
        (None, "1 of 1 arrays are referred to nowhere"),
        ({"dataclass": "Vektors", "fields": {}}, "did you mean 'Vectors'"),
        ({"dataclass": "Popen", "fields": {}}, "not known"),
        ({"dataclass": "Effective", "fields": {}}, "missing fields"),
        ({"dataclass": "Effective", "fields": {**FIELDS, "more": 1}}, r"unknown fields \['more'\]"),
        ({"dataclass": "Effective", "fields": {**FIELDS, "layers": "two"}}, "should be int"),
        ({"dataclass": "Effective", "fields": {**FIELDS, "kernels": {"dict": {"a": "b"}}}}, "a mapping to int"),
        (2**70, "integer of 71 bits"),
        ((1,), "which is not JSON"),
        ({"dict": {1: 2}}, "only str keys"),
    ],
)
def test_a_malformed_tree_is_refused(tree: Any, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        unpack(tree, [np.zeros(2)])


def test_a_tree_that_is_nested_too_deep_is_refused() -> None:
    tree: Any = None
    for _ in range(40):
        tree = [tree]
    with pytest.raises(ProtocolError, match="nested more than 32 deep"):
        unpack(tree, [])


def test_an_array_of_another_dtype_is_refused_when_unpacked() -> None:
    with pytest.raises(ProtocolError, match="dtype object"):
        unpack({"array": 0}, [np.array([None])])
