"""How much a suite asks of a model, declared beside its promises so that memory and time can be estimated."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """The largest of a suite's observations: `prompts` of `tokens` in all, the `longest` one, `new_tokens` a prompt.

    `passes` is how many observations of that size there are. Pictures make `patches` in all, before merging, and the
    largest of them, an image or a whole video, `largest_picture`. Tokens are counted with the embedded checkpoints'
    tokenizers; those of large models make a little more or less of the same text.
    """

    prompts: int
    tokens: int
    longest: int
    new_tokens: int = 0
    passes: int = 1
    patches: int = 0
    largest_picture: int = 0
