"""Reranking: how well a document answers a query.

A decoder (role `rerank.decoder`) scores by P(yes) / (P(yes) + P(no)) at the position after the prompt; source: the
Qwen3-Reranker model card. A cross-encoder (role `rerank.cross_encoder`) answers one raw logit a pair.
"""

from __future__ import annotations

from typing import Any

from conformance import criteria
from conformance.discovery import load_tests
from conformance.runner import Scalars, TokenLogprobs
from conformance.suite import Ask, observation, requirement
from conformance.workload import Workload
from suites import templates
from suites.inputs import rerank
from suites.scored import Scored

__all__ = ["CrossEncoderRerank", "DecoderRerank", "load_tests"]


class DecoderRerank(Scored):
    role = "rerank.decoder"
    seconds = 2.5
    needs = frozenset({"token_logprobs"})
    inputs = staticmethod(rerank.inputs)
    workload = Workload(prompts=128, tokens=18186, longest=1203)

    @observation()
    @staticmethod
    def logprobs(ask: Ask) -> TokenLogprobs:
        write = templates.RERANK[ask.parameters["template"]]
        prompts = [write(ask.inputs.instruction, query, document) for query, document in ask.inputs.pairs]
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


class CrossEncoderRerank(Scored):
    role = "rerank.cross_encoder"
    seconds = 1
    causal = False
    needs = frozenset({"score_pairs"})
    inputs = staticmethod(rerank.inputs)
    workload = Workload(prompts=128, tokens=8713, longest=1129)

    @observation()
    @staticmethod
    def scores(ask: Ask) -> Scalars:
        return ask.runner.score_pairs(ask.inputs.pairs)

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


def yes_and_no(ask: Ask) -> list[int]:
    """The ids of the two answer tokens, in this order; an answer of several tokens cannot be scored this way."""
    ids = [ask.tokenizer.encode(ask.parameters[answer]) for answer in ("yes", "no")]
    if any(len(one) != 1 for one in ids):
        raise ValueError(f"yes and no must be one token each, but this tokenizer makes {ids} of them")
    return [one[0] for one in ids]
