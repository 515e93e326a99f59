"""A suite whose inputs and models are as many as a benchmark wants; `growth` installs it beside Zenith's engine."""

from __future__ import annotations

import os
from dataclasses import dataclass

from conformance import criteria
from conformance.discovery import load_tests
from conformance.runner import ClassLogits, Generations, Scalars
from conformance.suite import Ask, ConformanceSuite, observation, requirement

__all__ = ["Growing", "load_tests"]

PROMPTS = "GROWING_PROMPTS"
"""The environment variable that says how many."""

TOKENS = 8


@dataclass(frozen=True)
class GrowingInputs:
    """As many pairs as the environment says, in groups of eight."""

    pairs: tuple[tuple[str, str], ...]
    groups: tuple[int, ...]


def inputs() -> GrowingInputs:
    """The inputs, made anew."""
    count = int(os.environ[PROMPTS])
    pairs = tuple((f"colour {index}", f"shade {index * index % 97}") for index in range(count))
    return GrowingInputs(pairs, tuple(index // 8 for index in range(count)))


class Growing(ConformanceSuite):
    """Ten promises on three observations."""

    role = "growing"
    needs = frozenset({"score_pairs", "classify", "generate"})
    inputs = staticmethod(inputs)

    @observation()
    @staticmethod
    def scores(ask: Ask) -> Scalars:
        return ask.runner.score_pairs(ask.inputs.pairs)

    @observation()
    @staticmethod
    def logits(ask: Ask) -> ClassLogits:
        return ask.runner.classify([first for first, _ in ask.inputs.pairs])

    @observation(yardstick=False)
    @staticmethod
    def texts(ask: Ask) -> Generations:
        return ask.runner.generate([first for first, _ in ask.inputs.pairs], max_tokens=TOKENS, top_k=2)

    @requirement("GRW-010", "The engine MUST read the reference's very tokens of every pair.")
    def test_pair_tokens_agree(self) -> None:
        self.judge(criteria.observed.same_prompt_tokens(self.observed.scores, self.reference.scores))

    @requirement("GRW-020", "The engine MUST return one finite score a pair.")
    def test_every_pair_has_its_score(self) -> None:
        self.judge(criteria.observed.is_complete(self.observed.scores, count=len(self.bench.inputs.pairs)))

    @requirement("GRW-030", "Scores MUST equal the reference's within the rounding of the served dtype.")
    def test_scores_agree(self) -> None:
        self.judge(
            criteria.score.agrees(
                x=self.observed.scores.values,
                r=self.reference.scores.values,
                e=self.yardstick.scores.values,
                dtype=self.bench.dtype,
                precision=self.bench.precision,
            )
        )

    @requirement("GRW-040", "Pairs of one group MUST keep the reference's order.")
    def test_pairs_keep_their_order(self) -> None:
        self.judge(
            criteria.score.are_ordered(
                x=self.observed.scores.values,
                r=self.reference.scores.values,
                e=self.yardstick.scores.values,
                groups=self.bench.inputs.groups,
                grades=None,
            )
        )

    @requirement("GRW-050", "The engine MUST read the reference's very tokens of every text.")
    def test_text_tokens_agree(self) -> None:
        self.judge(criteria.observed.same_prompt_tokens(self.observed.logits, self.reference.logits))

    @requirement("GRW-060", "The engine MUST return finite logits for every text.")
    def test_every_text_has_its_logits(self) -> None:
        self.judge(criteria.observed.is_complete(self.observed.logits, count=len(self.bench.inputs.pairs)))

    @requirement("GRW-070", "Class probabilities MUST equal the reference's within the rounding of the served dtype.")
    def test_class_probabilities_agree(self) -> None:
        self.judge(
            criteria.classes.agrees(
                x=self.observed.logits.values,
                r=self.reference.logits.values,
                e=self.yardstick.logits.values,
                dtype=self.bench.dtype,
                precision=self.bench.precision,
            )
        )

    @requirement("GRW-080", "The top class MUST be the reference's.")
    def test_top_classes_agree(self) -> None:
        self.judge(
            criteria.classes.top_classes_agree(
                x=self.observed.logits.values, r=self.reference.logits.values, e=self.yardstick.logits.values
            )
        )

    @requirement("GRW-090", "The engine MUST continue the reference's very tokens.")
    def test_continued_tokens_agree(self) -> None:
        self.judge(criteria.observed.same_prompt_tokens(self.observed.texts, self.reference.texts))

    @requirement("GRW-100", "Every text MUST have its continuation.")
    def test_every_text_is_continued(self) -> None:
        self.judge(criteria.observed.is_complete(self.observed.texts, count=len(self.bench.inputs.pairs)))
