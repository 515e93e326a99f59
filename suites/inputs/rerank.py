"""Queries that name four words, documents with four marked words; the grade is how many of them the query names.

Query words also occur unmarked, and marked words that the query does not name, so that neither alone gives the grade.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from random import Random

from . import lexicon
from .draws import chained, draws, shifted
from .passages import Block, keyed, mostly_short, passage

INSTRUCTION = "the Document meets the Query"

NAMED = 4
"""Words that a query names, and marked words in a document; grades are 0 to 4."""

SHORTEST_DOCUMENT = 13

DECODER_FRAME = 83
"""Tokens of the decoder's prompt around the document: the template with a query and this instruction."""

ENCODER_FRAME = 9
"""Tokens of the cross-encoder's input around the document."""


@dataclass(frozen=True)
class RerankInputs:
    """`pairs` of query and document; of each the query's number in `groups` and the known relevance in `grades`."""

    instruction: str
    pairs: tuple[tuple[str, str], ...]
    groups: tuple[int, ...]
    grades: tuple[int, ...]


def _query(words: list[str]) -> str:
    return " ".join([lexicon.FIND, *words])


def _document(rng: Random, named: list[str], grade: int, tokens: int, free_text: bool) -> str:
    others = rng.sample([word for word in lexicon.WORDS if word not in named], NAMED - grade)
    blocks: list[Block] = keyed([*rng.sample(named, grade), *others])
    room = min(3, tokens - 1 - 2 * NAMED)
    blocks.extend((word,) for word in rng.sample(named, rng.randint(0, room)))
    rng.shuffle(blocks)
    return passage(rng, lexicon.NOTE, tokens, blocks, rng.sample(lexicon.FREE_TEXT, 1) if free_text else [])


def _lengths(rng: Random, count: int) -> list[int]:
    """Most documents short; some put the decoder's or the cross-encoder's whole prompt at a boundary."""
    boundaries = [n - DECODER_FRAME for n in (127, 128, 129, 255, 256, 257, 511, 512, 513)]
    boundaries += [n - ENCODER_FRAME for n in (31, 32, 33, 63, 64, 65, 127, 128, 129)]
    lengths = [*boundaries, 1120, 1060]
    lengths += [rng.randint(SHORTEST_DOCUMENT, 40) for _ in range(count - len(lengths))]
    rng.shuffle(lengths)
    return lengths


@cache
def inputs(seed: int = 0) -> RerankInputs:
    """16 queries with 8 documents each, every grade at least once per query; one document of grade 0 is empty."""
    rng = Random(f"rerank {seed}")
    lengths = _lengths(rng, 128)
    free_text = frozenset(i for i, tokens in enumerate(lengths) if 100 <= tokens < 500)
    pairs: list[tuple[str, str]] = []
    groups: list[int] = []
    grades: list[int] = []
    for group in range(16):
        named = rng.sample(lexicon.WORDS, NAMED)
        order = [*range(NAMED + 1), *rng.choices(range(NAMED + 1), k=3)]
        rng.shuffle(order)
        for grade in order:
            number = len(pairs)
            document = _document(rng, named, grade, lengths[number], number in free_text)
            pairs.append((_query(named), document))
            groups.append(group)
            grades.append(grade)
    short = next(i for i, grade in enumerate(grades) if grade == 0 and lengths[i] <= 40)
    pairs[short] = (pairs[short][0], "")
    return RerankInputs(INSTRUCTION, tuple(pairs), tuple(groups), tuple(grades))


def fresh(seed: int, factor: int) -> RerankInputs:
    """`factor` draws like `inputs`."""
    drawn = draws(inputs, seed, factor)
    return RerankInputs(
        INSTRUCTION,
        chained([each.pairs for each in drawn]),
        shifted([each.groups for each in drawn]),
        chained([each.grades for each in drawn]),
    )


def held_out(seed: int, count: int) -> RerankInputs:
    """`count` pairs, 8 to a query, of documents of 13 to 250 tokens."""
    rng = Random(f"rerank, held out {seed}")
    pairs: list[tuple[str, str]] = []
    groups: list[int] = []
    grades: list[int] = []
    named: list[str] = []
    for number in range(count):
        if number % 8 == 0:
            named = rng.sample(lexicon.WORDS, NAMED)
        tokens = mostly_short(rng, SHORTEST_DOCUMENT, 250)
        grades.append(rng.randint(0, NAMED))
        pairs.append((_query(named), _document(rng, named, grades[-1], tokens, tokens > 100)))
        groups.append(number // 8)
    return RerankInputs(INSTRUCTION, tuple(pairs), tuple(groups), tuple(grades))
