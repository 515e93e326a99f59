from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance import predicate
from conformance.predicate import Subject, conjunction, evaluate, matches, within

ANSWERS = st.sampled_from([True, False, None])
NAMES = st.sampled_from(["a", "ab", "b", "sdpa", "eager"])
quick = settings(max_examples=60, deadline=None)


@quick
@given(st.lists(ANSWERS))
def test_conjunction_is_false_if_any_is_and_else_unknown_if_any_is(answers: list[bool | None]) -> None:
    expected = False if False in answers else None if None in answers else True
    assert conjunction(answers) is expected


@quick
@given(st.lists(ANSWERS), st.lists(st.booleans()))
def test_learning_a_fact_never_turns_an_answer_round(answers: list[bool | None], facts: list[bool]) -> None:
    learnt = [facts.pop() if answer is None and facts else answer for answer in answers]
    before = conjunction(answers)
    assert before is None or conjunction(learnt) is before


@quick
@given(NAMES, NAMES)
def test_a_leading_exclamation_mark_turns_a_pattern_round(pattern: str, text: str) -> None:
    assert matches(f"!{pattern}", text) is not matches(pattern, text)


@quick
@given(st.lists(NAMES, min_size=1), NAMES)
def test_a_list_matches_where_any_pattern_does(patterns: list[str], text: str) -> None:
    assert matches(patterns, text) is (text in patterns)


@pytest.mark.parametrize(
    ("bounds", "value", "holds"),
    [("<20", 19.9, True), ("<20", 20, False), (">=16,<48", 16, True), (">=16,<48", 48, False), ("== 4", 4, True)],
)
def test_bounds_hold_where_all_parts_do(bounds: str, value: float, holds: bool) -> None:
    assert within(bounds, value) is holds


@pytest.mark.parametrize("bounds", ["20", "<", "<20 GiB", "", "<20;>3"])
def test_what_is_no_bound_is_rejected(bounds: str) -> None:
    assert not predicate.is_bounds(bounds)
    with pytest.raises(ValueError, match="no bound"):
        within(bounds, 1.0)


@pytest.mark.parametrize(
    ("when", "subject", "answer"),
    [
        ({}, Subject(), True),
        ({"model": "Qwen2-VL*"}, Subject(model="Qwen2-VL-2B"), True),
        ({"model": "Qwen2-VL"}, Subject(model="Qwen2-VL-2B"), False),
        ({"dtype": ["float16", "bfloat16"]}, Subject(dtype="bfloat16"), True),
        ({"vision": "*"}, Subject(), False),
        ({"device": "*A770*"}, Subject(), None),
        ({"device": "*A770*"}, Subject(device="Intel(R) Arc(TM) A770 Graphics"), True),
        ({"memory_gib": "<20"}, Subject(), None),
        ({"memory_gib": "<20"}, Subject(memory_gib=15.9), True),
        ({"memory_gib": "<20", "dtype": "float16"}, Subject(dtype="float32"), False),
        ({"capability": ">=8.0"}, Subject(), None),
        ({"capability": ">=9.0,<9.1"}, Subject(capability=9.0), True),
        ({"capability": ">=9.0"}, Subject(capability=8.9), False),
        ({"capability": ">=9.0"}, Subject(capability=12.1), True),
        ({"devices": ">=2"}, Subject(), None),
        ({"devices": ">=2"}, Subject(devices=1), False),
        ({"versions": {"torch": ">=2.13"}}, Subject(), None),
        ({"versions": {"torch": ">=2.13"}}, Subject(versions={"torch": None}), False),
        ({"versions": {"torch": ">=2.13"}}, Subject(versions={"torch": "2.14.0.dev20260801+xpu"}), True),
        ({"versions": {"torch": "<2.13"}}, Subject(versions={"torch": "2.13.0+cpu"}), False),
        ({"isa": "amx*"}, Subject(isa=frozenset({"amx_bf16", "avx2"})), True),
        ({"isa": "!avx512_bf16"}, Subject(isa=frozenset({"avx2"})), True),
        ({"isa": "!avx2"}, Subject(isa=frozenset({"avx2"})), False),
        ({"isa": "avx2"}, Subject(), None),
        ({"parameters": {"head_size": ">64"}}, Subject(parameters={"head_size": 80}), True),
        ({"parameters": {"head_size": 64}}, Subject(parameters={"head_size": 80}), False),
        ({"parameters": {"pooling": "l*"}}, Subject(parameters={"pooling": "last"}), True),
        ({"parameters": {"pooling": "last"}}, Subject(), False),
        ({"parameters": {"flag": True}}, Subject(parameters={"flag": 1}), False),
    ],
)
def test_a_condition_is_answered(when: dict[str, object], subject: Subject, answer: bool | None) -> None:
    assert evaluate(when, subject) is answer


def test_a_key_that_conditions_do_not_have_is_an_error() -> None:
    with pytest.raises(KeyError, match="colour"):
        evaluate({"colour": "red"}, Subject())


def test_wrong_bounds_and_specifiers_are_both_reported() -> None:
    found = predicate.faults({"memory_gib": "much", "versions": {"torch": "new"}})
    assert len(found) == 2
    assert "memory_gib" in found[0]
    assert "versions.torch" in found[1]
