"""Texts with five to seven marked words of six categories; the label is the category with the most of them.

Words of every category also occur unmarked as filler.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from random import Random

from . import lexicon
from .draws import chained, draws
from .passages import BOUNDARIES, keyed, mostly_short, passage

LABELS: tuple[str, ...] = tuple(lexicon.CATEGORIES)

SHORTEST = 15


@dataclass(frozen=True)
class ClassificationInputs:
    """`labels[i]` is the index in `LABELS` of the class of text i, None where no class is right."""

    texts: tuple[str, ...]
    labels: tuple[int | None, ...]


def _counts(rng: Random) -> tuple[int, ...]:
    """Marked words per category, with a single largest number."""
    while True:
        favoured = rng.randrange(len(LABELS))
        marked = [favoured if rng.random() < 0.4 else rng.randrange(len(LABELS)) for _ in range(rng.randint(5, 7))]
        counter = Counter(marked)
        counts = tuple(counter[label] for label in range(len(LABELS)))
        if counts.count(max(counts)) == 1:
            return counts


def _text(rng: Random, tokens: int, free_text: bool) -> tuple[str, int]:
    counts = _counts(rng)
    words = [
        word
        for label, count in zip(LABELS, counts, strict=True)
        for word in rng.sample(lexicon.CATEGORIES[label], count)
    ]
    rng.shuffle(words)
    notes = rng.sample(lexicon.FREE_TEXT, 2) if free_text else []
    return passage(rng, lexicon.TEXT, tokens, keyed(words), notes), counts.index(max(counts))


@cache
def inputs(seed: int = 0) -> ClassificationInputs:
    """127 texts of 15 to 1,150 tokens and one of a single token, which has no right class."""
    rng = Random(f"classification {seed}")
    lengths = [*BOUNDARIES, 1101, 1150, 150, 180, 220, *(rng.randint(SHORTEST, 120) for _ in range(104))]
    rng.shuffle(lengths)
    made = [_text(rng, tokens, tokens in (150, 180, 220)) for tokens in lengths]
    return ClassificationInputs((*(text for text, _ in made), lexicon.TEXT), (*(label for _, label in made), None))


def fresh(seed: int, factor: int) -> ClassificationInputs:
    """`factor` draws like `inputs`."""
    drawn = draws(inputs, seed, factor)
    return ClassificationInputs(chained([each.texts for each in drawn]), chained([each.labels for each in drawn]))


def held_out(seed: int, count: int) -> ClassificationInputs:
    """`count` texts of 15 to 300 tokens, most of them short."""
    rng = Random(f"classification, held out {seed}")
    lengths = [mostly_short(rng, SHORTEST, 300) for _ in range(count)]
    made = [_text(rng, tokens, tokens > 150) for tokens in lengths]
    return ClassificationInputs(tuple(text for text, _ in made), tuple(label for _, label in made))
