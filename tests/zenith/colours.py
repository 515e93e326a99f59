"""Colours: three questions of three capabilities, so that an engine can fail in one and not in the others."""

from __future__ import annotations

from dataclasses import dataclass

from conformance import criteria
from conformance.discovery import load_tests
from conformance.runner import ClassLogits, Generations, Scalars
from conformance.suite import Ask, ConformanceSuite, observation, requirement

__all__ = ["Colours", "load_tests"]

MAX_TOKENS = 8


@dataclass(frozen=True)
class ColourInputs:
    pairs: tuple[tuple[str, str], ...]
    prompts: tuple[str, ...]


def inputs() -> ColourInputs:
    pairs = tuple((f"colour {index}", f"shade {index * index % 97}") for index in range(160))
    return ColourInputs(pairs, tuple(query for query, _ in pairs[:32]))


def fresh(seed: int, factor: int) -> ColourInputs:
    pairs = tuple((f"colour {seed + index}", f"shade {seed * index % 97}") for index in range(160 * factor))
    return ColourInputs(pairs, tuple(query for query, _ in pairs[: 32 * factor]))


class Colours(ConformanceSuite):
    role = "colours"
    needs = frozenset({"score_pairs", "classify", "generate"})
    inputs = staticmethod(inputs)
    fresh = staticmethod(fresh)

    @observation()
    @staticmethod
    def hues(ask: Ask) -> Scalars:
        return ask.runner.score_pairs(ask.inputs.pairs)

    @observation(yardstick=False)
    @staticmethod
    def kinds(ask: Ask) -> ClassLogits:
        return ask.runner.classify(ask.inputs.prompts)

    @observation(yardstick=False)
    @staticmethod
    def names(ask: Ask) -> Generations:
        return ask.runner.generate(ask.inputs.prompts, max_tokens=ask.settings.get("max_tokens", MAX_TOKENS), top_k=2)

    @requirement("COL-010", "The engine MUST read the reference's very tokens.")
    def test_hue_tokens_agree(self) -> None:
        self.judge(criteria.observed.same_prompt_tokens(self.observed.hues, self.reference.hues))

    @requirement("COL-020", "Hues MUST equal the reference's within the rounding of the served dtype.")
    def test_hues_agree(self) -> None:
        self.judge(
            criteria.score.agrees(
                x=self.observed.hues.values,
                r=self.reference.hues.values,
                e=self.yardstick.hues.values,
                dtype=self.bench.dtype,
                precision=self.bench.precision,
            )
        )

    @requirement("COL-030", "Every colour MUST have its kinds.")
    def test_kinds_are_complete(self) -> None:
        self.judge(criteria.observed.is_complete(self.observed.kinds, count=len(self.bench.inputs.prompts)))

    @requirement("COL-040", "Every colour MUST have its name.")
    def test_names_are_complete(self) -> None:
        self.judge(criteria.observed.is_complete(self.observed.names, count=len(self.bench.inputs.prompts)))

    @requirement("COL-050", "Every pair MUST have its hue.")
    def test_hues_are_complete(self) -> None:
        self.judge(criteria.observed.is_complete(self.observed.hues, count=len(self.bench.inputs.pairs)))
