"""What comes before any number: token ids, completeness, finiteness, and what really ran."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.criteria import observed
from conformance.runner import (
    ClassLogits,
    Effective,
    ForcedLogprobs,
    Generations,
    Observation,
    Scalars,
    TokenLogprobs,
    Vectors,
)
from conformance.verdict import Verdict

RAN = Effective("bfloat16", "sdpa", {"aten::_scaled_dot_product_flash_attention": 8}, 4, 2)
PROMPTS = ((1, 2, 3), (4, 5), (6, 7, 8, 9))
SHAPES: dict[type[Any], tuple[int, ...]] = {
    Vectors: (3, 8),
    Scalars: (3,),
    ClassLogits: (3, 5),
    TokenLogprobs: (3, 2),
    ForcedLogprobs: (3, 4, 6),
}


def observation(kind: type[Any], values: Any = None) -> Any:
    if values is None:
        values = np.random.default_rng(0).normal(size=SHAPES[kind])
    return kind(PROMPTS, RAN, values)


def generations() -> Generations:
    ids = ((11, 12, 2), (13, 2), (14, 15, 16))
    lengths = np.array([[3], [2], [3]])
    own = np.arange(3)[None] < lengths
    top = np.where(own[..., None], np.log([0.6, 0.3]) - 0.01 * np.arange(9).reshape(3, 3, 1), np.nan)
    top_ids = np.full((3, 3, 2), -1)
    for i, row in enumerate(ids):
        for t, token in enumerate(row):
            top_ids[i, t] = token, token + 100
    return Generations(PROMPTS, RAN, ids, ("a", "b", "c"), ("stop", "stop", "length"), top[..., 0], top_ids, top)


@pytest.mark.parametrize("kind", list(SHAPES))
def test_a_whole_answer_is_complete(kind: type[Any]) -> None:
    judgement = observed.is_complete(observation(kind), count=3)
    assert judgement.verdict is Verdict.PASS, judgement.message
    assert set(judgement.rows) == {"x"}


@pytest.mark.parametrize("kind", list(SHAPES))
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda v: v[:2], "with 3 prompts"),
        (lambda v: v[:0], "with 3 prompts"),
        (lambda v: np.concatenate([v, v]), "with 3 prompts"),
        (lambda v: v[..., None], "shape"),
        (lambda v: np.full_like(v, np.nan), "NaN"),
        (lambda v: np.where(np.arange(v.size).reshape(v.shape) == 0, np.inf, v), "1 infinite"),
        (lambda v: np.broadcast_to(v[:1], v.shape), "are equal, though the prompts differ"),
    ],
)
def test_an_answer_that_is_not_whole_fails(kind: type[Any], damage: Any, said: str) -> None:
    whole = observation(kind)
    judgement = observed.is_complete(replace(whole, values=damage(whole.values)), count=3)
    assert judgement.verdict is Verdict.FAIL
    assert said in judgement.message


def test_an_empty_batch_fails() -> None:
    empty = Scalars((), RAN, np.zeros(0))
    assert observed.is_complete(empty, count=0).verdict is Verdict.FAIL
    assert observed.is_complete(empty, count=3).verdict is Verdict.FAIL


def test_equal_prompts_may_have_equal_results() -> None:
    same = Scalars(((1, 2),) * 3, RAN, np.ones(3))
    assert observed.is_complete(same, count=3).verdict is Verdict.PASS


def test_prompts_without_token_ids_fail() -> None:
    values = observation(Scalars)
    missing = observed.is_complete(replace(values, prompt_token_ids=PROMPTS[:2]), count=3)
    assert missing.verdict is Verdict.FAIL
    assert "token ids for 2 prompts, but 3 were asked" in missing.message
    empty = observed.is_complete(replace(values, prompt_token_ids=((), *PROMPTS[1:])), count=3)
    assert "no token ids for 1 of 3 prompts" in empty.message


def test_nan_is_right_only_behind_a_prompts_forced_positions() -> None:
    whole = observation(ForcedLogprobs)
    behind, within = whole.values.copy(), whole.values.copy()
    behind[1, 2:] = np.nan
    within[1, 1] = np.nan
    partly = whole.values.copy()
    partly[1, 3, 0] = np.nan
    assert observed.is_complete(replace(whole, values=behind), count=3).verdict is Verdict.PASS
    assert observed.is_complete(replace(whole, values=within), count=3).verdict is Verdict.FAIL
    assert observed.is_complete(replace(whole, values=partly), count=3).verdict is Verdict.FAIL


def test_whole_generations_are_complete() -> None:
    judgement = observed.is_complete(generations(), count=3)
    assert judgement.verdict is Verdict.PASS, judgement.message


def garbled(field: str, position: tuple[int, ...], value: float) -> Generations:
    g = generations()
    array = getattr(g, field).copy()
    array[position] = value
    return replace(g, **{field: array})


@pytest.mark.parametrize(
    ("faulty", "said"),
    [
        (replace(generations(), token_ids=((11, 12, 2),)), "token_ids for 1 prompts, but 3 were asked"),
        (replace(generations(), texts=("a", "b")), "texts for 2 prompts"),
        (replace(generations(), finish_reasons=("stop",)), "finish_reasons for 1 prompts"),
        (replace(generations(), finish_reasons=("stop", "stopp", "length")), "'stopp'; did you mean 'stop'?"),
        (replace(generations(), token_ids=((11, 12, 2), (), (14, 15, 16))), "prompt 1 has no tokens"),
        (replace(generations(), token_ids=((), (), ())), "prompt 0 has no tokens"),
        (replace(generations(), logprobs=np.zeros((3, 2))), "logprobs has shape [3, 2]"),
        (replace(generations(), top_ids=np.zeros((3, 3, 4), dtype=int)), "top_ids has shape [3, 3, 4]"),
        (replace(generations(), logprobs=np.full((3, 3), np.nan)), "8 NaN"),
        (garbled("logprobs", (1, 1), np.nan), "the first at [1, 1]"),
        (garbled("top_logprobs", (0, 1, 1), -np.inf), "1 infinite"),
        (garbled("logprobs", (1, 2), -1.0), "beyond a prompt's own length"),
        (garbled("top_ids", (1, 2, 0), 5), "-1 beyond it"),
        (replace(generations(), logprobs=np.array([[-1.0] * 3] * 3)), "beyond a prompt's own length"),
    ],
)
def test_generations_that_are_not_whole_fail(faulty: Generations, said: str) -> None:
    judgement = observed.is_complete(faulty, count=3)
    assert judgement.verdict is Verdict.FAIL
    assert said in judgement.message


def test_equal_logprobs_for_all_prompts_fail() -> None:
    g = generations()
    ids = tuple((*row, 2)[:3] for row in g.token_ids)
    same = np.full((3, 3), -0.5)
    constant = replace(
        g, token_ids=ids, logprobs=same, top_logprobs=np.stack([same, same - 1], axis=2), top_ids=np.abs(g.top_ids)
    )
    judgement = observed.is_complete(constant, count=3)
    assert judgement.verdict is Verdict.FAIL
    assert "are equal, though the prompts differ" in judgement.message


def test_another_kind_of_observation_is_an_error() -> None:
    with pytest.raises(TypeError, match="no observation that can be judged"):
        observed.is_complete(Observation(PROMPTS, RAN), count=3)


def test_the_same_prompt_tokens_pass() -> None:
    judgement = observed.same_prompt_tokens(observation(Scalars), observation(Scalars))
    assert judgement.verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("mine", "said"),
    [
        (PROMPTS[:2], "for 2 prompts, the reference for 3"),
        ((), "for 0 prompts, the reference for 3"),
        (((1, 2, 3), (4, 7), (6, 7, 8, 9)), "prompt 1, position 1: the engine reads 7 (of 2; around it [4, 7])"),
        (((1, 2, 3), (4, 5), (6, 7, 8)), "prompt 2, position 3: the engine reads the end (of 3; around it [6, 7, 8])"),
        (((1, 2, 3), (0, 4, 5), (6, 7, 8, 9)), "the reference 4 (of 2; around it [4, 5])"),
    ],
)
def test_other_prompt_tokens_fail_at_the_first_difference(mine: Any, said: str) -> None:
    faulty = replace(observation(Scalars), prompt_token_ids=mine)
    judgement = observed.same_prompt_tokens(faulty, observation(Scalars))
    assert judgement.verdict is Verdict.FAIL
    assert said in judgement.message


def test_a_reference_without_tokens_is_underpowered() -> None:
    empty = replace(observation(Scalars), prompt_token_ids=((), (), ()))
    assert observed.same_prompt_tokens(empty, empty).verdict is Verdict.UNDERPOWERED


def cut(prompts: Any, limit: int | None = 4) -> Any:
    return observed.same_length_limit(
        replace(observation(Scalars), prompt_token_ids=prompts), observation(Scalars), limit=limit
    )


def test_prompts_cut_alike_pass_and_others_fail() -> None:
    assert cut(PROMPTS).verdict is Verdict.PASS
    late = cut((*PROMPTS[:2], (6, 7, 8, 9, 10)))
    assert late.verdict is Verdict.FAIL
    assert "tokens beyond the limit is 1 (prompt 2), but must be at most 0" in late.message
    assert cut((*PROMPTS[:2], (6, 7, 8))).verdict is Verdict.FAIL
    assert cut((*PROMPTS[:2], (7, 8, 9, 10))).verdict is Verdict.FAIL
    assert cut(PROMPTS[:2]).verdict is Verdict.FAIL


def test_a_limit_that_no_prompt_reaches_is_underpowered() -> None:
    assert cut(PROMPTS, 5).verdict is Verdict.UNDERPOWERED
    assert cut(PROMPTS, None).verdict is Verdict.UNDERPOWERED


def ran(effective: Effective, kernels: tuple[str, ...] = ("aten::*flash_attention",)) -> Any:
    return observed.ran_as_requested(effective, dtype="bfloat16", attention="sdpa", kernels=kernels)


def test_what_ran_as_requested_passes() -> None:
    judgement = ran(RAN)
    assert judgement.verdict is Verdict.PASS, judgement.message
    assert {figure.name: figure.value for figure in judgement.figures}["attention calls"] == 8
    assert ran(RAN, ("aten::_scaled_dot_product_flash_attention",)).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("effective", "said"),
    [
        (replace(RAN, dtype="float32"), "the dtype was 'float32', but 'bfloat16' was requested"),
        (replace(RAN, attention="eager"), "the attention backend was 'eager', but 'sdpa' was requested"),
        (replace(RAN, kernels={}), "no attention kernel was seen"),
        (replace(RAN, kernels={"aten::_scaled_dot_product_flash_attention": 0}), "has count 0"),
        (replace(RAN, kernels={"aten::bmm": 8}), "kernel 'aten::bmm' ran 8 times, but the profile expects"),
        (
            replace(RAN, kernels={"aten::_scaled_dot_product_flash_attention": 7, "aten::bmm": 1}),
            "kernel 'aten::bmm' ran 1 times",
        ),
        (replace(RAN, kernels={"aten::_scaled_dot_product_flash_attention": 7}), "is 1, but must be at most 0"),
        (replace(RAN, layers=0), "0 layers"),
        (replace(RAN, forwards=0, kernels={}), "0 forwards"),
    ],
)
def test_what_did_not_run_as_requested_fails(effective: Effective, said: str) -> None:
    judgement = ran(effective)
    assert judgement.verdict is Verdict.FAIL
    assert said in judgement.message


def test_a_profile_that_expects_no_kernel_accepts_none() -> None:
    assert ran(RAN, ()).verdict is Verdict.FAIL


def test_an_engine_that_tells_nobody_what_ran_passes_only_where_the_profile_says_so() -> None:
    silent = Effective("bfloat16", "none", {}, 4, 1, evidence="undisclosed")
    asked = {"dtype": "bfloat16", "attention": "none"}
    assert observed.ran_as_requested(silent, kernels=[], **asked).verdict is Verdict.PASS
    for changed, kernels, said in (
        (silent, ["toy::*"], "kernels = \\[\\] says so"),
        (replace(silent, kernels={"toy::plain": 4}), [], "an engine that tells of none"),
        (replace(silent, dtype="float32"), [], "'bfloat16' was requested"),
        (replace(silent, attention="sdpa"), [], "'none' was requested"),
    ):
        judgement = observed.ran_as_requested(changed, kernels=kernels, **asked)
        assert judgement.verdict is Verdict.FAIL
        assert re.search(said, judgement.message)
