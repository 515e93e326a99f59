"""Passages: filler of an exact number of tokens with marked words hidden in it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from . import lexicon

BOUNDARIES: tuple[int, ...] = (15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513)
"""Lengths on both sides of the block, page and tile sizes that kernels use."""

Block = tuple[str, ...]


def passage(
    rng: Random, opening: str, tokens: int, blocks: Sequence[Block], notes: Sequence[lexicon.FreeText] = ()
) -> str:
    """Text of exactly `tokens` tokens: the opening, then filler with the blocks (in this order) and the notes inside.

    A block's words stay together. Raises ValueError where the blocks and notes alone take more than `tokens`.
    """
    room = tokens - 1 - sum(len(block) for block in blocks) - sum(note.tokens for note in notes)
    if room < 0:
        raise ValueError(f"the blocks and notes do not fit in {tokens} tokens")
    units = [*rng.choices(lexicon.WORDS, k=room), *(note.text for note in notes)]
    rng.shuffle(units)
    places = set(rng.sample(range(len(units) + len(blocks)), len(blocks)))
    filler, marked = iter(units), iter(blocks)
    words = [opening]
    for place in range(len(units) + len(blocks)):
        words.extend(next(marked) if place in places else [next(filler)])
    return " ".join(words)


def keyed(words: Sequence[str]) -> list[Block]:
    """Each word behind the mark that makes it count."""
    return [(lexicon.KEY, word) for word in words]


def mostly_short(rng: Random, shortest: int, longest: int) -> int:
    """A length whose logarithm is uniform, so that short ones dominate."""
    return min(longest, int(shortest * (longest / shortest) ** rng.random()))
