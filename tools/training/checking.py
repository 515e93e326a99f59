"""Checks that texts made on the device are spelt as the tokenizer spells the suites' texts."""

from __future__ import annotations

import re

from suites.inputs import classification, embedding, generation, multimodal, rerank, reward, scenes, windowed

from .sampling import Sampler


def _suite_texts() -> list[str]:
    texts = [
        *embedding.inputs().prompts,
        *classification.inputs().texts,
        *generation.inputs().prompts,
        *windowed.inputs().prompts,
    ]
    texts += [text for pair in rerank.inputs().pairs for text in pair]
    texts += [message["content"] for conversation in reward.inputs().conversations for message in conversation]
    return texts


def check_suite_texts(sampler: Sampler, name: str) -> None:
    """The ids of each text of the suites must be those of its words, one by one, each with its leading space.

    Batches are made of such ids. Raises AssertionError with the first text that is spelt otherwise.
    """
    if name.startswith("multimodal"):
        _check_prompts(sampler)
        return
    for text in _suite_texts():
        first, *others = text.split(" ")
        apart = [token for word in (first, *(" " + other for other in others)) for token in sampler.spell(word)]
        assert sampler.spell(text) == apart, f"{text!r} is not spelt word by word"


def _check_prompts(sampler: Sampler) -> None:
    """The same for prompts with pictures, whose opening, placeholders and closing are spelt as a whole."""
    inputs = multimodal.inputs()
    for text in (*inputs.prompts, *inputs.ended.prompts):
        message = text.removeprefix(scenes.OPENING).removesuffix(scenes.CLOSING)
        words = re.findall(r"<[^>]+>| [^ <]+", message)
        assert "".join((scenes.OPENING, *words, scenes.CLOSING)) == text
        apart = [token for word in (scenes.OPENING, *words, scenes.CLOSING) for token in sampler.spell(word)]
        assert sampler.spell(text) == apart, f"{text!r} is not spelt word by word"
    for text in (*inputs.continuations, *inputs.ended.texts):
        assert len(sampler.spell(text)) == text.count(" "), f"{text!r} is not one token a word"
