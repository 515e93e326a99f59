"""Prompts that begin as another does and leave it at the edge of a block, where caches of prefixes are cut."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from conformance import criteria

if TYPE_CHECKING:
    from conformance.profile import Claim
    from conformance.tokenization import Tokenizer

BLOCKS = (16, 32, 64, 128)
"""Tokens of the blocks at whose edges branches leave, beside those of the pages that the profile claims."""


def blocks(claim: Claim | None, lengths: Sequence[int]) -> tuple[int, ...]:
    """The sizes of blocks of which the longest prompt holds two and more."""
    claimed = claim.page_sizes if claim is not None and claim.page_sizes is not None else ()
    return tuple(block for block in sorted({*BLOCKS, *claimed}) if 2 * block < max(lengths) - 1)


def places(
    lengths: Sequence[int], sizes: Sequence[int], can_leave: Callable[[int, int], bool] = lambda row, place: True
) -> list[tuple[int, int]]:
    """(row, place): prompts that are long enough, each with the places at the edges of one size of blocks.

    `can_leave` says of a row and a place whether another token can be had there.
    """
    found: list[tuple[int, int]] = []
    for block in sizes:
        edges = list(dict.fromkeys(criteria.served.edges(block)))
        taken = {row for row, _ in found}
        enough = [row for row in range(len(lengths)) if lengths[row] > 2 * block + 1]
        enough = sorted(enough, key=lambda row: lengths[row])
        enough = [row for row in enough if row not in taken] + [row for row in enough if row in taken]
        row = next((row for row in enough if all(can_leave(row, edge) for edge in edges)), enough[0])
        found += [(row, edge) for edge in edges]
    return found


def with_another_token(ids: Sequence[int], place: int, size: int) -> list[int]:
    """The prompt with another of its tokens at the place; where it has no other, with one of a vocabulary of `size`."""
    other = next((token for token in reversed(ids) if token != ids[place]), (ids[place] + 1) % size)
    return [*ids[:place], other, *ids[place + 1 :]]


def with_another_word(text: str, ids: Sequence[int], place: int, tokenizer: Tokenizer) -> str:
    """The text with another word where the token at the place begins, or next to it; `ids` are its tokens."""
    words = text.split(" ")
    whole = tokenizer.encode(text)
    wanted = max(1, place - _opening(ids, whole))
    at = bisect.bisect_left(range(len(words) - 1), wanted, key=lambda k: len(tokenizer.encode(" ".join(words[:k]))))
    return " ".join([*words[:at], "winter" if words[at] != "winter" else "summer", *words[at + 1 :]])


def leaves_at(text: str, ids: Sequence[int], place: int, tokenizer: Tokenizer) -> bool:
    """Whether `with_another_word` exchanges the very token at the place."""
    whole, edited = tokenizer.encode(text), tokenizer.encode(with_another_word(text, ids, place, tokenizer))
    return bool(criteria.served.in_common(whole, edited) + _opening(ids, whole) == place)


def _opening(ids: Sequence[int], whole: Sequence[int]) -> int:
    """How many tokens a tokenizer opens every text with."""
    return 0 if tuple(ids[: len(whole)]) == tuple(whole[: len(ids)]) else 1
