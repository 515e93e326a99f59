"""Generation: greedy text of 128 tokens, and the logprob of every token, however the engine arrives at it.

The promises hold for every model with the role `generation`. Free-running text tells little once it has diverged, so
the same tokens are also forced, through prefill and through decode with the KV cache; and a free run that diverges
inside the reference's rounding is set back on the reference's text and goes on, so that all tokens are covered.
"""

from __future__ import annotations

from conformance import criteria
from conformance.discovery import load_tests
from conformance.runner import ForcedLogprobs, Generations
from conformance.suite import Ask, observation, requirement
from conformance.workload import Workload
from suites import anchoring
from suites.greedy import MAX_TOKENS, GreedyText
from suites.inputs import generation

__all__ = ["Generation", "load_tests"]


class Generation(GreedyText):
    role = "generation"
    seconds = 20
    needs = frozenset({"generate", "score_tokens"})
    inputs = staticmethod(generation.inputs)
    workload = Workload(prompts=33, tokens=9369, longest=1150, new_tokens=128)

    @observation(yardstick=False)
    @staticmethod
    def greedy(ask: Ask) -> Generations:
        return ask.runner.generate(
            ask.inputs.prompts,
            max_tokens=ask.settings.get("max_tokens", MAX_TOKENS),
            top_k=ask.settings.get("top_k", anchoring.TOP),
        )

    @observation(reference=False, yardstick=False)
    @staticmethod
    def anchored(ask: Ask) -> Generations:
        return anchoring.anchored(ask, ask.settings.get("max_tokens", MAX_TOKENS))

    @observation()
    @staticmethod
    def prefilled(ask: Ask) -> ForcedLogprobs:
        return ask.runner.score_tokens(*anchoring.forced(ask), via="prefill")

    @observation(reference=False, yardstick=False)
    @staticmethod
    def decoded(ask: Ask) -> ForcedLogprobs:
        return ask.runner.score_tokens(*anchoring.forced(ask), via="decode")

    @observation(yardstick=False)
    @staticmethod
    def ended(ask: Ask) -> Generations:
        prompts = [stop.prompt for stop in ask.inputs.stops if stop.stop_word is None]
        return ask.runner.generate(prompts, max_tokens=MAX_TOKENS)

    @observation(yardstick=False)
    @staticmethod
    def stopped(ask: Ask) -> Generations:
        prompts = [stop.prompt for stop in ask.inputs.stops if stop.stop_word is not None]
        stops = anchoring.stop_ids(ask.inputs, ask.tokenizer)
        return ask.runner.generate(prompts, max_tokens=MAX_TOKENS, stop_token_ids=stops)

    @requirement("GEN-010", "The engine MUST continue the very tokens that the reference continues.")
    def test_prompt_tokens_agree(self) -> None:
        self.judge(criteria.observed.same_prompt_tokens(self.observed.greedy, self.reference.greedy))

    @requirement("GEN-020", "The engine MUST return ids, text, logprobs and a finish reason for every prompt.")
    def test_every_prompt_has_its_text(self) -> None:
        self.judge(criteria.observed.is_complete(self.observed.greedy, count=len(self.bench.inputs.prompts)))

    @requirement("GEN-030", "Text, ids, logprobs and finish reason of one answer MUST agree with each other.")
    def test_answers_are_consistent(self) -> None:
        self.judge_consistency(self.observed.greedy, self.bench.settings.get("max_tokens", MAX_TOKENS))

    @requirement(
        "GEN-040", "Greedy text MUST be the reference's; it may leave it only where the reference is undecided."
    )
    def test_greedy_tokens_agree(self) -> None:
        self.judge(
            criteria.tokens.divergence_is_a_tie(
                x=self.observed.greedy,
                r=self.capped_reference(),
                sigma_gap=self.sigma_gap(),
            )
        )

    @requirement(
        "GEN-050", "After a divergence, set back on the reference's text, the rest MUST be the reference's too."
    )
    def test_anchored_tokens_agree(self) -> None:
        self.judge(
            criteria.tokens.every_divergence_is_a_tie(
                x=self.observed.anchored,
                r=self.capped_reference(),
                sigma_gap=self.sigma_gap(),
            )
        )

    @requirement("GEN-060", "Logprobs of forced tokens through prefill MUST equal the reference's within rounding.")
    def test_prefill_logprobs_agree(self) -> None:
        self.judge_logprobs(self.observed.prefilled)

    @requirement("GEN-070", "Logprobs of forced tokens through decode MUST equal the reference's within rounding.")
    def test_decode_logprobs_agree(self) -> None:
        tokens = max(len(ids) for ids in self.reference.greedy.token_ids)
        self.judge(criteria.observed.went_token_by_token(self.observed.decoded.effective, tokens=tokens))
        self.judge_logprobs(self.observed.decoded)

    @requirement("GEN-080", "Text MUST end with the model's end token where the reference's does, and say so.")
    def test_text_ends_at_end_tokens(self) -> None:
        self.judge_ending(self.observed.ended, self.reference.ended)

    @requirement("GEN-085", "Text MUST end with a stop token of the request where the reference's does, and say so.")
    def test_text_ends_at_stop_tokens(self) -> None:
        stops = anchoring.stop_ids(self.bench.inputs, self.bench.tokenizer)
        self.judge_ending(self.observed.stopped, self.reference.stopped, stops)

    @requirement("GEN-090", "The continuation MUST be the one that is known to be right.", answers=True)
    def test_continuation_is_known(self) -> None:
        known = self.bench.inputs.continuations
        if "max_tokens" in self.bench.settings:  # the reference's text is the known one: a test holds that
            known = self.capped_reference().texts
        self.judge(criteria.tokens.texts_are_known(texts=self.observed.greedy.texts, known=known))

    @requirement("GEN-100", "Text that ends MUST be the text that is known to be right.", answers=True)
    def test_ended_text_is_known(self) -> None:
        known = [stop.text for stop in self.bench.inputs.stops if stop.stop_word is None]
        self.judge(criteria.tokens.texts_are_known(texts=self.observed.ended.texts, known=known))
