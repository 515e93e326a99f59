"""Embeddings, scores, class logits and rewards of a server: one number or vector a prompt, and never an activated one.

Logits are compared, not probabilities: at 0 and 1 an activation swallows what is to be seen, and its inverse cannot
bring that back. So a server that cannot be told to leave the activation out (vLLM: use_activation) is not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from conformance.engines.completions import entries
from conformance.engines.reading import Reader
from conformance.engines.server import Refused, Server, ServerFault
from conformance.runner import Message, NotSupported, TokenIds

if TYPE_CHECKING:
    from conformance.runner import Floats

EMBEDDINGS, SCORE, RERANK, CLASSIFY, POOLING = "/v1/embeddings", "/score", "/rerank", "/classify", "/pooling"
RAW = "use_activation"
AT_ONCE = 16
"""Requests in flight, where each takes one prompt."""

Rows = tuple[TokenIds, ...]
Asked = TypeVar("Asked")


class Numbers:
    """Asks one server for numbers about one model."""

    def __init__(
        self, server: Server, model: str, reader: Reader, batch_size: int, *, pairs_as_ids: bool = False
    ) -> None:
        self._server, self._model, self._reader, self._batch_size = server, model, reader, batch_size
        self._pairs_as_ids = pairs_as_ids
        self._limit = reader.limit

    def embeddings(self, texts: Sequence[str], dimensions: int | None) -> tuple[Rows, Floats]:
        """Vectors [n, dimensions]. NotSupported where the server does not shorten this model's."""
        body: dict[str, Any] = {"encoding_format": "float"}
        if dimensions is not None:
            body["dimensions"] = dimensions

        def ask(batch: Sequence[str]) -> Mapping[str, Any]:
            try:
                return self._post(EMBEDDINGS, {**body, **self._cut(EMBEDDINGS), "input": list(batch)})
            except Refused as error:
                if (dimensions is not None and "dimension" in str(error).lower()) or "matryoshka" in str(error).lower():
                    raise NotSupported(str(error)) from error
                raise

        return self._in_batches(EMBEDDINGS, texts, ask, self._reader.texts, "data", "embedding")

    def classes(self, texts: Sequence[str]) -> tuple[Rows, Floats]:
        """Raw logits [n, classes]."""
        path, key = self._classifier()
        more = {"task": "classify"} if path == POOLING else {}

        def ask(batch: Sequence[str]) -> Mapping[str, Any]:
            return self._post(path, {**more, RAW: False, **self._cut(path), "input": list(batch)})

        return self._in_batches(path, texts, ask, self._reader.texts, "data", key)

    def rewards(self, conversations: Sequence[Sequence[Message]]) -> tuple[Rows, Floats]:
        """One raw logit a conversation [n], which the server's chat template writes out."""
        path, key = self._classifier()
        more = {"task": "classify"} if path == POOLING else {}
        where = f"POST {self._server.address(path)}"

        def ask(turns: Sequence[Message]) -> tuple[TokenIds, list[Any]]:
            row = self._reader.conversation(turns)
            answer = self._post(path, {**more, RAW: False, "messages": list(turns), "add_generation_prompt": False})
            self._reader.check([row], answer, where)
            return row, [entries(answer, "data", 1, where)[0].get(key)]

        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = list(pool.map(ask, conversations))
        return tuple(row for row, _ in found), _column(_array([each for _, (each,) in found], f"{where}: {key}"), where)

    def scores(self, pairs: Sequence[tuple[str, str]]) -> tuple[Rows, Floats]:
        """One raw logit a pair [n], of a score endpoint, or of one that ranks documents.

        With `pairs_as_ids` the server gets the ids that the model's tokenizer makes of each pair.
        """
        if self._pairs_as_ids:
            return self._of_ids(self._reader.pairs(pairs))
        path = self._server.first_of(SCORE, "/v1/score", RERANK, "/v1/rerank", "/v2/rerank")
        self._leaves_raw(path)
        if path.endswith("rerank"):
            return self._ranked(path, pairs)

        def ask(batch: Sequence[tuple[str, str]]) -> Mapping[str, Any]:
            queries, documents = ([pair[side] for pair in batch] for side in (0, 1))
            return self._post(path, {RAW: False, **self._cut(path), "text_1": queries, "text_2": documents})

        rows, values = self._in_batches(path, pairs, ask, self._reader.pairs, "data", "score")
        return rows, _column(values, path)

    def _of_ids(self, rows: Rows) -> tuple[Rows, Floats]:
        self._leaves_raw(POOLING)

        def ask(batch: Sequence[TokenIds]) -> Mapping[str, Any]:
            return self._post(POOLING, {"task": "classify", RAW: False, "input": [list(row) for row in batch]})

        _, values = self._in_batches(POOLING, rows, ask, tuple, "data", "data")
        return rows, _column(values, POOLING)

    def _ranked(self, path: str, pairs: Sequence[tuple[str, str]]) -> tuple[Rows, Floats]:
        where = f"POST {self._server.address(path)}"
        rows, values = self._reader.pairs(pairs), np.full(len(pairs), np.nan)
        for query in dict.fromkeys(query for query, _ in pairs):
            mine = [index for index, pair in enumerate(pairs) if pair[0] == query]
            documents = [pairs[index][1] for index in mine]
            answer = self._post(path, {RAW: False, **self._cut(path), "query": query, "documents": documents})
            self._reader.check([rows[index] for index in mine], answer, where)
            found = entries(answer, "results", len(mine), where)
            values[mine] = _array([each.get("relevance_score") for each in found], f"{where}: relevance_score")
        return rows, values

    def _classifier(self) -> tuple[str, str]:
        path = self._server.first_of(CLASSIFY, POOLING)
        self._leaves_raw(path)
        return path, "probs" if path == CLASSIFY else "data"

    def _leaves_raw(self, path: str) -> None:
        if self._server.offer.takes(path, RAW) is not True:
            raise NotSupported(
                f"POST {path} of the server at {self._server.url} takes no {RAW}, so its numbers may have been through "
                "an activation, whose inverse is not exact; raw logits are compared"
            )

    def _in_batches(
        self,
        path: str,
        asked: Sequence[Asked],
        ask: Callable[[Sequence[Asked]], Mapping[str, Any]],
        read: Callable[[Sequence[Asked]], Rows],
        key: str,
        name: str,
    ) -> tuple[Rows, Floats]:
        where = f"POST {self._server.address(path)}"
        rows: list[TokenIds] = []
        found: list[Any] = []
        for start in range(0, len(asked), self._batch_size):
            batch = asked[start : start + self._batch_size]
            answer = ask(batch)
            read_rows = read(batch)
            try:
                self._reader.check(read_rows, answer, where)
            except ServerFault:
                if len(batch) > 1:  # one by one, to name the one that is read otherwise
                    for row, each in zip(read_rows, batch, strict=True):
                        self._reader.check([row], ask([each]), f"{where}: {str(each)[:80]!r}")
                raise
            rows += read_rows
            found += [each.get(name) for each in entries(answer, key, len(batch), where)]
        return tuple(rows), _array(found, f"{where}: {name}")

    def _post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._server.post(path, {"model": self._model, **body})

    def _cut(self, path: str) -> dict[str, Any]:
        """Prompts longer than the model are to be cut, where the server can be told so."""
        takes = self._limit is not None and self._server.offer.takes(path, "truncate_prompt_tokens")
        return {"truncate_prompt_tokens": self._limit} if takes else {}


def _array(values: Sequence[Any], where: str) -> Floats:
    """Numbers, or rows of numbers that are all as long. ServerFault for anything else."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ServerFault(f"{where}: there should be numbers, as many for each prompt") from None
    if array.ndim > 2 or array.size == 0:
        raise ServerFault(f"{where}: an array of shape {list(array.shape)}, but should be one or two axes of numbers")
    return array


def _column(values: Floats, where: str) -> Floats:
    if values.ndim == 2 and values.shape[1] == 1:
        return values[:, 0]
    if values.ndim != 1:
        raise ServerFault(f"{where}: {values.shape[1]} numbers for each prompt, but one score was asked for")
    return values
