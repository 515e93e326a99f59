"""The same questions asked again in another company: no answer depends on what else is asked, or in which order.

A suite says with `some` how it asks a few of its prompts, and with `compared` which of its observations has their
reference and yardstick, so that nothing new has to be computed for either.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, ClassVar, TypeVar

from conformance import criteria
from conformance.runner import Effective, Observation
from conformance.suite import Ask, ConformanceSuite, Underpowered, observation

Answers = TypeVar("Answers", bound=Observation)
Asked = TypeVar("Asked")

EIGHT, CROWD = 8, 64
"""Prompts of a small and of a large batch."""

SHORTEST, SEED = 8, 20261130
"""Prompts of fewer tokens hardly attend to anything; the order of the others is drawn from the seed."""

LONGER = 300
"""About so many tokens has the longest prompt that others are asked beside; another has nearly twice theirs."""


class InCompany(ConformanceSuite):
    """Questions about a few short prompts, each asked in several ways."""

    compared: ClassVar[str]
    """The observation of all prompts in which those asked again are found."""
    share: ClassVar[int] = 4
    """One prompt in so many is asked again."""

    @staticmethod
    def some(ask: Ask, rows: Sequence[int]) -> Observation:
        """The answers to these of the prompts, in this order, in one call."""
        raise NotImplementedError

    @classmethod
    def rows(cls, reference: Any) -> list[int]:
        """The shortest of the prompts, in an order that mixes their lengths."""
        order = by_length(cls.lengths(reference))
        return mixed(order[: max(EIGHT, len(order) // cls.share // EIGHT * EIGHT)])

    @classmethod
    def lengths(cls, reference: Any) -> list[int]:
        """Tokens of every prompt."""
        return [len(ids) for ids in getattr(reference, cls.compared).prompt_token_ids]

    @classmethod
    def longer(cls, reference: Any) -> tuple[int, int]:
        """Two prompts that are longer than those: nearly twice as long, and far longer."""
        lengths = cls.lengths(reference)
        longest = max(lengths[row] for row in cls.rows(reference))
        return _nearest(lengths, 2 * longest - 1), _nearest(lengths, max(LONGER, 4 * longest))

    @observation(reference=False, yardstick=False)
    @classmethod
    def alone(cls, ask: Ask) -> Observation:
        """One by one."""
        return joined([cls.some(ask, [row]) for row in cls.rows(ask.reference)])

    @observation(reference=False, yardstick=False)
    @classmethod
    def in_eights(cls, ask: Ask) -> Observation:
        """Eight at a time."""
        return joined([cls.some(ask, rows) for rows in eights(cls.rows(ask.reference))])

    @observation(reference=False, yardstick=False)
    @classmethod
    def again(cls, ask: Ask) -> Observation:
        """Eight at a time, a second time."""
        return cls.in_eights(ask)

    @observation(reference=False, yardstick=False)
    @classmethod
    def turned(cls, ask: Ask) -> Observation:
        """Eight at a time, the last first; the answers are turned back."""
        found = [cls.some(ask, rows[::-1]) for rows in eights(cls.rows(ask.reference))]
        return joined([at(each, range(len(each.prompt_token_ids))[::-1]) for each in found])

    @observation(reference=False, yardstick=False)
    @classmethod
    def in_crowd(cls, ask: Ask) -> Observation:
        """64 at once: all of them, repeated."""
        return cls.some(ask, crowd(cls.rows(ask.reference)))

    @observation(reference=False, yardstick=False)
    @classmethod
    def beside_longer(cls, ask: Ask) -> Observation:
        """All at once, among longer prompts; the answers to those are left out."""
        rows = cls.rows(ask.reference)
        first, last = cls.longer(ask.reference)
        return at(cls.some(ask, [first, *rows, last]), range(1, 1 + len(rows)))

    def judge_batch(self) -> None:
        """Judge that one, eight and 64 prompts at once have the same answers."""
        self.judge_pair("alone", "in_eights", "asked alone and in eights")
        rows, found = self.rows(self.reference), self.observed.in_crowd
        tiled = [position % len(rows) for position in range(max(CROWD, len(rows)))]
        self.judge(
            criteria.metamorphic.agree(
                at(self.observed.in_eights, tiled),
                found,
                honest=self.honest([rows[position] for position in tiled]),
                dtype=self.bench.dtype,
                what=f"asked in eights and {len(tiled)} at once",
            )
        )

    def judge_turned(self) -> None:
        """Judge that the order of the prompts does not matter."""
        self.judge_pair("in_eights", "turned", "asked in eights and the same in reverse order")

    def judge_padding(self) -> None:
        """Judge that longer prompts beside them do not matter."""
        self.judge_pair("alone", "beside_longer", "asked alone and beside longer prompts")

    def judge_repeat(self) -> None:
        """Judge that the same question has the same answer."""
        self.judge_pair("in_eights", "again", "asked twice in the same way")

    def judge_pair(self, one: str, other: str, what: str) -> None:
        """Judge two observations of the same prompts against each other."""
        self.judge(
            criteria.metamorphic.agree(
                getattr(self.observed, one),
                getattr(self.observed, other),
                honest=self.honest(self.rows(self.reference)),
                dtype=self.bench.dtype,
                what=what,
            )
        )

    def honest(self, rows: Sequence[int]) -> Any:
        """What honest rounding does to these prompts."""
        r, e = (getattr(source, self.compared).values for source in (self.reference, self.yardstick))
        return criteria.metamorphic.Honest(r, e, rows)


class FarEnd(InCompany):
    """For bidirectional models: the first position, from which the answer is read, reacts to the last word."""

    @staticmethod
    def far_edited_some(ask: Ask, rows: Sequence[int]) -> Observation:
        """The answers to these of the prompts, the last word of each exchanged."""
        raise NotImplementedError

    @observation(reference=False, yardstick=False)
    @classmethod
    def far_edited(cls, ask: Ask) -> Observation:
        """Eight at a time, the last word of each exchanged."""
        return joined([cls.far_edited_some(ask, rows) for rows in eights(cls.rows(ask.reference))])

    def judge_far_end(self) -> None:
        """Judge that the answers react to the last word."""
        self.judge(
            criteria.metamorphic.reacts(
                self.observed.in_eights,
                self.observed.far_edited,
                honest=self.honest(self.rows(self.reference)),
                dtype=self.bench.dtype,
                what="with and without an edit of the last word",
            )
        )


def mixed(chosen: Sequence[int]) -> list[int]:
    """Prompts in an order that mixes their lengths; raises Underpowered where they are no batch of eight."""
    if len(chosen) < EIGHT:
        raise Underpowered(f"{len(chosen)} prompts are long enough to be asked again, but a batch of {EIGHT} is needed")
    rows = list(chosen)
    random.Random(SEED).shuffle(rows)
    return rows


def with_another_end(text: str) -> str:
    """The text with another last word."""
    words = text.split(" ")
    return " ".join([*words[:-1], "winter" if words[-1] != "winter" else "summer"])


def by_length(lengths: Sequence[int]) -> list[int]:
    """The prompts that are long enough, shortest first."""
    return sorted((row for row, tokens in enumerate(lengths) if tokens >= SHORTEST), key=lambda row: lengths[row])


def eights(rows: Sequence[Asked]) -> list[list[Asked]]:
    """The rows, or whatever is asked, eight at a time."""
    return [list(rows[start : start + EIGHT]) for start in range(0, len(rows), EIGHT)]


def crowd(rows: Sequence[int]) -> list[int]:
    """The rows, repeated until there are 64."""
    return [rows[position % len(rows)] for position in range(max(CROWD, len(rows)))]


def at(found: Answers, rows: Sequence[int]) -> Answers:
    """The answers at these rows, in their order."""
    whole: Any = found
    ids = tuple(whole.prompt_token_ids[row] for row in rows)
    chosen: Answers = replace(whole, prompt_token_ids=ids, values=whole.values[list(rows)])
    return chosen


def joined(found: Sequence[Answers]) -> Answers:
    """Answers of several calls as those of one."""
    import numpy as np

    parts: list[Any] = list(found)
    whole: Answers = replace(
        parts[0],
        prompt_token_ids=tuple(ids for each in parts for ids in each.prompt_token_ids),
        values=np.concatenate([each.values for each in parts]),
        effective=reduce(together, (each.effective for each in parts)),
    )
    return whole


def together(first: Effective, then: Effective) -> Effective:
    """What ran in two calls; where they disagree on dtype or attention backend, both are named."""
    vision = first.vision
    known = first.cached_tokens is not None and then.cached_tokens is not None
    if vision is None or then.vision is None:
        vision = then.vision or vision
    else:
        attention = _both(vision.attention, then.vision.attention)
        vision = replace(vision, attention=attention, sequences=vision.sequences + then.vision.sequences)
    return replace(
        first,
        vision=vision,
        dtype=_both(first.dtype, then.dtype),
        attention=_both(first.attention, then.attention),
        kernels=dict(Counter(first.kernels) + Counter(then.kernels)),
        forwards=first.forwards + then.forwards,
        cached_tokens=(first.cached_tokens or 0) + (then.cached_tokens or 0) if known else None,
    )


def _both(first: str, then: str) -> str:
    return first if first == then else f"{first}, then {then}"


def _nearest(lengths: Sequence[int], tokens: int) -> int:
    return min(by_length(lengths), key=lambda row: abs(lengths[row] - tokens))
