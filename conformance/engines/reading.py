"""Which token ids a server reads: as its own tokenizer tells, held against the count that it reports for a request.

Where a server tells nothing, the ids are those of the model's tokenizer here, and the count is all that is checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.engines.completions import prompt_tokens
from conformance.engines.server import Server, ServerFault
from conformance.runner import Message, NotSupported, TokenIds

TOKENIZE = "/tokenize"


class Reader:
    """Tells the ids of texts; each text is asked for once."""

    def __init__(self, server: Server, model: str, folder: Path, limit: int | None) -> None:
        self._server, self._model, self._folder = server, model, folder
        self.limit = limit
        self._known: dict[str, TokenIds] = {}
        self._tokenizer: Any = None

    def texts(self, texts: Sequence[str]) -> tuple[TokenIds, ...]:
        """The ids of each text with the model's special tokens, cut to the model's length.

        ServerFault where a text has to be cut and the server's tokenizer is another than the model's.
        """
        return tuple(self._text(text) for text in texts)

    def pairs(self, pairs: Sequence[tuple[str, str]]) -> tuple[TokenIds, ...]:
        """The ids of each pair; no server tells them, so they are those of the model's tokenizer here."""
        return tuple(self._own(*pair) for pair in pairs)

    def conversation(self, turns: Sequence[Message]) -> TokenIds:
        """The ids of a conversation as the server's chat template writes it. NotSupported where it does not tell."""
        body = {"model": self._model, "messages": list(turns), "add_generation_prompt": False}
        return self._told({**body, "add_special_tokens": False})

    def check(self, rows: Sequence[TokenIds], answer: Mapping[str, Any], where: str) -> None:
        """ServerFault where the answer reports another number of prompt tokens than these rows have."""
        read, sent = prompt_tokens(answer), sum(map(len, rows))
        if read is not None and read != sent:
            raise ServerFault(
                f"{where}: the server read {read} tokens, but there should be {sent}, as its "
                "tokenizer, or the model's own, cuts them"
            )

    def _text(self, text: str) -> TokenIds:
        if text not in self._known:
            self._known[text] = self._cut(text)
        return self._known[text]

    def _cut(self, text: str) -> TokenIds:
        if self._server.offer.paths is None or not self._server.has(TOKENIZE):
            return self._own(text)
        told = self._told({"model": self._model, "prompt": text, "add_special_tokens": True})
        if self.limit is None or len(told) <= self.limit:
            return told
        mine = self._own(text, cut=False)
        if told != mine:
            raise ServerFault(
                f"POST {self._server.address(TOKENIZE)}: {list(told[:8])} ... ({len(told)} ids) for a text that the "
                f"model's tokenizer reads as {list(mine[:8])} ... ({len(mine)})"
            )
        return self._own(text)

    def _told(self, body: Mapping[str, Any]) -> TokenIds:
        if self._server.offer.paths is None or not self._server.has(TOKENIZE):
            raise NotSupported(f"the server at {self._server.url} has no {TOKENIZE}, so it does not tell what it reads")
        ids = self._server.post(TOKENIZE, body).get("tokens")
        if not isinstance(ids, list) or not all(isinstance(each, int) and not isinstance(each, bool) for each in ids):
            raise ServerFault(f"POST {self._server.address(TOKENIZE)}: there should be a list of ids under 'tokens'")
        return tuple(ids)

    def _own(self, text: str, second: str | None = None, *, cut: bool = True) -> TokenIds:
        if self._tokenizer is None:
            from tokenizers import Tokenizer

            self._tokenizer = Tokenizer.from_file(str(self._folder / "tokenizer.json"))
            self._tokenizer.no_padding()
        if cut and self.limit is not None:
            self._tokenizer.enable_truncation(self.limit)
        else:
            self._tokenizer.no_truncation()
        return tuple(self._tokenizer.encode(text, second).ids)
