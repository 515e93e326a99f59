"""Logprobs of free text: what is accepted, and what must be rejected though forced logprobs would not show it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_criteria_generated import generations

from conformance.criteria.tokens import free_logprobs_agree
from conformance.judgement import Judgement
from conformance.runner import Generations
from conformance.verdict import Verdict

HONEST = generations()
REFERENCE = np.nan_to_num(HONEST.logprobs)
NOISE = 0.01 * np.random.default_rng(7).normal(size=REFERENCE.shape)


def judged(x: Generations, **changes: Any) -> Judgement:
    arguments = {"ids": HONEST.token_ids, "r": REFERENCE, "e": REFERENCE + NOISE, "dtype": "bfloat16"}
    return free_logprobs_agree(x=x, **{**arguments, **changes})


def with_logprobs(values: Any) -> Generations:
    return replace(HONEST, logprobs=values, top_logprobs=np.concatenate([values[..., None]] * 5, axis=2))


def test_rounding_as_large_as_the_yardsticks_passes() -> None:
    other = 0.01 * np.random.default_rng(8).normal(size=REFERENCE.shape)
    assert judged(with_logprobs(HONEST.logprobs + other)).verdict is Verdict.PASS


def test_a_temperature_fails_though_every_token_is_the_references() -> None:
    found = judged(with_logprobs(HONEST.logprobs * 0.8 - 0.1))
    assert found.verdict is Verdict.FAIL and "ratio of free text's logprobs" in found.message


def test_what_comes_after_a_divergence_does_not_count() -> None:
    ids = tuple((row[0], 77, *row[2:]) for row in HONEST.token_ids)
    values = HONEST.logprobs.copy()
    values[:, 1:] -= 3
    assert judged(replace(with_logprobs(values), token_ids=ids)).verdict is Verdict.PASS
    values[:, 0] -= 3
    assert judged(replace(with_logprobs(values), token_ids=ids)).verdict is Verdict.FAIL


def test_too_few_tokens_in_common_show_nothing() -> None:
    none = tuple(tuple(77 for _ in row) for row in HONEST.token_ids)
    assert judged(replace(HONEST, token_ids=none)).verdict is Verdict.UNDERPOWERED
    few = (HONEST.token_ids[0], *none[1:])
    assert judged(replace(HONEST, token_ids=few)).verdict is Verdict.UNDERPOWERED


def test_missing_answers_and_numbers_that_are_none_fail() -> None:
    assert judged(replace(HONEST, token_ids=HONEST.token_ids[:-1])).verdict is Verdict.FAIL
    values = HONEST.logprobs.copy()
    values[3, 0] = np.nan
    assert judged(with_logprobs(values)).verdict is Verdict.FAIL


def test_a_shorter_answer_counts_as_far_as_it_goes() -> None:
    cut = replace(
        HONEST,
        token_ids=tuple(row[:1] for row in HONEST.token_ids),
        logprobs=HONEST.logprobs[:, :1],
        top_ids=HONEST.top_ids[:, :1],
        top_logprobs=HONEST.top_logprobs[:, :1],
    )
    assert judged(cut).verdict is Verdict.PASS


def test_a_reference_of_another_shape_is_the_suites_fault() -> None:
    with pytest.raises(ValueError, match="must be"):
        judged(HONEST, r=REFERENCE[:3], e=REFERENCE[:3])
