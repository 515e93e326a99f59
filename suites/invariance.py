"""Invariance: an engine that may compute an answer in several ways gives one answer, whichever way it takes.

Prompts are read whole or in chunks, anew or with a prefix from a cache, by eager or by compiled code, on one device or
on two, alone or among whatever else is served at the time: scheduling and modes are the engine's own affair, and no
reason for other numbers. The modes are the variants that the profile claims of an engine; where it claims one to be
exact, its promise is about every bit. The promises hold for models with the roles `generation` and `embedding.last`,
and are judged on prompts of the suites of these roles, whose reference and yardstick say what honest rounding does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance import criteria
from conformance.discovery import load_tests
from conformance.runner import ForcedLogprobs, Generations, Vectors
from conformance.suite import Ask, observation, requirement
from suites import anchoring, branches
from suites.company import at, by_length, crowd, mixed
from suites.embedding import LastTokenEmbedding
from suites.generation import Generation
from suites.greedy import GreedyText
from suites.inputs import embedding, generation
from suites.variants import PROMPTS, Invariance, in_variant

__all__ = ["EmbeddingInvariance", "GenerationInvariance", "load_tests"]

FORCED, TEXT = 4, 4
"""Tokens that are forced on each prompt, through decode, and tokens of free text."""


class EmbeddingInvariance(Invariance):
    role = "embedding.last"
    seconds = 3
    compared = "vectors"
    needs = frozenset({"embed"})
    inputs = staticmethod(embedding.inputs)
    fresh = staticmethod(embedding.fresh)
    workload = LastTokenEmbedding.workload

    # Those of the suite `embedding`, under whose names its reference and yardstick are found.
    vectors = staticmethod(LastTokenEmbedding.vectors)
    shortened = staticmethod(LastTokenEmbedding.shortened)
    some = staticmethod(LastTokenEmbedding.some)

    @staticmethod
    def edited_some(ask: Ask, places: Sequence[tuple[int, int]]) -> Vectors:
        prompts, ids = ask.inputs.prompts, ask.reference.vectors.prompt_token_ids
        edited = [branches.with_another_word(prompts[row], ids[row], at, ask.tokenizer) for row, at in places]
        return ask.runner.embed(edited)

    @staticmethod
    def can_leave(ask: Ask, row: int, place: int) -> bool:
        ids = ask.reference.vectors.prompt_token_ids[row]
        return branches.leaves_at(ask.inputs.prompts[row], ids, place, ask.tokenizer)


class _Together(GreedyText):
    """What needs no variant: texts that are decoded at the same time."""

    @requirement("INV-010", "An answer MUST NOT depend on what else is decoded at the same time, beyond rounding.")
    def test_answers_do_not_depend_on_what_is_served_beside(self) -> None:
        rows = self.rows(self.reference)
        tiled = [position % len(rows) for position in range(len(crowd(rows)))]
        one, edited, found = (getattr(self.observed, name) for name in ("in_eights", "edited", "in_crowd"))
        self.judge(
            criteria.metamorphic.agree(
                at(one, tiled),
                found,
                honest=self.honest([rows[position] for position in tiled]),
                dtype=self.bench.dtype,
                what=f"asked in eights and {len(tiled)} at once",
                control=at(edited, tiled),
            )
        )


class GenerationInvariance(Invariance, _Together):
    role = "generation"
    seconds = 8
    needs = frozenset({"generate", "score_tokens"})
    inputs = staticmethod(generation.inputs)
    fresh = staticmethod(generation.fresh)
    workload = Generation.workload

    # Those of the suite `generation`, under whose names its reference and yardstick are found.
    ended = staticmethod(Generation.ended)
    stopped = staticmethod(Generation.stopped)

    @classmethod
    def rows(cls, reference: Any) -> list[int]:
        """The shortest prompts whose text is long enough."""
        texts = reference.greedy.token_ids
        return mixed([row for row in by_length(cls.lengths(reference)) if len(texts[row]) >= FORCED][:PROMPTS])

    @staticmethod
    def some(ask: Ask, rows: Sequence[int]) -> ForcedLogprobs:
        """A few forced tokens, through decode."""
        return anchoring.few_forced(ask, rows, FORCED, via="decode")

    @staticmethod
    def edited_some(ask: Ask, places: Sequence[tuple[int, int]]) -> ForcedLogprobs:
        """The same, prompts with another token."""
        return anchoring.few_forced(
            ask, [row for row, _ in places], FORCED, via="decode", places=[at for _, at in places]
        )

    @observation(reference=False, yardstick=False)
    @classmethod
    def read(cls, ask: Ask) -> ForcedLogprobs:
        """Forced tokens that are read together with their prompts, all at once."""
        return anchoring.few_forced(ask, cls.rows(ask.reference), FORCED, via="prefill")

    @classmethod
    def text(cls, ask: Ask) -> Generations:
        """The first tokens of free text."""
        return ask.runner.generate(ask.inputs.prompts, max_tokens=TEXT)

    @classmethod
    def text_again(cls, ask: Ask) -> Generations:
        """The same, after all prompts were asked before."""
        cls.text(ask)
        return cls.text(ask)

    read_in_chunks = in_variant("chunked", "read")
    text_in_chunks = in_variant("chunked", "text")
    text_cached = in_variant("prefix_cache", "text_again")
    text_compiled = in_variant("compiled", "text")
    text_on_two = in_variant("tp2", "text")

    def honest(self, rows: Sequence[int]) -> Any:
        """What honest rounding does to the first forced tokens of these prompts."""
        r, e = (source.prefilled.values[list(rows), :FORCED] for source in (self.reference, self.yardstick))
        return criteria.metamorphic.Honest(r, e, range(len(rows)))

    def asked_of_the_usual(self) -> list[str]:
        return [*super().asked_of_the_usual(), *(("read",) if "chunked" in self.bench.variants else ())]

    def judge_variant(self, variant: str, name: str, what: str) -> None:
        """Judge logprobs of forced tokens, through decode and, in chunks, through prefill; and free text."""
        super().judge_variant(variant, name, what)
        if variant == "chunked":
            one, other, rows = self.usual("read"), self.observed.read_in_chunks, self.rows(self.reference)
            self.judge_alike(variant, one, other, self.usual("edited"), rows, f"with their texts, {what}")
        text = anchoring.capped(self.reference.greedy, TEXT, self.bench.tokenizer)
        found: Any = self.observe(f"text_{name}")
        if variant == "prefix_cache":
            self.judge_read(found, [len(ids) - 1 for ids in found.prompt_token_ids])
        self.judge(criteria.tokens.divergence_is_a_tie(x=found, r=text, sigma_gap=self.sigma_gap()))
