"""Whether a comparison is about anything: prompts were cut, a cache was read, bits were there to be seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.criteria.bitwise import are_identical
from conformance.criteria.served import anew, at_edges, edges, from_cache, in_chunks, in_common
from conformance.runner import Effective, Observation, Vectors
from conformance.verdict import Verdict

RAN = Effective("bfloat16", "plain", {"toy::plain": 4}, 1, 4)
IDS = tuple(tuple(range(row, row + 10)) for row in range(8))


def _vectors(values: Any, ids: Any = IDS) -> Vectors:
    return Vectors(ids, RAN, values)


VALUES = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
OTHERWISE = np.nextafter(VALUES, np.float32(9))


@pytest.mark.parametrize(("passes", "verdict"), [(5, Verdict.PASS), (4, Verdict.UNDERPOWERED)])
def test_more_passes_show_that_prompts_were_cut(passes: int, verdict: Verdict) -> None:
    assert in_chunks(RAN, replace(RAN, forwards=passes)).verdict is verdict


def test_passes_that_nobody_counted_decide_nothing() -> None:
    found = in_chunks(replace(RAN, evidence="resolved", forwards=1), replace(RAN, evidence="resolved", forwards=1))
    assert found.verdict is Verdict.PASS and "unseen" in found.message


@pytest.mark.parametrize(
    ("cached", "verdict", "because"),
    [
        (48, Verdict.PASS, ""),
        (50, Verdict.PASS, ""),
        (47, Verdict.UNDERPOWERED, "tokens from the cache is 47"),
        (0, Verdict.UNDERPOWERED, "the whole blocks of 16"),
        (None, Verdict.UNDERPOWERED, "a hit that nobody saw"),
        (51, Verdict.FAIL, "beyond those that are shared is 1"),
    ],
)
def test_a_cache_must_have_had_the_blocks_that_are_shared_and_no_more(
    cached: int | None, verdict: Verdict, because: str
) -> None:
    found = from_cache(replace(RAN, cached_tokens=cached), shared=[2, 16, 32], block=16)
    assert found.verdict is verdict and because in found.message


@pytest.mark.parametrize(("cached", "verdict"), [(None, Verdict.PASS), (0, Verdict.PASS), (1, Verdict.UNDERPOWERED)])
def test_what_came_from_a_cache_was_not_read_anew(cached: int | None, verdict: Verdict) -> None:
    assert anew(replace(RAN, cached_tokens=cached)).verdict is verdict


def _leaving(shared: list[int]) -> tuple[Observation, Any]:
    trunk = tuple(range(100))
    found = tuple((*trunk[:at], 999, *trunk[at + 1 :]) for at in shared)
    return Observation(found, RAN), [trunk] * len(shared)


def test_prefixes_must_end_at_every_edge_of_a_block() -> None:
    assert edges(16) == (15, 16, 17, 32) and edges(1) == (1, 2, 2)
    assert at_edges(*_leaving([15, 16, 17, 32]), blocks=[16]).verdict is Verdict.PASS
    found = at_edges(*_leaving([15, 16, 18, 32]), blocks=[16])
    assert found.verdict is Verdict.UNDERPOWERED and "no prompt shares 17 tokens" in found.message


def test_fewer_prompts_than_were_asked_are_a_failure() -> None:
    found, beside = _leaving([15, 16])
    assert at_edges(found, beside[:1], blocks=[16]).verdict is Verdict.FAIL


def test_what_two_prompts_have_in_common_ends_with_the_shorter() -> None:
    assert [in_common((1, 2), (1, 2, 3)), in_common((1, 2), (2, 2)), in_common((), (1,))] == [2, 0, 0]


def _bits(other: Any, rounded: Any = OTHERWISE, one: Any = VALUES, ids: Any = IDS) -> Any:
    return are_identical(_vectors(one), _vectors(other, ids), rounded=_vectors(rounded), what="asked twice")


def test_equal_bits_pass_where_others_differ_without_the_mode() -> None:
    assert _bits(VALUES.copy()).verdict is Verdict.PASS


def test_one_other_bit_fails() -> None:
    other = VALUES.copy()
    other[3, 5] = OTHERWISE[3, 5]
    found = _bits(other)
    assert found.verdict is Verdict.FAIL and "values that differ is 1" in found.message


def test_equal_bits_show_nothing_where_nothing_differs_without_the_mode() -> None:
    assert _bits(VALUES, rounded=VALUES).verdict is Verdict.UNDERPOWERED


@pytest.mark.parametrize(
    ("other", "because"),
    [
        (VALUES[:7], "shapes"),
        (np.where(VALUES > 1, np.nan, VALUES), "differ"),
        ([["a"] * 16] * 8, "no array of numbers"),
    ],
)
def test_answers_that_cannot_be_compared_fail(other: Any, because: str) -> None:
    found = _bits(other)
    assert found.verdict is Verdict.FAIL and because in found.message


def test_answers_that_are_no_numbers_are_not_equal_for_being_so_twice() -> None:
    nothing = np.full_like(VALUES, np.nan)
    assert _bits(nothing, one=nothing).verdict is Verdict.FAIL


def test_a_question_read_as_other_tokens_is_another_question() -> None:
    found = _bits(VALUES, ids=((1,), *IDS[1:]))
    assert found.verdict is Verdict.FAIL and "question 0" in found.message
