"""Generations and texts: what the criteria accept and what they must reject."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.criteria import observed, tokens
from conformance.judgement import Judgement
from conformance.runner import Effective, Generations
from conformance.verdict import Verdict

COUNT, VOCABULARY = 32, 80
END = 2
RAN = Effective("bfloat16", "sdpa", {"flash": 4}, 4, 1)
STEPS, TOP = 3, 5


def generations(count: int = COUNT, seed: int = 0, *, times: float = 0.0) -> Generations:
    """Greedy tokens of a random model, sharp enough for clear choices; every fourth prompt ends one token early."""
    rng = np.random.default_rng(seed)
    clean = 3 * rng.normal(size=(count, STEPS, VOCABULARY))
    clean[..., END] = -20
    clean[::4, 1, END] = 20
    values = clean + 0.01 * times * np.random.default_rng(seed + 1).normal(size=clean.shape)
    logprobs = values - np.log(np.exp(values).sum(axis=-1, keepdims=True))
    top_ids = np.argsort(-logprobs, axis=-1)[..., :TOP]
    top = np.take_along_axis(logprobs, top_ids, axis=-1)
    lengths = np.where(np.arange(count) % 4 == 0, 2, STEPS)
    own = np.arange(STEPS) < lengths[:, None]
    ids = tuple(tuple(int(top_ids[i, t, 0]) for t in range(lengths[i])) for i in range(count))
    top = np.where(own[..., None], top, np.nan)
    return Generations(
        tuple((5, i) for i in range(count)),
        RAN,
        ids,
        tuple(decode(row) for row in ids),
        tuple("stop" if row[-1] == END else "length" for row in ids),
        top[..., 0],
        np.where(own[..., None], top_ids, -1),
        top,
    )


def figures(judgement: Judgement) -> dict[str, float]:
    return {figure.name: figure.value for figure in judgement.figures}


def decode(ids: tuple[int, ...]) -> str:
    return " ".join(f"w{token}" for token in ids if token != END)


def consistent(g: Generations, decoded: list[str] | None = None, max_tokens: int = STEPS) -> Judgement:
    texts = [decode(ids) for ids in g.token_ids] if decoded is None else decoded
    return tokens.generation_is_consistent(g, max_tokens=max_tokens, end_token_ids=[END], decoded=texts)


def with_tokens(g: Generations, i: int, ids: tuple[int, ...]) -> Generations:
    return replace(
        g,
        token_ids=(*g.token_ids[:i], ids, *g.token_ids[i + 1 :]),
        texts=(*g.texts[:i], decode(ids), *g.texts[i + 1 :]),
    )


def changed(g: Generations, field: str, position: Any, value: Any) -> Generations:
    array = getattr(g, field).copy()
    array[position] = value
    return replace(g, **{field: array})


def cut(g: Generations, i: int, length: int) -> Generations:
    """Prompt i ends after `length` tokens, everything else as an engine would report it."""
    g = with_tokens(g, i, g.token_ids[i][:length])
    for field, empty in (("logprobs", np.nan), ("top_logprobs", np.nan), ("top_ids", -1)):
        g = changed(g, field, (i, slice(length, None)), empty)
    return g


def test_a_greedy_generation_is_consistent() -> None:
    judgement = consistent(generations())
    assert judgement.verdict is Verdict.PASS, judgement.message


def test_an_end_token_as_the_last_of_max_tokens_may_have_either_reason() -> None:
    g = cut(generations(4), 1, 2)
    ids = (g.token_ids[1][0], END)
    g = changed(with_tokens(g, 1, ids), "top_ids", (1, 1, 0), END)
    for reason in ("stop", "length"):
        either = replace(g, finish_reasons=("stop", reason, "length", "length"))
        faults = consistent(either, max_tokens=2).message
        assert "prompt 1:" not in faults


def swapped_best(g: Generations) -> Generations:
    """Garbage after the first token: the second best is chosen, and said so."""
    ids = list(g.token_ids[1])
    for t in range(1, len(ids)):
        ids[t] = int(g.top_ids[1, t, 1])
        g = changed(g, "logprobs", (1, t), g.top_logprobs[1, t, 1])
    return with_tokens(g, 1, tuple(ids))


G = generations()
SURE = np.log([0.5, 0.3, 0.3, 0.1, 0.1])
INCONSISTENT = {
    "no tokens": (replace(G, token_ids=((),) * COUNT), "has no tokens"),
    "no tokens for one": (with_tokens(G, 1, ()), "prompt 1 has no tokens"),
    "stops after one of three": (cut(G, 1, 1), "finish reason 'length', but only 1 of 3 tokens"),
    "all logprobs NaN": (
        replace(G, logprobs=np.full_like(G.logprobs, np.nan), top_logprobs=np.full_like(G.top_logprobs, np.nan)),
        "NaN",
    ),
    "chosen logprobs off by 100 nats": (replace(G, logprobs=G.logprobs - 100), "but"),
    "all logprobs off by 100 nats": (
        replace(G, logprobs=G.logprobs + 100, top_logprobs=G.top_logprobs + 100),
        "is a probability above 1",
    ),
    "garbage after the first token": (swapped_best(G), "not greedy"),
    "text of other ids": (replace(G, texts=(G.texts[1], *G.texts[1:])), "but its ids decode to"),
    "token outside its top k": (with_tokens(G, 1, (79, *G.token_ids[1][1:])), "is not in its own top 5"),
    "an empty batch": (generations(0), "an empty batch"),
    "logprobs swapped between tokens": (
        changed(G, "top_logprobs", (1, 0), G.top_logprobs[1, 0, [1, 0, 2, 3, 4]]),
        "not best first",
    ),
    "logprobs of the neighbouring position": (
        changed(G, "logprobs", 1, np.roll(G.logprobs[1], 1)),
        "in its top k",
    ),
    "mass above 1": (
        changed(changed(G, "top_logprobs", (1, 0), SURE), "logprobs", (1, 0), SURE[0]),
        "the probabilities of its top k sum to 1.3",
    ),
    "an id twice": (changed(G, "top_ids", (1, 0, 4), G.top_ids[1, 0, 3]), "stands twice"),
    "tokens after the end": (with_tokens(G, 1, (END, *G.token_ids[1][1:])), "tokens after the end token 2"),
    "wrong stop": (replace(G, finish_reasons=("stop",) * COUNT), "is none of the end tokens [2]"),
    "wrong length": (replace(G, finish_reasons=("length",) * COUNT), "but only 2 of 3 tokens"),
}


@pytest.mark.parametrize("case", INCONSISTENT)
def test_an_inconsistent_generation_fails(case: str) -> None:
    faulty, said = INCONSISTENT[case]
    judgement = consistent(faulty)
    assert judgement.verdict is Verdict.FAIL
    assert said in judgement.message


def test_more_tokens_than_asked_and_missing_texts_fail() -> None:
    assert "but at most 2 were asked" in consistent(G, max_tokens=2).message
    assert consistent(G, decoded=["a"]).verdict is Verdict.FAIL


def test_a_tie_for_the_best_is_greedy() -> None:
    equal = np.log([0.4, 0.4, 0.1, 0.01, 0.01])
    g = changed(changed(G, "top_logprobs", (1, 0), equal), "logprobs", (1, 0), equal[0])
    g = with_tokens(g, 1, (int(g.top_ids[1, 0, 1]), *g.token_ids[1][1:]))
    judgement = consistent(g)
    assert judgement.verdict is Verdict.PASS, judgement.message


def test_one_token_in_the_top_k_is_underpowered() -> None:
    one = replace(G, top_ids=G.top_ids[..., :1], top_logprobs=G.top_logprobs[..., :1])
    assert consistent(one).verdict is Verdict.UNDERPOWERED


def test_the_complete_generation_is_complete() -> None:
    assert observed.is_complete(G, count=COUNT).verdict is Verdict.PASS


def tie(x: Generations, r: Generations = G, sigma_gap: float = 0.05) -> Judgement:
    return tokens.divergence_is_a_tie(x=x, r=r, sigma_gap=sigma_gap)


def test_the_same_tokens_and_a_divergence_at_a_tie_pass() -> None:
    assert tie(generations(times=1)).verdict is Verdict.PASS
    near = changed(G, "top_logprobs", (1, 1, 1), G.top_logprobs[1, 1, 0] - 0.1)
    other = with_tokens(G, 1, (G.token_ids[1][0], int(G.top_ids[1, 1, 1]), 7))
    judgement = tie(other, near)
    assert judgement.verdict is Verdict.PASS, judgement.message
    assert figures(judgement)["prompts that diverged"] == 1
    assert judgement.rows["divergence"].tolist() == [-1, 1] + [-1] * (COUNT - 2)
    assert tie(other, near, sigma_gap=0.01).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (with_tokens(G, 1, (79, 78, 77)), "no tie"),
        (with_tokens(G, 1, ()), "prompt 1: the engine ends after 0 of the reference's 3 tokens"),
        (with_tokens(G, 1, G.token_ids[1][:1]), "the engine ends after 1 of the reference's 3 tokens"),
        (with_tokens(G, 0, (*G.token_ids[0], 9)), "goes on after the reference's 2 tokens"),
        (replace(G, token_ids=G.token_ids[:-1]), "31 prompts, the reference for 32"),
        (replace(G, token_ids=()), "0 prompts, the reference for 32"),
    ],
)
def test_a_divergence_that_is_no_tie_fails(x: Generations, said: str) -> None:
    judgement = tie(x)
    assert judgement.verdict is Verdict.FAIL
    assert said in judgement.message


def every(x: Generations, r: Generations = G) -> Judgement:
    return tokens.every_divergence_is_a_tie(x=x, r=r, sigma_gap=0.05)


def test_after_an_anchored_divergence_the_rest_must_be_right_too() -> None:
    near = changed(G, "top_logprobs", (1, 0, 1), G.top_logprobs[1, 0, 0] - 0.1)
    tied = (int(G.top_ids[1, 0, 1]), *G.token_ids[1][1:])
    assert every(with_tokens(G, 1, tied), near).verdict is Verdict.PASS
    garbage = with_tokens(G, 1, (*tied[:2], 79))
    assert tie(garbage, near).verdict is Verdict.PASS
    judgement = every(garbage, near)
    assert judgement.verdict is Verdict.FAIL
    assert "prompt 1, token 2: the engine chose 79" in judgement.message
    assert "ends after 2" in every(with_tokens(G, 1, tied[:2]), near).message


def test_anchored_text_may_go_on_only_where_the_end_was_a_tie() -> None:
    assert "goes on after" in every(with_tokens(G, 0, (*G.token_ids[0], 9))).message
    near = changed(G, "top_logprobs", (0, 1, 1), G.top_logprobs[0, 1, 0] - 0.1)
    longer = with_tokens(G, 0, (G.token_ids[0][0], int(G.top_ids[0, 1, 1]), 9))
    assert every(longer, near).verdict is Verdict.PASS
    assert every(longer).verdict is Verdict.FAIL


def test_equal_endings_pass_and_texts_that_diverged_before_are_no_evidence() -> None:
    assert tokens.endings_agree(x=G, r=G, sigma_gap=0.01).verdict is Verdict.PASS
    diverged = with_tokens(G, 1, (79, 78))
    judgement = tokens.endings_agree(x=diverged, r=G, sigma_gap=0.01)
    assert judgement.verdict is Verdict.PASS
    assert figures(judgement)["texts that reached their end"] == COUNT - 1


@pytest.mark.parametrize(
    "x",
    [
        with_tokens(G, 0, G.token_ids[0][:1]),
        with_tokens(G, 0, (*G.token_ids[0], 9)),
        with_tokens(G, 0, (G.token_ids[0][0], 9)),
        with_tokens(G, 1, (G.token_ids[1][0], END)),
        with_tokens(G, 1, ()),
        replace(G, finish_reasons=("length",) * COUNT),
        replace(G, token_ids=G.token_ids[1:]),
        replace(G, finish_reasons=()),
    ],
    ids=["early", "goes on", "no end token", "end token early", "nothing", "reason", "a prompt less", "no reasons"],
)
def test_another_ending_fails(x: Generations) -> None:
    assert tokens.endings_agree(x=x, r=G, sigma_gap=0.01).verdict is Verdict.FAIL


def test_endings_without_a_stop_are_underpowered() -> None:
    endless = replace(G, finish_reasons=("length",) * COUNT)
    assert tokens.endings_agree(x=endless, r=endless, sigma_gap=0.01).verdict is Verdict.UNDERPOWERED


def test_an_ending_that_the_reference_is_undecided_about_is_no_fault() -> None:
    """The last token of a text is an end token for the reference, and one of equal logprob for the engine."""
    row = next(i for i, reason in enumerate(G.finish_reasons) if reason == "stop")
    last = len(G.token_ids[row]) - 1
    other = next(int(token) for token in G.top_ids[row, last] if token != G.token_ids[row][last])
    ids = list(G.token_ids)
    ids[row] = (*ids[row][:-1], other)
    reasons = list(G.finish_reasons)
    reasons[row] = "length"
    x = replace(G, token_ids=tuple(ids), finish_reasons=tuple(reasons))
    gap = float(np.ptp(G.top_logprobs[row, last]))
    assert tokens.endings_agree(x=x, r=G, sigma_gap=0.0).verdict is Verdict.FAIL
    assert tokens.endings_agree(x=x, r=G, sigma_gap=gap).verdict is Verdict.PASS


def test_few_prompts_are_underpowered_and_a_wrong_sigma_is_an_error() -> None:
    few = generations(8)
    assert tie(few, few).verdict is Verdict.UNDERPOWERED
    with pytest.raises(ValueError, match="sigma_gap=nan"):
        tie(G, G, float("nan"))


def test_first_divergences_count_an_end_as_a_difference() -> None:
    assert tokens.first_divergences([(1, 2), (1, 3), (1,), ()], [(1, 2), (1, 2), (1, 2), (1,)]) == [None, 1, 1, 0]
    with pytest.raises(ValueError, match="as many"):
        tokens.first_divergences([(1,)], [])


def test_known_texts_must_be_met_to_the_letter() -> None:
    def texts(given: list[str], known: list[str | None]) -> Verdict:
        return tokens.texts_are_known(texts=given, known=known).verdict

    assert texts(["a", "b", "?"], ["a", "b", None]) is Verdict.PASS
    assert texts(["a", "b "], ["a", "b"]) is Verdict.FAIL
    assert texts(["a"], ["a", "b"]) is Verdict.FAIL
    assert texts(["a", "b"], [None, None]) is Verdict.UNDERPOWERED
    assert texts(["a", "a"], ["a", "a"]) is Verdict.UNDERPOWERED
    assert texts(["a", "b"], ["a", None]) is Verdict.PASS
    assert texts([], []) is Verdict.UNDERPOWERED
