"""What suites of greedy text share: how texts, their endings and forced logprobs are judged.

Their observations are `greedy` (free text), `prefilled` and `decoded` (forced logprobs); `prefilled` has the yardstick.
"""

from __future__ import annotations

from collections.abc import Sequence

from conformance import criteria
from conformance.runner import ForcedLogprobs, Generations
from conformance.suite import ConformanceSuite
from suites import anchoring

MAX_TOKENS = 128
"""Tokens of each free text."""


class GreedyText(ConformanceSuite):
    """Greedy text against the reference's, its logprobs against reference and yardstick."""

    def capped_reference(self) -> Generations:
        """The reference's free text, cut where a quirk cuts the engine's."""
        return anchoring.capped(self.reference.greedy, self.bench.settings.get("max_tokens"), self.bench.tokenizer)

    def judge_ending(self, found: Generations, reference: Generations, stops: Sequence[int] = ()) -> None:
        """Judge text that should end: what was asked, the answers themselves, and where and why they end."""
        self.judge(criteria.observed.same_prompt_tokens(found, reference))
        self.judge(criteria.observed.is_complete(found, count=len(reference.token_ids)))
        self.judge_consistency(found, MAX_TOKENS, stops)
        self.judge(criteria.tokens.endings_agree(x=found, r=reference, sigma_gap=self.sigma_gap()))

    def judge_consistency(self, found: Generations, max_tokens: int, stops: Sequence[int] = ()) -> None:
        """Judge ids, text, logprobs and finish reasons against each other; `stops` end a text beside its end token."""
        ends = [*self.bench.tokenizer.end_ids, *stops]
        texts = [ids[:-1] if ids and ids[-1] in ends else ids for ids in found.token_ids]
        self.judge(
            criteria.tokens.generation_is_consistent(
                found,
                max_tokens=max_tokens,
                end_token_ids=ends,
                decoded=[self.bench.tokenizer.decode(ids) for ids in texts],
            )
        )

    def judge_logprobs(self, found: ForcedLogprobs) -> None:
        """Judge forced logprobs, prefilled or decoded, against one reference and one yardstick."""
        self.judge(
            criteria.tokens.logprobs_agree(
                x=found.values,
                r=self.reference.prefilled.values,
                e=self.yardstick.prefilled.values,
                dtype=self.bench.dtype,
                precision=self.bench.precision,
                prompt_lengths=[len(ids) for ids in self.reference.greedy.prompt_token_ids],
                forced=anchoring.mask(self.reference.greedy),
            )
        )

    def sigma_gap(self) -> float:
        """How far honest rounding moves the gap between two candidates, in nats."""
        return float(
            criteria.tokens.sigma_gap(
                r=self.reference.prefilled.values,
                e=self.yardstick.prefilled.values,
                forced=anchoring.mask(self.reference.greedy),
            )
        )
