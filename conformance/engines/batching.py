"""Ragged prompts into padded batches of bounded size, and back into their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch  # not at run time: estimates of memory read this file where there is none

UNPADDED, PADDED = "unpadded", "padded"
"""Values of a runner's option `batch`, for attention backends that take only one form: batches hold prompts of one
length, so that no call needs a mask; or a prompt shares its batch however short it is."""

PADDED_TOKENS = 20_000
"""At most so many padded tokens a batch: activations stay within some hundred MiB for small models."""

ATTENTION_SCORES = 8_000_000
"""At most so many scores (rows x length x length) a head: eager attention of 4 heads in float32 then holds 128 MB
a copy, and makes half a dozen copies."""


def batches(lengths: Sequence[int], size: int, *, extra: int = 0, form: str = "") -> Iterator[list[int]]:
    """Indices of `lengths` in batches of at most `size`, longest first, so that little is padded.

    `extra` tokens will be decoded after each prompt: they take room in the cache, but no square of scores. Without
    any, a batch ends where a prompt is less than half as long as its first; with some, every batch costs a pass a
    token, so it is filled up. `form` is UNPADDED, PADDED or, for either, empty.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    start = 0
    while start < len(order):
        longest = max(1, lengths[order[start]])
        rows = min(size, PADDED_TOKENS // (longest + extra), ATTENTION_SCORES // longest**2)
        batch = order[start : start + max(1, rows)]
        if form == UNPADDED:
            batch = [index for index in batch if lengths[index] == lengths[batch[0]]]
        elif not extra and form != PADDED:
            batch = [index for index in batch if 2 * lengths[index] >= longest] or batch[:1]
        yield batch
        start += len(batch)


def pad(
    rows: Sequence[Sequence[int]], pad_id: int, side: str, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`rows` as ids, attention mask and position ids, int64 [n, longest], padded on `side` ("left" or "right").

    Positions count from the first real token; those of padding are 0.
    """
    import torch

    longest = max(len(row) for row in rows)
    ids = torch.full((len(rows), longest), pad_id, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for index, row in enumerate(rows):
        where = slice(longest - len(row), longest) if side == "left" else slice(0, len(row))
        ids[index, where] = torch.tensor(list(row), dtype=torch.long)
        mask[index, where] = 1
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    return ids.to(device), mask.to(device), positions.to(device)
