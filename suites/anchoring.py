"""What suites of greedy text ask an engine beside it: forced tokens with candidates, and text set back on course."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from conformance.runner import ForcedLogprobs, Generations
from conformance.suite import Ask
from suites.branches import with_another_token
from suites.company import together
from suites.inputs.generation import GenerationInputs

if TYPE_CHECKING:
    from conformance.tokenization import Tokenizer

TOP, DRAWN, SEED = 20, 44, 20261130
"""Candidates of a position: the forced token, the reference's best, and ids drawn from a seed (one set for all)."""

ROUNDS = 8
"""How often a diverged text is set back on the reference; what is still open then counts as diverged."""


def forced(ask: Ask) -> tuple[list[list[int]], list[list[int]], Any]:
    """Prompts, the reference's greedy continuations, and the candidates, int64 [n, positions, 1 + 20 + 44]."""
    import numpy as np

    greedy: Generations = ask.reference.greedy
    positions = max(len(ids) for ids in greedy.token_ids)
    drawn = random.Random(SEED).sample(range(ask.tokenizer.size), min(DRAWN, ask.tokenizer.size))
    candidates = np.zeros((len(greedy.token_ids), positions, 1 + TOP + len(drawn)), dtype=np.int64)
    for row, ids in enumerate(greedy.token_ids):
        candidates[row, : len(ids), 0] = ids
        candidates[row, : len(ids), 1 : 1 + TOP] = greedy.top_ids[row, : len(ids), :TOP]
    candidates[:, :, 1 + TOP :] = drawn
    return [list(ids) for ids in greedy.prompt_token_ids], [list(ids) for ids in greedy.token_ids], candidates


def few_forced(
    ask: Ask,
    rows: Sequence[int],
    tokens: int,
    *,
    via: Literal["prefill", "decode"],
    edited: int | None = None,
    places: Sequence[int] = (),
) -> ForcedLogprobs:
    """Logprobs of the first `tokens` forced tokens of these prompts.

    With `edited`, the tokens from that one on are the reference's second choices; the candidates stay. With `places`,
    one for each of the rows, its prompt has another token there.
    """
    prompts, continuations, candidates = forced(ask)
    asked = [prompts[row] for row in rows]
    if places:
        pairs = zip(asked, places, strict=True)
        asked = [with_another_token(prompt, place, ask.tokenizer.size) for prompt, place in pairs]
    chosen = [continuations[row][:tokens] for row in rows]
    if edited is not None:
        chosen = [
            [*ids[:edited], *candidates[row, edited:tokens, 2].tolist()] for row, ids in zip(rows, chosen, strict=True)
        ]
    return ask.runner.score_tokens(
        asked,
        chosen,
        candidates[list(rows), :tokens],
        via=via,
        **{kind: [given[row] for row in rows] for kind, given in ask.inputs.pictures.items()},
    )


def mask(greedy: Generations) -> Any:
    """The positions that have a forced token, bool [n, positions]."""
    import numpy as np

    positions = max(len(ids) for ids in greedy.token_ids)
    return np.array([[at < len(ids) for at in range(positions)] for ids in greedy.token_ids])


def stop_ids(inputs: GenerationInputs, tokenizer: Tokenizer) -> list[int]:
    """The ids of the stop words in the inputs, as they stand within a text; each must be one token of the model."""
    words = [stop.stop_word for stop in inputs.stops if stop.stop_word]
    ids = [tokenizer.encode(f" {word}") for word in words]
    return sorted({one[0] for one in ids if len(one) == 1})


def capped(greedy: Generations, max_tokens: int | None, tokenizer: Tokenizer) -> Generations:
    """The reference as it would have been with at most `max_tokens` tokens (None: as it is)."""
    if max_tokens is None:
        return greedy
    cut = tuple(ids[:max_tokens] for ids in greedy.token_ids)
    return replace(
        greedy,
        token_ids=cut,
        texts=tuple(tokenizer.decode(ids) for ids in cut),
        finish_reasons=tuple(
            reason if len(ids) <= max_tokens else "length"
            for ids, reason in zip(greedy.token_ids, greedy.finish_reasons, strict=True)
        ),
        logprobs=greedy.logprobs[:, :max_tokens],
        top_ids=greedy.top_ids[:, :max_tokens],
        top_logprobs=greedy.top_logprobs[:, :max_tokens],
    )


def anchored(ask: Ask, max_tokens: int) -> Generations:
    """Greedy text in which every token was chosen after the reference's text up to its last divergence.

    Where the engine's token differs from the reference's, the engine's is kept for the judgement, the reference's
    takes its place in the prompt, and generation goes on from there.
    """
    reference = capped(ask.reference.greedy, max_tokens, ask.tokenizer)
    found: Generations = ask.own.greedy
    ids = [list(one) for one in found.token_ids]
    ran = found.effective
    checked = [0] * len(ids)
    for _ in range(ROUNDS):
        open_rows = [row for row in range(len(ids)) if _advance(ids, checked, reference, row)]
        if not open_rows:
            break
        left = max(len(reference.token_ids[row]) - checked[row] for row in open_rows)
        prompts = [[*reference.prompt_token_ids[row], *reference.token_ids[row][: checked[row]]] for row in open_rows]
        beside: dict[str, Any] = {
            kind: [given[row] for row in open_rows] for kind, given in ask.inputs.pictures.items()
        }
        more = ask.runner.generate(prompts, max_tokens=left, **beside)
        ran = together(ran, more.effective)
        for row, tokens in zip(open_rows, more.token_ids, strict=True):
            room = len(reference.token_ids[row]) - checked[row]
            ids[row] = [*ids[row][: checked[row]], *tokens[:room]]
    return replace(found, token_ids=tuple(tuple(one) for one in ids), effective=ran)


def _advance(ids: list[list[int]], checked: list[int], reference: Generations, row: int) -> bool:
    """Move `checked[row]` behind the next divergence; True where tokens of the reference are left after it."""
    wanted = reference.token_ids[row]
    for at in range(checked[row], min(len(ids[row]), len(wanted))):
        if ids[row][at] != wanted[at]:
            checked[row] = at + 1
            return checked[row] < len(wanted)
    return False
