"""A model's own tokenizer, without the engine and without torch: what texts and ids mean for a judgement."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path


class Tokenizer:
    """Reads `tokenizer.json` of a model folder through the `tokenizers` library, on first use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def _backend(self):  # type: ignore[no-untyped-def]
        from tokenizers import Tokenizer as Backend

        return Backend.from_file(str(self.folder / "tokenizer.json"))

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of `text`, no special tokens added."""
        return tuple(self._backend.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, special tokens left out."""
        return str(self._backend.decode(list(ids), skip_special_tokens=True))

    @cached_property
    def size(self) -> int:
        """The number of ids, added tokens included."""
        return int(self._backend.get_vocab_size(with_added_tokens=True))

    @cached_property
    def end_ids(self) -> tuple[int, ...]:
        """The model's end-of-text ids: of generation_config.json, else of config.json."""
        for name in ("generation_config.json", "config.json"):
            file = self.folder / name
            found = json.loads(file.read_text("utf-8")).get("eos_token_id") if file.is_file() else None
            if found is not None:
                return tuple(found) if isinstance(found, list) else (int(found),)
        return ()
