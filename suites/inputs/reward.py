"""Conversations: the user asks to repeat the six marked words of a message, the assistant repeats some of them.

The grade is the number of right words; wrong ones are other words, some of which occur unmarked in the message.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from random import Random
from typing import TypedDict

from . import lexicon
from .draws import chained, draws, shifted
from .passages import Block, keyed, mostly_short, passage

ASKED = 6
"""Words to repeat, and words in an answer; grades are 0 to 6."""

SHORTEST = 1 + 2 * ASKED

FRAME = 17
"""Tokens of a conversation around the user's message: the chat template and an answer of six words."""


class Message(TypedDict):
    role: str
    content: str


Conversation = tuple[Message, ...]


@dataclass(frozen=True)
class RewardInputs:
    """Conversations; of each the prompt's number in `groups` and how many words of the answer are right in `grades`."""

    conversations: tuple[Conversation, ...]
    groups: tuple[int, ...]
    grades: tuple[int, ...]


def _conversation(message: str, answer: str) -> Conversation:
    return ({"role": "user", "content": message}, {"role": "assistant", "content": answer})


def _prompt(rng: Random, tokens: int, free_text: bool) -> tuple[str, list[str], list[str]]:
    """The message, its six marked words, and the words that may stand in for them in a wrong answer."""
    asked = rng.sample(lexicon.WORDS, ASKED)
    wrong = rng.sample([word for word in lexicon.WORDS if word not in asked], ASKED)
    blocks: list[Block] = keyed(asked)
    blocks.extend((word,) for word in wrong[: min(ASKED // 2, tokens - SHORTEST)])
    rng.shuffle(blocks)
    notes = rng.sample(lexicon.FREE_TEXT, 1) if free_text else []
    return passage(rng, lexicon.REPEAT, tokens, blocks, notes), asked, wrong


def _answer(rng: Random, asked: list[str], wrong: list[str], grade: int) -> str:
    words = [*rng.sample(asked, grade), *rng.sample(wrong, ASKED - grade)]
    rng.shuffle(words)
    return " ".join([lexicon.ANSWER, *words])


@cache
def inputs(seed: int = 0) -> RewardInputs:
    """32 prompts with 4 answers of different grades each; one answer is empty."""
    rng = Random(f"reward {seed}")
    lengths = [n - FRAME for n in (63, 64, 65, 127, 128, 129, 255, 256, 257, 512)]
    lengths += [1110, *(rng.randint(SHORTEST, 90) for _ in range(21))]
    rng.shuffle(lengths)
    conversations, groups, grades = [], [], []
    for group, tokens in enumerate(lengths):
        message, asked, wrong = _prompt(rng, tokens, 100 <= tokens < 500)
        for grade in rng.sample(range(ASKED + 1), 4):
            conversations.append(_conversation(message, _answer(rng, asked, wrong, grade)))
            groups.append(group)
            grades.append(grade)
    last_zero = max(i for i, grade in enumerate(grades) if grade == 0)
    conversations[last_zero] = _conversation(conversations[last_zero][0]["content"], "")
    return RewardInputs(tuple(conversations), tuple(groups), tuple(grades))


def fresh(seed: int, factor: int) -> RewardInputs:
    """`factor` draws like `inputs`."""
    drawn = draws(inputs, seed, factor)
    return RewardInputs(
        chained([each.conversations for each in drawn]),
        shifted([each.groups for each in drawn]),
        chained([each.grades for each in drawn]),
    )


def held_out(seed: int, count: int) -> RewardInputs:
    """`count` conversations, 4 to a prompt, with messages of 13 to 300 tokens."""
    rng = Random(f"reward, held out {seed}")
    conversations, groups, grades = [], [], []
    message, asked, wrong = "", [""], [""]
    for number in range(count):
        if number % 4 == 0:
            tokens = mostly_short(rng, SHORTEST, 300)
            message, asked, wrong = _prompt(rng, tokens, tokens > 100)
        grades.append(rng.randint(0, ASKED))
        conversations.append(_conversation(message, _answer(rng, asked, wrong, grades[-1])))
        groups.append(number // 4)
    return RewardInputs(tuple(conversations), tuple(groups), tuple(grades))
