"""A runner that answers a suite's own prompts with recorded rows, in whatever company they are asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from conformance.runner import ClassLogits, Effective, ForcedLogprobs, Observation, Scalars, TokenLogprobs, Vectors
from suites import templates

Meddle = Callable[[list[int], Any], Any]
"""From the rows that one call asks for, and their honest values, to what a wrong engine answers."""


def honest(rows: list[int], values: Any) -> Any:
    return values


class ReplayRunner:
    """`recorded` is the engine's observation of all prompts of `inputs`, `compared` its name.

    A question that is one of them but for its last word is answered like the next prompt; with `deaf` like itself. An
    edited token changes the logprobs behind it, and with `leak` those before it as well.
    """

    def __init__(
        self,
        compared: str,
        recorded: Any,
        inputs: Any,
        ran: Effective,
        *,
        template: str = "",
        meddle: Meddle = honest,
        deaf: bool = False,
        leak: float = 0.0,
    ) -> None:
        self._recorded, self._ran, self._meddle, self._deaf, self._leak = recorded, ran, meddle, deaf, leak
        questions = {
            "vectors": lambda: inputs.prompts,
            "logits": lambda: inputs.texts,
            "rewards": lambda: inputs.conversations,
            "scores": lambda: inputs.pairs,
            "logprobs": lambda: [templates.RERANK[template](inputs.instruction, *pair) for pair in inputs.pairs],
            "prefilled": lambda: recorded.prompt_token_ids,
        }[compared]()
        self._rows = {repr(question): row for row, question in enumerate(questions)}
        self._stems = {_stem(question): row for row, question in enumerate(questions)}

    def _answer(self, kind: Any, questions: Sequence[Any]) -> Any:
        rows, ids = [], []
        for question in questions:
            row = self._rows.get(repr(question))
            edited = row is None
            row = self._stems[_stem(question)] if row is None else row
            own = self._recorded.prompt_token_ids[row]
            ids.append((*own[:-2], own[-2] + 1, own[-1]) if edited else own)
            rows.append((row + 1) % len(self._rows) if edited and not self._deaf else row)
        return kind(tuple(ids), self._ran, self._meddle(rows, np.asarray(self._recorded.values)[rows].copy()))

    def embed(self, prompts: Sequence[str]) -> Observation:
        return self._answer(Vectors, prompts)

    def classify(self, prompts: Sequence[str]) -> Observation:
        return self._answer(ClassLogits, prompts)

    def reward(self, conversations: Sequence[Any]) -> Observation:
        return self._answer(Scalars, conversations)

    def token_logprobs(self, prompts: Sequence[str], tokens: Sequence[int]) -> Observation:
        return self._answer(TokenLogprobs, prompts)

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> Observation:
        return self._answer(Scalars, pairs)

    def score_tokens(self, prompts: Sequence[Any], continuations: Sequence[Any], candidates: Any, **_: Any) -> Any:
        found = self._answer(ForcedLogprobs, [tuple(ids) for ids in prompts])
        values = found.values[:, : candidates.shape[1]]
        for row, (ids, own) in enumerate(zip(continuations, candidates[:, :, 0].tolist(), strict=True)):
            edits = [at for at, (mine, theirs) in enumerate(zip(ids, own, strict=False)) if mine != theirs]
            if edits:
                values[row, edits[0] + 1 :] -= 1.0
                values[row, : edits[0] + 1] -= self._leak
        return ForcedLogprobs(found.prompt_token_ids, self._ran, values)


def _stem(question: Any) -> str:
    """A text, or a query and a document, without the last word; ids and conversations as they are."""
    if isinstance(question, str):
        return repr(question.split(" ")[:-1])
    if isinstance(question, tuple) and len(question) == 2 and isinstance(question[1], str):
        return repr((question[0], question[1].split(" ")[:-1]))
    return repr(question)
