"""Batches of token ids made on the device, the same texts as the suites' generators make, without a tokenizer.

Shapes: B rows, W columns of a body, K marked words, P and S tokens before and after the body.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from suites.inputs import lexicon


@dataclass(frozen=True)
class Batch:
    """`ids` (B, P+W+S) padded on the right, `last` (B,) the index of each row's last token."""

    ids: Tensor
    last: Tensor


class Sampler:
    """Draws words, filler and places from the device's default generator."""

    def __init__(self, tokenizer: Tokenizer, pad: int, device: str) -> None:
        self.tokenizer, self.pad, self.device = tokenizer, pad, device
        self.words = self.ids("".join(" " + word for word in lexicon.WORDS))
        assert len(self.words) == len(lexicon.WORDS)
        free_text = self.ids("".join(" " + free.text for free in lexicon.FREE_TEXT))
        some_bytes = torch.randint(int(self.words.min()), (200,), device=device)
        specials = torch.tensor(list(tokenizer.get_added_tokens_decoder()), device=device)
        self.noise = torch.cat((free_text, some_bytes[~torch.isin(some_bytes, specials)]))

    def ids(self, text: str) -> Tensor:
        """The token ids of `text` without an end marker."""
        return torch.tensor(self.spell(text), device=self.device)

    def spell(self, text: str) -> list[int]:
        """The same as a list."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def uniform(self, low: int, high: Tensor | int, rows: int) -> Tensor:
        """(rows,) integers from `low` to `high`, both included."""
        return low + (torch.rand(rows, device=self.device) * (high - low + 1)).long()

    def distinct(self, rows: int, count: int) -> Tensor:
        """(rows, count) indices of words, none twice in a row."""
        return torch.rand(rows, len(self.words), device=self.device).topk(count, dim=1).indices

    def permutation(self, rows: int, count: int) -> Tensor:
        return torch.rand(rows, count, device=self.device).argsort(dim=1)

    def filler(self, rows: int, width: int) -> Tensor:
        """(B, W) random words; a third of the rows have a span of free text."""
        ids = self.words[torch.randint(len(self.words), (rows, width), device=self.device)]
        column = torch.arange(width, device=self.device)
        start = self.uniform(0, width - 1, rows)[:, None]
        length = self.uniform(4, 100, rows)[:, None] * (torch.rand(rows, 1, device=self.device) < 0.33)
        offset = self.uniform(0, len(self.noise) - 1, rows)[:, None]
        noise = self.noise[(column + offset) % len(self.noise)]
        return torch.where((column >= start) & (column < start + length), noise, ids)

    def scatter_words(self, body: Tensor, lengths: Tensor, words: Tensor) -> None:
        """Writes each of `words` (B, K) into the body at a random place, or, half of the time, not at all."""
        rows, count = words.shape
        place = (torch.rand(rows, count, device=self.device) * lengths[:, None]).long()
        keep = torch.rand(rows, count, device=self.device) < 0.5
        body.scatter_(1, place, torch.where(keep, self.words[words], body.gather(1, place)))

    def mark(self, body: Tensor, lengths: Tensor, marks: Tensor, words: Tensor, used: Tensor | None = None) -> Tensor:
        """Writes K pairs of mark and word (B, K each) into the body; returns the words' columns (B, K).

        The pairs do not overlap and come in the given order. Where `used` (B, K) is false a pair is left out.
        """
        rows, count = words.shape
        chance = torch.rand(body.shape, device=self.device)
        chance[torch.arange(body.shape[1], device=self.device) >= (lengths - count)[:, None]] = -1.0
        first = chance.topk(count, dim=1).indices.sort(dim=1).values + torch.arange(count, device=self.device)
        ids = self.words[words]
        if used is not None:
            marks = torch.where(used, marks, body.gather(1, first))
            ids = torch.where(used, ids, body.gather(1, first + 1))
        body.scatter_(1, first, marks.expand(rows, count))
        body.scatter_(1, first + 1, ids)
        return first + 1

    def assemble(
        self, before: Tensor, body: Tensor, lengths: Tensor, after: Tensor, after_lengths: Tensor | int | None = None
    ) -> Batch:
        """Rows of `before` (P,) or (B, P), the first `lengths` (B,) tokens of the body, and `after` (S,) or (B, S)."""
        rows, width = body.shape
        head, tail = before.shape[-1], after.shape[-1]
        ids = torch.full((rows, head + width + tail), self.pad, device=self.device)
        ids[:, :head] = before
        column = torch.arange(width, device=self.device)
        ids[:, head : head + width] = torch.where(column < lengths[:, None], body, self.pad)
        places = head + lengths[:, None] + torch.arange(tail, device=self.device)
        ids.scatter_(1, places, after.expand(rows, tail))
        return Batch(ids, head + lengths + (tail if after_lengths is None else after_lengths) - 1)
