"""Checks that texts made on the device are spelt as the tokenizer spells the suites' texts."""

from __future__ import annotations

from suites.inputs import classification, embedding, generation, rerank, reward

from .sampling import Sampler


def _suite_texts() -> list[str]:
    texts = [*embedding.inputs().prompts, *classification.inputs().texts, *generation.inputs().prompts]
    texts += [text for pair in rerank.inputs().pairs for text in pair]
    texts += [message["content"] for conversation in reward.inputs().conversations for message in conversation]
    return texts


def check_suite_texts(sampler: Sampler) -> None:
    """The ids of each text of the suites must be those of its words, one by one, each with its leading space.

    Batches are made of such ids. Raises AssertionError with the first text that is spelt otherwise.
    """
    for text in _suite_texts():
        first, *others = text.split(" ")
        apart = [token for word in (first, *(" " + other for other in others)) for token in sampler.spell(word)]
        assert sampler.spell(text) == apart, f"{text!r} is not spelt word by word"
