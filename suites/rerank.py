"""Reranking: how well a document answers a query.

A decoder (role `rerank.decoder`) scores by P(yes) / (P(yes) + P(no)) at the position after the prompt; source: the
Qwen3-Reranker model card. A cross-encoder (role `rerank.cross_encoder`) answers one raw logit a pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance import criteria
from conformance.discovery import load_tests
from conformance.runner import Scalars, TokenLogprobs
from conformance.suite import Ask, observation, requirement
from conformance.workload import Workload
from suites import templates
from suites.company import FarEnd, with_another_end
from suites.inputs import rerank
from suites.scored import Scored

__all__ = ["CrossEncoderRerank", "DecoderRerank", "load_tests"]


class DecoderRerank(Scored):
    role = "rerank.decoder"
    share = 8
    compared = "logprobs"
    seconds = 3.5
    needs = frozenset({"token_logprobs"})
    inputs = staticmethod(rerank.inputs)
    fresh = staticmethod(rerank.fresh)
    workload = Workload(prompts=128, tokens=18186, longest=1203)

    @observation()
    @staticmethod
    def logprobs(ask: Ask) -> TokenLogprobs:
        return DecoderRerank.some(ask, range(len(ask.inputs.pairs)))

    @staticmethod
    def some(ask: Ask, rows: Sequence[int]) -> TokenLogprobs:
        write = templates.RERANK[ask.parameters["template"]]
        prompts = [write(ask.inputs.instruction, *ask.inputs.pairs[row]) for row in rows]
        return ask.runner.token_logprobs(prompts, yes_and_no(ask))

    @staticmethod
    def score(answers: Any) -> Any:
        """log(P(yes) / P(no)): the logit of the score, so that saturation hides nothing."""
        return answers.logprobs.values[:, 0] - answers.logprobs.values[:, 1]

    @requirement("RRK-010", "The engine MUST score the very tokens, template included, that the reference scores.")
    def test_prompt_tokens_agree(self) -> None:
        self.judge(criteria.observed.same_prompt_tokens(self.observed.logprobs, self.reference.logprobs))

    @requirement("RRK-020", "The engine MUST return finite logprobs of yes and no for every pair, not all the same.")
    def test_every_pair_has_its_logprobs(self) -> None:
        self.judge(criteria.observed.is_complete(self.observed.logprobs, count=len(self.bench.inputs.pairs)))

    @requirement("RRK-030", "The log-odds of yes MUST equal the reference's within the rounding of the served dtype.")
    def test_scores_agree(self) -> None:
        self.judge_scores()

    @requirement("RRK-040", "The logprobs themselves MUST equal the reference's within the rounding of the dtype.")
    def test_logprobs_agree(self) -> None:
        self.judge(
            criteria.score.agrees(
                x=self.observed.logprobs.values[:, 0],
                r=self.reference.logprobs.values[:, 0],
                e=self.yardstick.logprobs.values[:, 0],
                dtype=self.bench.dtype,
                precision=self.bench.precision,
            )
        )

    @requirement("RRK-050", "Documents of one query MUST keep the reference's order, but for ties within rounding.")
    def test_documents_keep_their_order(self) -> None:
        self.judge_order(grades=None)

    @requirement("RRK-060", "Documents of one query MUST come in the order that is known to be right.", answers=True)
    def test_document_order_is_known(self) -> None:
        self.judge_order(grades=self.bench.inputs.grades)

    @requirement("RRK-080", "A prompt's answer MUST NOT depend on how many are asked with it, beyond rounding.")
    def test_answers_do_not_depend_on_the_batch(self) -> None:
        self.judge_batch()

    @requirement("RRK-085", "An answer MUST NOT depend on the order in which prompts are asked, beyond rounding.")
    def test_answers_do_not_depend_on_the_order(self) -> None:
        self.judge_turned()

    @requirement("RRK-090", "A prompt's answer MUST NOT depend on longer prompts beside it, beyond rounding.")
    def test_answers_do_not_depend_on_padding(self) -> None:
        self.judge_padding()

    @requirement("RRK-095", "The same question MUST have the same answer again, beyond rounding.")
    def test_answers_repeat(self) -> None:
        self.judge_repeat()

    @requirement("RRK-200", "The error MUST NOT point in the direction of a known fault.", directions=True)
    def test_error_is_no_known_fault(self) -> None:
        self.judge_directions()


class CrossEncoderRerank(FarEnd, Scored):
    role = "rerank.cross_encoder"
    compared = "scores"
    seconds = 1.5
    causal = False
    needs = frozenset({"score_pairs"})
    inputs = staticmethod(rerank.inputs)
    fresh = staticmethod(rerank.fresh)
    workload = Workload(prompts=128, tokens=8713, longest=1129)

    @observation()
    @staticmethod
    def scores(ask: Ask) -> Scalars:
        return ask.runner.score_pairs(ask.inputs.pairs)

    @staticmethod
    def some(ask: Ask, rows: Sequence[int]) -> Scalars:
        return ask.runner.score_pairs([ask.inputs.pairs[row] for row in rows])

    @staticmethod
    def far_edited_some(ask: Ask, rows: Sequence[int]) -> Scalars:
        pairs = [ask.inputs.pairs[row] for row in rows]
        return ask.runner.score_pairs([(query, with_another_end(document)) for query, document in pairs])

    @staticmethod
    def score(answers: Any) -> Any:
        return answers.scores.values

    @requirement("RRK-110", "The engine MUST score the very tokens of query and document that the reference scores.")
    def test_prompt_tokens_agree(self) -> None:
        self.judge(criteria.observed.same_prompt_tokens(self.observed.scores, self.reference.scores))

    @requirement("RRK-120", "The engine MUST return one finite score a pair, and not the same one for all.")
    def test_every_pair_has_its_score(self) -> None:
        self.judge(criteria.observed.is_complete(self.observed.scores, count=len(self.bench.inputs.pairs)))

    @requirement("RRK-130", "Raw logits MUST equal the reference's within the rounding of the served dtype.")
    def test_scores_agree(self) -> None:
        self.judge_scores()

    @requirement("RRK-140", "Documents of one query MUST keep the reference's order, but for ties within rounding.")
    def test_documents_keep_their_order(self) -> None:
        self.judge_order(grades=None)

    @requirement("RRK-150", "Documents of one query MUST come in the order that is known to be right.", answers=True)
    def test_document_order_is_known(self) -> None:
        self.judge_order(grades=self.bench.inputs.grades)

    @requirement("RRK-170", "A prompt's answer MUST NOT depend on how many are asked with it, beyond rounding.")
    def test_answers_do_not_depend_on_the_batch(self) -> None:
        self.judge_batch()

    @requirement("RRK-175", "An answer MUST NOT depend on the order in which prompts are asked, beyond rounding.")
    def test_answers_do_not_depend_on_the_order(self) -> None:
        self.judge_turned()

    @requirement("RRK-180", "A prompt's answer MUST NOT depend on longer prompts beside it, beyond rounding.")
    def test_answers_do_not_depend_on_padding(self) -> None:
        self.judge_padding()

    @requirement("RRK-185", "The same question MUST have the same answer again, beyond rounding.")
    def test_answers_repeat(self) -> None:
        self.judge_repeat()

    @requirement("RRK-190", "An answer read at the first position MUST react to the last word of its prompt.")
    def test_answers_react_to_the_far_end(self) -> None:
        self.judge_far_end()

    @requirement("RRK-210", "The error MUST NOT point in the direction of a known fault.", directions=True)
    def test_error_is_no_known_fault(self) -> None:
        self.judge_directions()


def yes_and_no(ask: Ask) -> list[int]:
    """The ids of the two answer tokens, in this order; an answer of several tokens cannot be scored this way."""
    ids = [ask.tokenizer.encode(ask.parameters[answer]) for answer in ("yes", "no")]
    if any(len(one) != 1 for one in ids):
        raise ValueError(f"yes and no must be one token each, but this tokenizer makes {ids} of them")
    return [one[0] for one in ids]
