"""A running server with an OpenAI-compatible API, reached by URL: how a closed stack, or another language's, is tested.

Nothing is loaded and nothing computed here. The server chooses device, dtype and kernels, and tells nobody: what is
certified is what its operator declares. Options: `url`, of the API, usually ending in /v1; `served_model_name`, where
the server calls the model otherwise than by its name or folder; `api_key_variable`, the environment variable that holds
the key (default OPENAI_API_KEY); `batch_size`, prompts in one request; `timeout_s`, how long a server may send nothing;
`pairs` = "ids", to have the model's own tokenizer write query and document as one prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from conformance.engines.asking import Asker, forced_by_decode, forced_by_prefill
from conformance.engines.completions import Completion, best
from conformance.engines.numbers import Numbers
from conformance.engines.pictured import Pictured
from conformance.engines.reading import Reader
from conformance.engines.served_model import served_name
from conformance.engines.server import TIMEOUT_S, Server
from conformance.runner import (
    ClassLogits,
    Effective,
    ForcedLogprobs,
    Generations,
    Message,
    NotSupported,
    Prompt,
    Runner,
    Scalars,
    TokenIds,
    TokenLogprobs,
    Unavailable,
    Vectors,
)

if TYPE_CHECKING:
    from conformance.runner import Integers

BATCH_SIZE = 64


class OpenAIRunner(Runner):
    """Asks one server about the one model that it serves."""

    capabilities = frozenset(
        {"embed", "score_pairs", "token_logprobs", "classify", "reward", "generate", "score_tokens"}
    )

    def __enter__(self) -> OpenAIRunner:
        options, folder = self.request.options, Path(self.request.folder)
        url = str(options.get("url", ""))
        if not url:
            raise Unavailable("no server is named; --url says where it is, as in --url http://127.0.0.1:8000/v1")
        variable = str(options.get("api_key_variable") or "OPENAI_API_KEY")
        self._server = Server(url, key_variable=variable, timeout_s=float(options.get("timeout_s", TIMEOUT_S)))
        limit = self.request.parameters.get("max_tokens")
        entries = self._server.connect()
        asked = str(options.get("served_model_name", ""))
        self._model = served_name(entries, url, asked=asked, names=(self.request.model, folder.name), limit=limit)
        batch_size = int(options.get("batch_size", BATCH_SIZE))
        self._asker = Asker(self._server, self._model, batch_size)
        self._reader = Reader(self._server, self._model, folder, limit)
        self._numbers = Numbers(
            self._server, self._model, self._reader, batch_size, pairs_as_ids=options.get("pairs") == "ids"
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()

    @property
    def notes(self) -> tuple[str, ...]:
        """What went wrong on the way and passed, counted."""
        counts = self._server.counts
        if not counts["retries"]:
            return ()
        return (
            f"{self._server.url}: {counts['retries']} of {counts['requests']} requests were sent again "
            f"({counts['time-outs']} time-outs)",
        )

    def embed(self, prompts: Sequence[str], *, dimensions: int | None = None) -> Vectors:
        rows, values = self._numbers.embeddings(list(prompts), dimensions)
        return Vectors(rows, self._effective, values)

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> Scalars:
        rows, values = self._numbers.scores(list(pairs))
        return Scalars(rows, self._effective, values)

    def classify(self, prompts: Sequence[str]) -> ClassLogits:
        rows, values = self._numbers.classes(list(prompts))
        return ClassLogits(rows, self._effective, values)

    def reward(self, conversations: Sequence[Sequence[Message]]) -> Scalars:
        rows, values = self._numbers.rewards(list(conversations))
        return Scalars(rows, self._effective, values)

    def token_logprobs(self, prompts: Sequence[str], tokens: Sequence[int]) -> TokenLogprobs:
        wanted = [int(token) for token in tokens]
        found = self._asker.greedy(list(prompts), max_tokens=1, named=wanted if self._asker.names_ids else ())
        values = np.full((len(found), len(wanted)), np.nan)
        for index, each in enumerate(found):
            step = each.steps[0] if each.steps else {}
            missing = [token for token in wanted if token not in step]
            if missing:
                raise NotSupported(f"prompt {index}: the server gives logprobs of {len(step)} ids, not of {missing}")
            values[index] = [step[token] for token in wanted]
        return TokenLogprobs(self._read(prompts, found), self._effective, values)

    def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        max_tokens: int,
        top_k: int = 20,
        stop_token_ids: Sequence[int] = (),
        images: Sequence[Sequence[Any]] | None = None,
        videos: Sequence[Sequence[Any]] | None = None,
    ) -> Generations:
        if images is not None or videos is not None:
            seen = Pictured(self._server, self._model)
            found = seen.greedy(prompts, images, videos, max_tokens=max_tokens, stops=stop_token_ids)
            return self._generations(self._read(prompts, found), found, top_k)
        found = self._asker.greedy(list(prompts), max_tokens=max_tokens, stops=stop_token_ids)
        return self._generations(self._read(prompts, found), found, top_k)

    def score_tokens(
        self,
        prompts: Sequence[Sequence[int]],
        continuations: Sequence[Sequence[int]],
        candidates: Integers,
        *,
        via: Literal["prefill", "decode"],
        images: Sequence[Sequence[Any]] | None = None,
        videos: Sequence[Sequence[Any]] | None = None,
    ) -> ForcedLogprobs:
        if images is not None or videos is not None:
            raise NotSupported("no API takes token ids together with pictures, so none can be forced after them")
        rows, forced = _tuples(prompts), _tuples(continuations)
        ask = forced_by_prefill if via == "prefill" else forced_by_decode
        return ForcedLogprobs(rows, self._effective, ask(self._asker, rows, forced, candidates))

    @property
    def _effective(self) -> Effective:
        return Effective(self.request.dtype, self.request.attention, {}, 0, 0, evidence="undisclosed")

    def _read(self, prompts: Sequence[Prompt], found: Sequence[Completion]) -> tuple[TokenIds, ...]:
        """The ids that were read: as the server says, else those that were sent, or those of its tokenizer."""
        return tuple(
            each.prompt_ids
            if each.prompt_ids is not None
            else self._reader.texts([prompt])[0]
            if isinstance(prompt, str)
            else tuple(prompt)
            for prompt, each in zip(prompts, found, strict=True)
        )

    def _generations(self, rows: tuple[TokenIds, ...], found: Sequence[Completion], top_k: int) -> Generations:
        longest = max((len(each.tokens) for each in found), default=0)
        shape = (len(found), longest)
        count = min([top_k, *(len(step) for each in found for step in each.steps)])
        logprobs, top_logprobs = np.full(shape, np.nan), np.full((*shape, count), np.nan)
        top_ids = np.full((*shape, count), -1, dtype=np.int64)
        for row, each in enumerate(found):
            for position, (token, step) in enumerate(zip(each.tokens, each.steps, strict=True)):
                pairs = best(step, token, count)
                logprobs[row, position] = step[token]
                top_ids[row, position] = [id for id, _ in pairs]
                top_logprobs[row, position] = [value for _, value in pairs]
        return Generations(
            rows,
            self._effective,
            tuple(each.tokens for each in found),
            tuple(each.text for each in found),
            tuple(each.finish_reason for each in found),
            logprobs,
            top_ids,
            top_logprobs,
        )


def _tuples(sequences: Sequence[Sequence[int]]) -> tuple[TokenIds, ...]:
    return tuple(tuple(int(token) for token in each) for each in sequences)
