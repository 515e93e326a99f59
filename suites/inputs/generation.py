"""Prompts whose continuation is known: a segment of words that repeats for ever, or one that is copied and then ends.

A word of a repeated segment is determined by the two words before it, and by one where the segment is short enough to
have no word twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any, TypeVar

from . import lexicon
from .draws import chained, draws
from .passages import BOUNDARIES, mostly_short

NEW_TOKENS = 128
"""Tokens of each known continuation of a repeated segment."""

START = "<|im_start|>"
"""Opens a segment that is to be copied; the end of the copy is <|im_end|>, the end-of-text token of the checkpoint."""


@dataclass(frozen=True)
class StopCase:
    """A prompt whose continuation is `text`, then a stop: the end token, or `stop_word` where one is given.

    `text` does not include the stop. `tokens` counts the tokens of `text`.
    """

    prompt: str
    stop_word: str | None
    text: str
    tokens: int


@dataclass(frozen=True)
class GenerationInputs:
    """`continuations[i]` is the decoded text of the 128 tokens after prompt i, None where it is not determined."""

    prompts: tuple[str, ...]
    continuations: tuple[str | None, ...]
    stops: tuple[StopCase, ...]

    @property
    def new_tokens(self) -> int:
        """Tokens of each free text."""
        return NEW_TOKENS

    @property
    def pictures(self) -> dict[str, Any]:
        """None go with these prompts."""
        return {}


def _segment(rng: Random, period: int) -> list[str]:
    """Words of which no two neighbours occur twice; no word occurs twice if the lexicon has enough of them."""
    while True:
        words: list[str] = []
        while len(words) < period:
            words += rng.sample(lexicon.WORDS, len(lexicon.WORDS))
        words = words[:period]
        neighbours = list(zip(words, words[1:] + words[:1], strict=True))
        if len(set(neighbours)) == period and all(a != b for a, b in neighbours):
            return words


def _joined(words: list[str]) -> str:
    return "".join(" " + word for word in words)


def _repeated(segment: list[str], start: int, count: int) -> list[str]:
    return [segment[i % len(segment)] for i in range(start, start + count)]


def _periodic(rng: Random, tokens: int, period: int, notes: list[lexicon.FreeText]) -> tuple[str, list[str]]:
    """A prompt of exactly `tokens` tokens and the 128 words after it; the notes come before the segment."""
    segment = _segment(rng, period)
    room = tokens - 1 - sum(note.tokens for note in notes)
    opening = lexicon.TEXT + _joined([note.text for note in notes])
    return opening + _joined(_repeated(segment, 0, room)), _repeated(segment, room, NEW_TOKENS)


def _copy(rng: Random, length: int) -> StopCase:
    text = _joined(_segment(rng, length))
    return StopCase(f"{START}{text} {lexicon.COPY}", None, text, length)


def _until_word(rng: Random, tokens: int, period: int, count: int) -> StopCase:
    """A repeated segment longer than the answer, so that the stop word first occurs where it must end the text."""
    prompt, words = _periodic(rng, tokens, period, [])
    return StopCase(prompt, words[count], _joined(words[:count]), count)


def _some_period(rng: Random, words: int) -> int:
    """A period of which the prompt's `words` hold at least 1.1 and two words more."""
    return rng.randint(3, max(3, int((words - 2) / 1.1)))


Inputs = TypeVar("Inputs", bound=GenerationInputs)


@cache
def inputs(seed: int = 0) -> GenerationInputs:
    """32 prompts of 15 to 1,150 tokens with a known continuation, one of a single token without, and 10 stops."""
    rng = Random(f"generation {seed}")
    shapes = [(tokens, _some_period(rng, tokens - 1)) for tokens in BOUNDARIES]
    shapes += [(1101, 97), (1150, 250), (1136, 600), (700, 600), (665, 600), (400, 350), (310, 270), (200, 3)]
    shapes += [(100, 80), (80, 7), (48, 40), (24, 19)]
    made = [_periodic(rng, tokens, period, []) for tokens, period in shapes]
    made += [
        _periodic(rng, tokens, period, rng.sample(lexicon.FREE_TEXT, 2)) for tokens, period in [(190, 60), (240, 100)]
    ]
    stops = [_copy(rng, length) for length in (3, 5, 8, 13, 21, 40, 64, 100)]
    stops += [_until_word(rng, 100, 60, 9), _until_word(rng, 300, 200, 30)]
    return GenerationInputs(
        (*(prompt for prompt, _ in made), lexicon.TEXT), (*(_joined(words) for _, words in made), None), tuple(stops)
    )


def fresh(seed: int, factor: int) -> GenerationInputs:
    """`factor` draws like `inputs`."""
    return several(draws(inputs, seed, factor))


def several(drawn: Sequence[Inputs]) -> Inputs:
    """All prompts of these draws, and the stops of the first: no ratio is made of those."""
    return replace(
        drawn[0],
        prompts=chained([each.prompts for each in drawn]),
        continuations=chained([each.continuations for each in drawn]),
    )


def held_out(seed: int, count: int) -> GenerationInputs:
    """`count` prompts of 16 to 700 tokens, most of them short, and a quarter as many copies."""
    rng = Random(f"generation, held out {seed}")
    lengths = [mostly_short(rng, 16, 700) for _ in range(count)]
    made = [_periodic(rng, tokens, _some_period(rng, tokens - 1), []) for tokens in lengths]
    stops = tuple(_copy(rng, mostly_short(rng, 3, 100)) for _ in range(count // 4))
    return GenerationInputs(tuple(p for p, _ in made), tuple(_joined(words) for _, words in made), stops)
