"""What suites of greedy text share: what they ask, and how texts, their endings and forced logprobs are judged.

Their inputs have `prompts`, `continuations` (None where one is not known), `new_tokens`, how many tokens each free text
has, and `pictures`, the runner's arguments that go with the prompts; `prefilled` has the yardstick.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance import criteria
from conformance.runner import ForcedLogprobs, Generations
from conformance.suite import Ask, observation
from suites import anchoring
from suites.company import EIGHT, InCompany, at, by_length, eights, joined, mixed

MAX_TOKENS = 128
"""At most so many tokens of a text that should end."""

FORCED, EDITED = 12, 8
"""Tokens that are forced on the prompts asked in another company, and the first of them that is edited."""


class GreedyText(InCompany):
    """Greedy text against the reference's, its logprobs against reference and yardstick."""

    compared = "prefilled"

    @observation(yardstick=False)
    @staticmethod
    def greedy(ask: Ask) -> Generations:
        """Free text."""
        return ask.runner.generate(
            ask.inputs.prompts,
            max_tokens=ask.settings.get("max_tokens", ask.inputs.new_tokens),
            top_k=ask.settings.get("top_k", anchoring.TOP),
            **ask.inputs.pictures,
        )

    @observation(reference=False, yardstick=False)
    @staticmethod
    def anchored(ask: Ask) -> Generations:
        """Free text, set back on the reference's after every divergence."""
        return anchoring.anchored(ask, ask.settings.get("max_tokens", ask.inputs.new_tokens))

    @observation()
    @staticmethod
    def prefilled(ask: Ask) -> ForcedLogprobs:
        """Logprobs of the reference's tokens, read in one pass."""
        return ask.runner.score_tokens(*anchoring.forced(ask), via="prefill", **ask.inputs.pictures)

    @observation(reference=False, yardstick=False)
    @staticmethod
    def decoded(ask: Ask) -> ForcedLogprobs:
        """The same, one token at a time."""
        return ask.runner.score_tokens(*anchoring.forced(ask), via="decode", **ask.inputs.pictures)

    @classmethod
    def rows(cls, reference: Any) -> list[int]:
        """The eight shortest prompts whose text is long enough."""
        texts, lengths = reference.greedy.token_ids, cls.lengths(reference)
        return mixed([row for row in by_length(lengths) if len(texts[row]) >= FORCED][:EIGHT])

    @staticmethod
    def some(ask: Ask, rows: Sequence[int]) -> ForcedLogprobs:
        """A few forced tokens, through prefill."""
        return anchoring.few_forced(ask, rows, FORCED, via="prefill")

    @observation(reference=False, yardstick=False)
    @classmethod
    def future_edited(cls, ask: Ask) -> ForcedLogprobs:
        """The same in eights, the tokens from one on edited."""
        rows = eights(cls.rows(ask.reference))
        found = [anchoring.few_forced(ask, each, FORCED, via="prefill", edited=EDITED) for each in rows]
        return joined(found)

    @observation(reference=False, yardstick=False)
    @classmethod
    def decoded_alone(cls, ask: Ask) -> ForcedLogprobs:
        """Through decode, one prompt at a time."""
        found = [anchoring.few_forced(ask, [row], FORCED, via="decode") for row in cls.rows(ask.reference)]
        return joined(found)

    @observation(reference=False, yardstick=False)
    @classmethod
    def decoded_beside_longer(cls, ask: Ask) -> ForcedLogprobs:
        """Through decode, all at once among longer prompts."""
        rows = cls.rows(ask.reference)
        first, last = cls.longer(ask.reference)
        found = anchoring.few_forced(ask, [first, *rows, last], FORCED, via="decode")
        return at(found, range(1, 1 + len(rows)))

    def honest(self, rows: Sequence[int]) -> Any:
        """What honest rounding does to the first forced tokens of these prompts."""
        r, e = (source.prefilled.values[list(rows), :FORCED] for source in (self.reference, self.yardstick))
        return criteria.metamorphic.Honest(r, e, range(len(rows)))

    def judge_decoded_company(self) -> None:
        """Judge that decoding alone and among longer prompts comes to the same."""
        what = "decoded alone and beside longer prompts"
        self.judge_pair("decoded_alone", "decoded_beside_longer", what)

    def judge_future(self) -> None:
        """Judge that an edited token changes no earlier logprob."""
        self.judge(
            criteria.metamorphic.earlier_stay(
                self.observed.in_eights,
                self.observed.future_edited,
                edited=EDITED,
                honest=self.honest(self.rows(self.reference)),
                dtype=self.bench.dtype,
            )
        )

    @staticmethod
    def directed(answers: Any) -> Any:
        """The forced tokens' own logprobs, [n, positions]; NaN behind a prompt's last."""
        return answers.prefilled.values[:, :, 0]

    def judge_directions(self) -> None:
        """Judge that the errors of forced tokens, prefilled and decoded, point in the direction of no known fault."""
        for found in (self.observed.prefilled, self.observed.decoded):
            self.judge(
                criteria.matched.is_no_known_fault(
                    x=found.values[:, :, 0],
                    r=self.directed(self.reference),
                    e=self.directed(self.yardstick),
                    directions=self.bench.directions,
                    counted=anchoring.mask(self.reference.greedy),
                )
            )

    def judge_greedy(self) -> None:
        """Judge where free text leaves the reference's first."""
        self.judge(
            criteria.tokens.divergence_is_a_tie(
                x=self.observed.greedy, r=self.capped_reference(), sigma_gap=self.sigma_gap()
            )
        )

    def judge_anchored(self) -> None:
        """Judge every place where text that is set back on course leaves the reference's."""
        self.judge(
            criteria.tokens.every_divergence_is_a_tie(
                x=self.observed.anchored, r=self.capped_reference(), sigma_gap=self.sigma_gap()
            )
        )

    def judge_decoded(self) -> None:
        """Judge that decoding went token by token, and its logprobs."""
        tokens = max(len(ids) for ids in self.reference.greedy.token_ids)
        self.judge(criteria.observed.went_token_by_token(self.observed.decoded.effective, tokens=tokens))
        self.judge_logprobs(self.observed.decoded)

    def judge_continuations(self) -> None:
        """Judge free text against the continuations that are known to be right."""
        known = self.bench.inputs.continuations
        if "max_tokens" in self.bench.settings:  # the reference's text is the known one: a test holds that
            known = self.capped_reference().texts
        self.judge(criteria.tokens.texts_are_known(texts=self.observed.greedy.texts, known=known))

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

    def judge_free_logprobs(self) -> None:
        """Judge the logprobs that come with free text: the code that reports them need not be what forces tokens."""
        reference = self.reference.greedy
        self.judge(
            criteria.tokens.free_logprobs_agree(
                x=self.observed.greedy,
                ids=reference.token_ids,
                r=self.reference.prefilled.values[:, :, 0],
                e=self.yardstick.prefilled.values[:, :, 0],
                dtype=self.bench.dtype,
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
