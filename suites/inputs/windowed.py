"""Prompts for models that see only so many tokens back: the next word is the one that followed the last word before.

"Before" is within reach: a word's follower is known while it lies at most `WINDOW` - 1 tokens back, so segments of up
to `WINDOW` words go on for ever. Where the last word did not stand within reach, the text ends. The right text depends
on the window's size to the token, and whoever sees beyond it is led astray by older segments of the same words.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from random import Random

from . import lexicon
from .draws import draws
from .generation import GenerationInputs, StopCase, several
from .passages import mostly_short

WINDOW = 64
"""Tokens that a layer sees, the last one included."""

NEW_TOKENS = 16
"""Tokens of each known continuation."""

START, END = "<|im_start|>", "<|im_end|>"
"""A text between them that is begun anew is copied, its end included."""

SHORT = (15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)
"""Prompts of one segment, on both sides of the window and of the pages and tiles that kernels use."""

LONG = (127, 128, 129, 190, 191, 192, 254, 255, 256, 257, 511, 512, 513, 1101, 1136, 1150)
"""Prompts whose older segments have the same words in other orders, out of reach: who sees them is led astray."""


@dataclass(frozen=True)
class WindowedInputs(GenerationInputs):
    """As those of `generation`, with continuations of 16 tokens."""

    @property
    def new_tokens(self) -> int:
        """Tokens of each free text."""
        return NEW_TOKENS


def _joined(words: list[str]) -> str:
    return "".join(" " + word for word in words)


def _repeated(segment: list[str], count: int) -> list[str]:
    return [segment[i % len(segment)] for i in range(count)]


def _periodic(rng: Random, tokens: int, period: int, notes: list[lexicon.FreeText]) -> tuple[str, list[str]]:
    """A prompt of exactly `tokens` tokens and the 16 words after it, its last segment of `period` words.

    The last segment fills the window and one token more, where the prompt is that long; older ones have the same words.
    """
    room = tokens - 1 - sum(note.tokens for note in notes)
    words = rng.sample(lexicon.WORDS, period)
    last = min(room, max(WINDOW + 1, period + 2) + rng.randrange(24))
    older: list[str] = []
    while len(older) < room - last:
        older += _repeated(rng.sample(words, period), rng.randint(period, 3 * period))
    whole = _repeated(rng.sample(words, period), last + NEW_TOKENS)
    opening = lexicon.TEXT + _joined([note.text for note in notes])
    return opening + _joined(older[: room - last] + whole[:last]), whole[last:]


def _copy(rng: Random, length: int) -> StopCase:
    """A text to be copied; where it and its two marks do not fit into the window, the answer is empty."""
    text = _joined(rng.sample(lexicon.WORDS, length))
    reached = length + 2 <= WINDOW
    return StopCase(f"{START}{text}{END}{START}", None, text if reached else "", length if reached else 0)


def _until_word(rng: Random, tokens: int, period: int, count: int) -> StopCase:
    """A segment longer than the answer, so that the stop word first occurs where it must end the text."""
    prompt, words = _periodic(rng, tokens, period, [])
    return StopCase(prompt, words[count], _joined(words[:count]), count)


def _out_of_reach(rng: Random, tokens: int, period: int) -> StopCase:
    """A segment longer than the window: its last word stood before, but out of reach, so that the text ends at once."""
    return StopCase(_periodic(rng, tokens, period, [])[0], None, "", 0)


def _some_period(rng: Random, words: int) -> int:
    """A period of which the prompt's `words` hold at least one and two words more."""
    return rng.randint(3, max(3, min(WINDOW, words - 2)))


@cache
def inputs(seed: int = 0) -> WindowedInputs:
    """32 prompts of 15 to 1,150 tokens with a known continuation, one of a single token without, and 13 stops."""
    rng = Random(f"generation in a window {seed}")
    shapes = [(tokens, _some_period(rng, tokens - 1)) for tokens in SHORT]
    edges = (64, 63, 40, 64, 17, 62, 64, 3, 63, 33, 64, 20, 63, 64, 50, 64)
    shapes += zip(LONG, edges, strict=True)
    shapes += [(80, 64), (96, 64)]
    made = [_periodic(rng, tokens, period, []) for tokens, period in shapes]
    made += [
        _periodic(rng, tokens, period, rng.sample(lexicon.FREE_TEXT, 2)) for tokens, period in [(240, 64), (250, 31)]
    ]
    stops = [_copy(rng, length) for length in (3, 8, 21, 40, 61, 62, 63)]
    stops += [_out_of_reach(rng, tokens, period) for tokens, period in [(70, 65), (150, 65), (200, 66), (250, 100)]]
    stops += [_until_word(rng, 100, 60, 9), _until_word(rng, 240, 64, 15)]
    return WindowedInputs(
        (*(prompt for prompt, _ in made), lexicon.TEXT), (*(_joined(words) for _, words in made), None), tuple(stops)
    )


def fresh(seed: int, factor: int) -> WindowedInputs:
    """`factor` draws like `inputs`."""
    return several(draws(inputs, seed, factor))


def held_out(seed: int, count: int) -> WindowedInputs:
    """`count` prompts of 16 to 700 tokens, most of them short, and half as many that end."""
    rng = Random(f"generation in a window, held out {seed}")
    lengths = [mostly_short(rng, 16, 700) for _ in range(count)]
    made = [_periodic(rng, tokens, _some_period(rng, tokens - 1), []) for tokens in lengths]
    stops = [_copy(rng, mostly_short(rng, 3, 100)) for _ in range(count // 4)]
    stops += [_out_of_reach(rng, mostly_short(rng, 80, 700), rng.randint(65, 75)) for _ in range(count // 4)]
    return WindowedInputs(tuple(p for p, _ in made), tuple(_joined(words) for _, words in made), tuple(stops))
