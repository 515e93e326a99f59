"""Texts with three marked words each. Partners carry the same words in the same roles, in unrelated filler.

The roles are marks before the words (`first`, `second`, `third`), which come in any order; pairs are followed by a pair
with the same words in other roles or with two of the three words, so that the bag of words does not give the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from random import Random

from . import lexicon
from .draws import chained, draws
from .passages import BOUNDARIES, mostly_short, passage

MODEL_TOKENS = 1280
"""What the embedding checkpoints read; longer texts are cut, and the end marker stays."""

OVERLONG = 1400

Key = tuple[str, ...]


@dataclass(frozen=True)
class EmbeddingInputs:
    """`partners[i]` is the index of the text that must be the nearest of all others to text i, None if none is."""

    prompts: tuple[str, ...]
    partners: tuple[int | None, ...]


def _other_roles(rng: Random, key: Key) -> Key:
    turn = rng.choice((1, 2))
    return key[turn:] + key[:turn]


def _other_word(rng: Random, key: Key) -> Key:
    changed = list(key)
    changed[rng.randrange(len(key))] = rng.choice([word for word in lexicon.WORDS if word not in key])
    return tuple(changed)


def _keys(rng: Random, count: int) -> list[Key]:
    """Distinct keys; each odd one is a near miss of the one before it."""
    keys: list[Key] = []
    while len(keys) < count:
        near_miss = rng.choice((_other_roles, _other_word))
        key = near_miss(rng, keys[-1]) if len(keys) % 2 else tuple(rng.sample(lexicon.WORDS, 3))
        if key not in keys:
            keys.append(key)
    return keys


def _text(rng: Random, key: Key, tokens: int, free_text: bool) -> str:
    """`tokens` counts the end marker. What lies beyond the model's length is filler."""
    blocks = list(zip(lexicon.ROLES, key, strict=True))
    rng.shuffle(blocks)
    notes = rng.sample(lexicon.FREE_TEXT, 2) if free_text else []
    if tokens <= MODEL_TOKENS:
        return passage(rng, lexicon.TEXT, tokens - 1, blocks, notes)
    head = passage(rng, lexicon.TEXT, MODEL_TOKENS - 80, blocks, notes)
    return " ".join([head, *rng.choices(lexicon.WORDS, k=tokens - 1 - (MODEL_TOKENS - 80))])


def _pairs(rng: Random, lengths: list[int], free_text: frozenset[int]) -> tuple[list[str], list[int | None]]:
    keys = _keys(rng, len(lengths) // 2)
    prompts = [_text(rng, keys[i // 2], tokens, tokens in free_text) for i, tokens in enumerate(lengths)]
    return prompts, [i ^ 1 for i in range(len(prompts))]


@cache
def inputs(seed: int = 0) -> EmbeddingInputs:
    """16 pairs of 14 to 1,400 tokens with one end marker (one more with two), an empty and a one-token text."""
    rng = Random(f"embedding {seed}")
    free_text = frozenset((150, 200, 320))
    lengths = [*BOUNDARIES, 14, 30, 62, 126, 254, 510, 700, 1101, OVERLONG, OVERLONG, 48, *sorted(free_text)]
    rng.shuffle(lengths)
    prompts, partners = _pairs(rng, lengths, free_text)
    return EmbeddingInputs((*prompts, "", lexicon.TEXT), (*partners, None, None))


def fresh(seed: int, factor: int) -> EmbeddingInputs:
    """`factor` draws like `inputs`."""
    drawn = draws(inputs, seed, factor)
    partners: list[int | None] = []
    for each in drawn:
        start = len(partners)
        partners += [None if partner is None else start + partner for partner in each.partners]
    return EmbeddingInputs(chained([each.prompts for each in drawn]), tuple(partners))


def held_out(seed: int, count: int) -> EmbeddingInputs:
    """`count` texts (an even number) of 12 to 400 tokens, most of them short."""
    rng = Random(f"embedding, held out {seed}")
    lengths = [mostly_short(rng, 12, 400) for _ in range(count)]
    long_enough = frozenset(length for length in lengths if length > 180)
    prompts, partners = _pairs(rng, lengths, long_enough)
    return EmbeddingInputs(tuple(prompts), tuple(partners))
