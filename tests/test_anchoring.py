"""Text that leaves the reference is set back on it, so that every token of the reference is compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from replay import bench, embedded, outcomes, recorded

from conformance.runner import Effective, Generations, VisionEffective
from conformance.suite import Answers, Ask
from conformance.tokenization import Tokenizer
from conformance.verdict import Verdict
from suites import anchoring, company

NAME = "generation-qwen3"
RAN = Effective("bfloat16", "sdpa", {"flash": 4}, 4, 1)


class Straying:
    """Continues a prompt as the reference does, but for the tokens at `strays` (row, position)."""

    def __init__(self, reference: Generations, strays: dict[tuple[int, int], int]) -> None:
        self.reference, self.strays, self.calls = reference, strays, 0

    def generate(self, prompts: Sequence[Sequence[int]], *, max_tokens: int, **_: Any) -> Any:
        self.calls += 1
        rows = [self._continued(list(prompt), max_tokens) for prompt in prompts]
        return SimpleNamespace(token_ids=tuple(map(tuple, rows)), effective=RAN)

    def _continued(self, prompt: list[int], room: int) -> list[int]:
        for row, start in enumerate(self.reference.prompt_token_ids):
            done = prompt[len(start) :]
            if prompt[: len(start)] == list(start) and done == list(self.reference.token_ids[row][: len(done)]):
                return self.text(row, len(done))[:room]
        raise AssertionError("a prompt that is not on the reference's course")

    def text(self, row: int, start: int) -> list[int]:
        """From `start` on; after a stray token comes garbage, as in a real engine."""
        text = list(self.reference.token_ids[row][start:])
        for (where, position), token in sorted(self.strays.items()):
            if where == row and position >= start:
                return [*text[: position - start], token, *[1] * (len(text) - (position - start) - 1)]
        return text


def _anchored(strays: dict[tuple[int, int], int]) -> tuple[Generations, Straying]:
    reference, _ = recorded(NAME, "bfloat16", "eager")
    greedy: Any = reference["greedy"]
    engine = Straying(greedy, strays)
    ids = tuple(tuple(engine.text(row, 0)) for row in range(len(greedy.token_ids)))
    free = replace(greedy, token_ids=ids, effective=RAN)
    model, suite = embedded()[NAME]
    own = Answers(lambda _: free)
    known = Answers(reference.__getitem__)
    ask: Any = Ask(engine, suite.inputs(), {}, {}, Tokenizer(model.folder), known, own)  # type: ignore[arg-type]
    return anchoring.anchored(ask, 128), engine


def test_text_that_never_leaves_is_not_asked_for_again() -> None:
    found, engine = _anchored({})
    assert engine.calls == 0
    assert found.effective == RAN


def test_only_the_stray_tokens_differ_and_everything_after_them_is_compared() -> None:
    strays = {(0, 5): 7, (0, 60): 8, (3, 127): 9, (4, 0): 11}
    found, engine = _anchored(strays)
    reference: Any = recorded(NAME, "bfloat16", "eager")[0]["greedy"]
    for row, (mine, theirs) in enumerate(zip(found.token_ids, reference.token_ids, strict=True)):
        assert len(mine) == len(theirs)
        differing = {(row, at): a for at, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b}
        assert differing == {key: token for key, token in strays.items() if key[0] == row}
    assert engine.calls == 2
    assert found.effective.forwards == 3 and found.effective.kernels == {"flash": 12}


def test_another_kernel_after_the_setback_is_seen() -> None:
    other = Effective("float32", "eager", {"softmax": 4}, 4, 1)
    together = company.together(RAN, other)
    assert (together.dtype, together.attention) == ("bfloat16, then float32", "sdpa, then eager")
    assert together.kernels == {"flash": 4, "softmax": 4}


def test_another_attention_of_the_vision_tower_after_the_setback_is_seen() -> None:
    first, other = (replace(RAN, vision=VisionEffective(name, 3, 5)) for name in ("sdpa", "eager"))
    assert company.together(first, other).vision == VisionEffective("sdpa, then eager", 3, 10)
    assert company.together(first, first).vision == VisionEffective("sdpa", 3, 10)
    assert company.together(RAN, other).vision == other.vision


def test_tokens_from_a_cache_add_up_where_every_call_told_of_them() -> None:
    some, none = replace(RAN, cached_tokens=32), replace(RAN, cached_tokens=0)
    assert company.together(some, none).cached_tokens == 32
    assert company.together(some, RAN).cached_tokens is None


@pytest.mark.parametrize("cap", [1, 64])
def test_a_cap_cuts_what_the_engine_is_compared_with(cap: int) -> None:
    def cut(asked: str, honest: Any) -> Any:
        if asked not in ("greedy", "anchored"):
            return honest
        tokenizer = Tokenizer(embedded()[NAME][0].folder)
        ids = tuple(one[:cap] for one in honest.token_ids)
        changes = {name: getattr(honest, name)[:, :cap] for name in ("logprobs", "top_ids", "top_logprobs")}
        texts = tuple(tokenizer.decode(one) for one in ids)
        return replace(honest, token_ids=ids, texts=texts, finish_reasons=("length",) * len(ids), **changes)

    working = bench(NAME, alter=cut)
    working.settings = {"max_tokens": cap}
    verdicts = {test: outcome.verdict for test, outcome in outcomes(NAME, working).items()}
    # One token a prompt is one known word, mostly another for each prompt, and still all of it is compared.
    assert set(verdicts.values()) == {Verdict.PASS}, verdicts


def test_decoding_in_one_go_is_no_decoding() -> None:
    def at_once(asked: str, honest: Any) -> Any:
        if asked != "decoded":
            return honest
        ran = honest.effective
        return replace(honest, effective=replace(ran, forwards=2, kernels={"aten::_softmax": 2 * ran.layers}))

    found = outcomes(NAME, bench(NAME, alter=at_once))
    assert found["test_decode_logprobs_agree"].verdict is Verdict.FAIL
    assert "forward passes is 2, but must be at least 128" in found["test_decode_logprobs_agree"].message


def test_a_layer_left_out_of_the_account_fails() -> None:
    def fewer(_: str, honest: Any) -> Any:
        ran = honest.effective
        layers = ran.layers - 1
        kernels = {"aten::_softmax": layers * ran.forwards}
        return replace(honest, effective=replace(ran, layers=layers, kernels=kernels))

    found = outcomes(NAME, bench(NAME, alter=fewer))
    assert {outcome.verdict for outcome in found.values()} == {Verdict.FAIL}
    assert "3 layers were reported, but the model has 4" in found["test_prompt_tokens_agree"].message


def test_candidates_hold_the_forced_token_the_best_and_drawn_ones() -> None:
    reference, _ = recorded(NAME, "bfloat16", "eager")
    model, suite = embedded()[NAME]
    known = Answers(reference.__getitem__)
    ask: Any = Ask(None, suite.inputs(), {}, {}, Tokenizer(model.folder), known, known)  # type: ignore[arg-type]
    prompts, continuations, candidates = anchoring.forced(ask)
    assert candidates.shape == (len(prompts), 128, 65)
    assert (candidates[:, :, 0] == np.array(continuations)).all()
    assert (candidates[:, :, 21:] == candidates[0, 0, 21:]).all()
