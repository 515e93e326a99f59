"""Embedding: a text becomes a unit vector, and texts that mean the same lie close together.

The promises hold for every model with the role `embedding.last` (a decoder, pooled at the last token) or
`embedding.encoder` (a bidirectional encoder, pooled at its first token or by the mean).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance import criteria
from conformance.discovery import load_tests
from conformance.runner import Vectors
from conformance.suite import Ask, observation, requirement
from conformance.workload import Workload
from suites.company import FarEnd, InCompany, with_another_end
from suites.inputs import embedding

__all__ = ["EncoderEmbedding", "LastTokenEmbedding", "load_tests"]


class Embedding(InCompany):
    compared = "vectors"
    share = 2
    needs = frozenset({"embed"})
    inputs = staticmethod(embedding.inputs)
    fresh = staticmethod(embedding.fresh)
    workload = Workload(prompts=34, tokens=9134, longest=1280)

    @observation()
    @staticmethod
    def vectors(ask: Ask) -> Vectors:
        return ask.runner.embed(ask.inputs.prompts)

    @staticmethod
    def some(ask: Ask, rows: Sequence[int]) -> Vectors:
        return ask.runner.embed([ask.inputs.prompts[row] for row in rows])

    @staticmethod
    def directed(answers: Any) -> Any:
        return answers.vectors.values

    @requirement("EMB-010", "The engine MUST embed the very tokens that the reference embeds.")
    def test_prompt_tokens_agree(self) -> None:
        self.judge(criteria.observed.same_prompt_tokens(self.observed.vectors, self.reference.vectors))

    @requirement("EMB-020", "The engine MUST return one finite vector a prompt, and not the same one for all.")
    def test_every_prompt_has_its_vector(self) -> None:
        self.judge(criteria.observed.is_complete(self.observed.vectors, count=len(self.bench.inputs.prompts)))

    @requirement("EMB-030", "Vectors MUST equal the reference's within the rounding of the served dtype.")
    def test_vectors_agree(self) -> None:
        self.judge(
            criteria.vector.agrees(
                x=self.observed.vectors.values,
                r=self.reference.vectors.values,
                e=self.yardstick.vectors.values,
                dtype=self.bench.dtype,
                precision=self.bench.precision,
                prompt_lengths=[len(ids) for ids in self.reference.vectors.prompt_token_ids],
            )
        )

    @requirement("EMB-040", "Vectors MUST have unit length.")
    def test_vectors_have_unit_length(self) -> None:
        self.judge(criteria.vector.have_unit_norm(x=self.observed.vectors.values, dtype=self.bench.dtype))

    @requirement("EMB-050", "Prompts longer than the model MUST be cut where the reference cuts them.")
    def test_long_prompts_are_cut_alike(self) -> None:
        self.judge(
            criteria.observed.same_length_limit(
                self.observed.vectors, self.reference.vectors, limit=self.bench.parameters.get("max_tokens")
            )
        )

    @requirement("EMB-060", "The nearest of all other texts MUST be the one that is known to match.", answers=True)
    def test_nearest_texts_are_known(self) -> None:
        self.judge(
            criteria.vector.nearest_are_known(x=self.observed.vectors.values, partners=self.bench.inputs.partners)
        )

    @requirement("EMB-110", "A prompt's answer MUST NOT depend on how many are asked with it, beyond rounding.")
    def test_answers_do_not_depend_on_the_batch(self) -> None:
        self.judge_batch()

    @requirement("EMB-120", "An answer MUST NOT depend on the order in which prompts are asked, beyond rounding.")
    def test_answers_do_not_depend_on_the_order(self) -> None:
        self.judge_turned()

    @requirement("EMB-130", "A prompt's answer MUST NOT depend on longer prompts beside it, beyond rounding.")
    def test_answers_do_not_depend_on_padding(self) -> None:
        self.judge_padding()

    @requirement("EMB-140", "The same question MUST have the same answer again, beyond rounding.")
    def test_answers_repeat(self) -> None:
        self.judge_repeat()

    @requirement("EMB-200", "The error MUST NOT point in the direction of a known fault.", directions=True)
    def test_error_is_no_known_fault(self) -> None:
        self.judge_directions()


class LastTokenEmbedding(Embedding):
    role = "embedding.last"
    seconds = 4
    workload = Workload(prompts=34, tokens=9102, longest=1280, passes=2)

    @observation()
    @staticmethod
    def shortened(ask: Ask) -> Vectors:
        return ask.runner.embed(ask.inputs.prompts, dimensions=min(ask.parameters["dimensions"]))

    @requirement("EMB-070", "Matryoshka vectors MUST equal the reference's, cut and normalised again.")
    def test_shortened_vectors_agree(self) -> None:
        self.judge(
            criteria.vector.agrees(
                x=self.observed.shortened.values,
                r=self.reference.shortened.values,
                e=self.yardstick.shortened.values,
                dtype=self.bench.dtype,
                precision=self.bench.precision,
                prompt_lengths=[len(ids) for ids in self.reference.shortened.prompt_token_ids],
            )
        )

    @requirement("EMB-080", "Matryoshka vectors MUST have unit length again.")
    def test_shortened_vectors_have_unit_length(self) -> None:
        self.judge(criteria.vector.have_unit_norm(x=self.observed.shortened.values, dtype=self.bench.dtype))

    @requirement("EMB-090", "The nearest text MUST be the known one among the shortened vectors too.", answers=True)
    def test_nearest_shortened_are_known(self) -> None:
        self.judge(
            criteria.vector.nearest_are_known(x=self.observed.shortened.values, partners=self.bench.inputs.partners)
        )


class EncoderEmbedding(FarEnd, Embedding):
    role = "embedding.encoder"
    seconds = 2.5
    causal = False

    @staticmethod
    def far_edited_some(ask: Ask, rows: Sequence[int]) -> Vectors:
        return ask.runner.embed([with_another_end(ask.inputs.prompts[row]) for row in rows])

    @requirement("EMB-150", "An answer read at the first position MUST react to the last word of its prompt.")
    def test_answers_react_to_the_far_end(self) -> None:
        self.judge_far_end()
