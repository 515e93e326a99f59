"""Two answers to one question: equal within rounding, blind to later tokens, and moved by what must move them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.criteria.metamorphic import Honest, agree, earlier_stay, reacts
from conformance.judgement import Judgement
from conformance.runner import Effective, ForcedLogprobs, Scalars, Vectors
from conformance.verdict import Verdict

RAN = Effective("bfloat16", "plain", {"toy::plain": 1}, 1, 1)
PROMPTS, SIZE, NOISE = 16, 64, 0.004


def _ids(count: int, *, length: int = 10) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(range(row, row + length)) for row in range(count))


def _draw(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def _vectors(values: Any, **changes: Any) -> Vectors:
    return Vectors(changes.get("ids", _ids(len(values))), RAN, values)


R = _draw(0, 40, SIZE)
E = R + NOISE * _draw(1, 40, SIZE)
ROWS = list(range(20, 20 + PROMPTS))
HONEST = Honest(R, E, ROWS)


def _rounded(seed: int, times: float = 1.0) -> Any:
    return R[ROWS] + times * NOISE * _draw(seed, PROMPTS, SIZE)


def _judge(a: Any, b: Any, honest: Honest = HONEST, dtype: str = "bfloat16") -> Judgement:
    return agree(_vectors(a), _vectors(b), honest=honest, dtype=dtype, what="asked twice")


def _figure(judgement: Judgement, name: str) -> float:
    return next(figure.value for figure in judgement.figures if figure.name == name)


def test_answers_equal_in_every_bit_pass() -> None:
    found = _judge(_rounded(2), _rounded(2))
    assert found.verdict is Verdict.PASS
    assert _figure(found, "prompts equal in every bit") == PROMPTS and _figure(found, "pooled ratio") == 0


def test_answers_that_are_rounded_apart_pass_with_a_ratio_near_one() -> None:
    found = _judge(_rounded(2), _rounded(3))
    assert found.verdict is Verdict.PASS
    assert _figure(found, "pooled ratio") == pytest.approx(1, abs=0.1)


def test_answers_further_apart_than_rounding_fail() -> None:
    found = _judge(_rounded(2), _rounded(3, times=2))
    assert found.verdict is Verdict.FAIL and "pooled ratio" in found.message


def test_one_prompt_that_is_answered_otherwise_fails_and_is_named() -> None:
    other = _rounded(2)
    other[5] += 6 * NOISE
    found = _judge(_rounded(2), other)
    assert found.verdict is Verdict.FAIL and "prompt 5" in found.message


def test_the_rounding_of_the_prompts_that_were_asked_counts() -> None:
    e = E.copy()
    e[:20] += 100  # of prompts that were not
    assert _judge(_rounded(2), _rounded(3, times=2), Honest(R, e, ROWS)).verdict is Verdict.FAIL


def test_without_a_yardstick_a_number_of_eps_is_allowed() -> None:
    unknown = Honest(None, None, ROWS)
    assert _judge(_rounded(2), _rounded(3), unknown).verdict is Verdict.PASS
    assert _judge(_rounded(2), _rounded(3, times=20), unknown).verdict is Verdict.FAIL
    assert _judge(R[ROWS], R[ROWS] * (1 + 2e-5), unknown, "float32").verdict is Verdict.FAIL


def test_a_relative_difference_of_a_few_eps_is_no_fault_in_float32() -> None:
    exact = Honest(R, R, ROWS)
    assert _judge(R[ROWS], R[ROWS] * (1 + 1e-6), exact, "float32").verdict is Verdict.PASS
    assert _judge(R[ROWS], R[ROWS] * (1 + 1e-4), exact, "float32").verdict is Verdict.FAIL


def test_other_token_ids_the_second_time_fail() -> None:
    values = _rounded(2)
    found = agree(
        _vectors(values), _vectors(values, ids=_ids(PROMPTS)[::-1]), honest=HONEST, dtype="bfloat16", what="twice"
    )
    assert found.verdict is Verdict.FAIL and "question 0" in found.message


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e300])
def test_numbers_that_are_none_fail(wrong: float) -> None:
    broken = _rounded(2)
    broken[3, 4] = wrong
    assert _judge(_rounded(2), broken).verdict is Verdict.FAIL
    assert _judge(broken, _rounded(2)).verdict is Verdict.FAIL


def test_another_shape_fails() -> None:
    assert _judge(_rounded(2), _rounded(2)[:, :8]).verdict is Verdict.FAIL
    assert _judge(_rounded(2)[:7], _rounded(2)[:7]).verdict is Verdict.FAIL


def test_fewer_than_eight_prompts_are_underpowered() -> None:
    few = Honest(R, E, ROWS[:5])
    assert _judge(_rounded(2)[:5], _rounded(3)[:5], few).verdict is Verdict.UNDERPOWERED


def test_rows_that_the_reference_lacks_are_the_suites_fault() -> None:
    with pytest.raises(ValueError, match="not all rows"):
        _judge(_rounded(2), _rounded(3), Honest(R, E, [99] * PROMPTS))


def test_scores_are_held_against_the_rounding_of_all_prompts() -> None:
    r = _draw(4, 128)
    e = r + NOISE * _draw(5, 128)
    rows = list(range(32))

    def judged(times: float) -> Verdict:
        a = r[:32] + NOISE * _draw(6, 32)
        b = r[:32] + times * NOISE * _draw(7, 32)
        one, other = Scalars(_ids(32), RAN, a), Scalars(_ids(32), RAN, b)
        return agree(one, other, honest=Honest(r, e, rows), dtype="bfloat16", what="asked twice").verdict

    assert judged(1.0) is Verdict.PASS
    assert judged(4.0) is Verdict.FAIL


@given(seed=st.integers(0, 10**6), times=st.floats(0.0, 8.0))
@settings(max_examples=25, deadline=None)
def test_the_order_of_the_two_answers_does_not_matter(seed: int, times: float) -> None:
    a, b = _rounded(seed), _rounded(seed + 1, times)
    one, other = _judge(a, b), _judge(b, a)
    assert (one.verdict, one.figures) == (other.verdict, other.figures)


@given(seed=st.integers(0, 10**6), factor=st.sampled_from([2.0**-20, 2.0**10]))
@settings(max_examples=15, deadline=None)
def test_the_size_of_the_numbers_does_not_matter(seed: int, factor: float) -> None:
    a, b = _rounded(seed), _rounded(seed + 1)
    scaled = Honest(factor * R, factor * E, ROWS)
    assert _figure(_judge(a, b), "pooled ratio") == pytest.approx(
        _figure(_judge(factor * a, factor * b, scaled), "pooled ratio")
    )


POSITIONS, EDITED = 12, 7
LOGPROBS = -2 + 0.5 * _draw(8, 8, POSITIONS, 20)
FORCED = Honest(LOGPROBS, LOGPROBS + NOISE * _draw(9, 8, POSITIONS, 20), range(8))


def _edited(*, before: float = 0.0, behind: float = 1.0) -> Judgement:
    a, b = LOGPROBS.copy(), LOGPROBS.copy()
    b[:, : EDITED + 1] += before
    b[:, EDITED + 1 :] += behind
    one, other = (ForcedLogprobs(_ids(8), RAN, values) for values in (a, b))
    return earlier_stay(one, other, edited=EDITED, honest=FORCED, dtype="bfloat16")


def test_an_edit_that_moves_later_logprobs_alone_passes() -> None:
    assert _edited().verdict is Verdict.PASS


def test_a_logprob_before_the_edit_that_moves_fails() -> None:
    assert _edited(before=0.05).verdict is Verdict.FAIL


def test_the_position_of_the_edited_token_itself_must_not_move() -> None:
    b = LOGPROBS.copy()
    b[:, EDITED] += 0.1
    b[:, EDITED + 1 :] += 1
    one, other = (ForcedLogprobs(_ids(8), RAN, values) for values in (LOGPROBS, b))
    assert earlier_stay(one, other, edited=EDITED, honest=FORCED, dtype="bfloat16").verdict is Verdict.FAIL


def test_an_edit_that_moves_nothing_is_underpowered() -> None:
    assert _edited(behind=0.0).verdict is Verdict.UNDERPOWERED


def _reaction(change: float, *, at: int = 9) -> Judgement:
    ids = _ids(PROMPTS)
    other = tuple((*row[:at], 999, *row[at + 1 :]) for row in ids)
    one, two = _vectors(_rounded(2), ids=ids), _vectors(_rounded(2) + change, ids=other)
    return reacts(one, two, honest=HONEST, dtype="bfloat16", what="with and without an edit")


def test_an_answer_that_reacts_passes() -> None:
    assert _reaction(0.1).verdict is Verdict.PASS


@pytest.mark.parametrize("change", [0.0, NOISE])
def test_an_answer_that_moves_by_no_more_than_rounding_fails(change: float) -> None:
    assert _reaction(change).verdict is Verdict.FAIL


def test_an_edit_nearby_shows_no_path_from_the_far_end() -> None:
    assert _reaction(0.1, at=0).verdict is Verdict.UNDERPOWERED


def _controlled(control: Any, other: Any) -> Judgement:
    return agree(
        _vectors(_rounded(2)),
        _vectors(other),
        honest=HONEST,
        dtype="bfloat16",
        what="asked twice",
        control=_vectors(control, ids=_ids(PROMPTS, length=11)),
    )


def test_a_control_that_moves_answers_shows_that_they_could_have_moved() -> None:
    assert _controlled(R[:PROMPTS], _rounded(3)).verdict is Verdict.PASS
    still = _controlled(_rounded(4), _rounded(3))
    assert still.verdict is Verdict.UNDERPOWERED and "one other token a prompt" in still.message
    assert _controlled(_rounded(4), _rounded(3, times=2)).verdict is Verdict.FAIL
    assert _controlled(R[: PROMPTS - 1], _rounded(3)).verdict is Verdict.FAIL


def test_prompts_that_are_only_like_those_with_known_errors_are_allowed_the_rms_of_these() -> None:
    e = E.copy()
    e[ROWS[0]] = R[ROWS[0]]  # rounded by chance to what is exact
    apart = _rounded(2)
    apart[0] = _rounded(3, times=2.5)[0]
    own, alike = (_judge(_rounded(2), apart, Honest(R, e, ROWS, alike=each)) for each in (False, True))
    assert own.verdict is Verdict.FAIL and "prompt 0" in own.message
    assert alike.verdict is Verdict.PASS
