"""Generation: greedy text of 128 tokens, and the logprob of every token, however the engine arrives at it.

The promises hold for every model with the role `generation`, or `generation.window` for texts of 16 tokens that follow
from the last 64 alone. Free-running text tells little once it has diverged, so the same tokens are also forced, through
prefill and through decode with the KV cache; and a free run that diverges inside the reference's rounding is set back
on the reference's text and goes on, so that all tokens are covered.
"""

from __future__ import annotations

from conformance import criteria
from conformance.discovery import load_tests
from conformance.runner import Generations
from conformance.suite import Ask, observation, requirement
from conformance.workload import Workload
from suites import anchoring
from suites.greedy import MAX_TOKENS, GreedyText
from suites.inputs import generation, windowed

__all__ = ["Generation", "WindowedGeneration", "load_tests"]


class Generation(GreedyText):
    role = "generation"
    seconds = 21
    needs = frozenset({"generate", "score_tokens"})
    inputs = staticmethod(generation.inputs)
    fresh = staticmethod(generation.fresh)
    workload = Workload(prompts=33, tokens=9369, longest=1150, new_tokens=128)

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
        self.judge_consistency(
            self.observed.greedy, self.bench.settings.get("max_tokens", self.bench.inputs.new_tokens)
        )

    @requirement("GEN-035", "Logprobs of free text MUST equal the reference's, as far as the texts are the same.")
    def test_free_logprobs_agree(self) -> None:
        self.judge_free_logprobs()

    @requirement(
        "GEN-040", "Greedy text MUST be the reference's; it may leave it only where the reference is undecided."
    )
    def test_greedy_tokens_agree(self) -> None:
        self.judge_greedy()

    @requirement(
        "GEN-050", "After a divergence, set back on the reference's text, the rest MUST be the reference's too."
    )
    def test_anchored_tokens_agree(self) -> None:
        self.judge_anchored()

    @requirement("GEN-060", "Logprobs of forced tokens through prefill MUST equal the reference's within rounding.")
    def test_prefill_logprobs_agree(self) -> None:
        self.judge_logprobs(self.observed.prefilled)

    @requirement("GEN-070", "Logprobs of forced tokens through decode MUST equal the reference's within rounding.")
    def test_decode_logprobs_agree(self) -> None:
        self.judge_decoded()

    @requirement("GEN-080", "Text MUST end with the model's end token where the reference's does, and say so.")
    def test_text_ends_at_end_tokens(self) -> None:
        self.judge_ending(self.observed.ended, self.reference.ended)

    @requirement("GEN-085", "Text MUST end with a stop token of the request where the reference's does, and say so.")
    def test_text_ends_at_stop_tokens(self) -> None:
        stops = anchoring.stop_ids(self.bench.inputs, self.bench.tokenizer)
        self.judge_ending(self.observed.stopped, self.reference.stopped, stops)

    @requirement("GEN-090", "The continuation MUST be the one that is known to be right.", answers=True)
    def test_continuation_is_known(self) -> None:
        self.judge_continuations()

    @requirement("GEN-100", "Text that ends MUST be the text that is known to be right.", answers=True)
    def test_ended_text_is_known(self) -> None:
        known = [stop.text for stop in self.bench.inputs.stops if stop.stop_word is None]
        self.judge(criteria.tokens.texts_are_known(texts=self.observed.ended.texts, known=known))

    @requirement("GEN-120", "A prompt's answer MUST NOT depend on how many are asked with it, beyond rounding.")
    def test_answers_do_not_depend_on_the_batch(self) -> None:
        self.judge_batch()

    @requirement("GEN-130", "An answer MUST NOT depend on the order in which prompts are asked, beyond rounding.")
    def test_answers_do_not_depend_on_the_order(self) -> None:
        self.judge_turned()

    @requirement("GEN-140", "A prompt's answer MUST NOT depend on longer prompts beside it, beyond rounding.")
    def test_answers_do_not_depend_on_padding(self) -> None:
        self.judge_padding()

    @requirement("GEN-150", "The same question MUST have the same answer again, beyond rounding.")
    def test_answers_repeat(self) -> None:
        self.judge_repeat()

    @requirement("GEN-160", "Decoded logprobs MUST NOT depend on the prompts decoded beside it, beyond rounding.")
    def test_decoding_does_not_depend_on_company(self) -> None:
        self.judge_decoded_company()

    @requirement("GEN-170", "An edited token MUST NOT change a logprob before it, beyond rounding.")
    def test_later_tokens_do_not_leak(self) -> None:
        self.judge_future()

    @requirement("GEN-200", "The error MUST NOT point in the direction of a known fault.", directions=True)
    def test_error_is_no_known_fault(self) -> None:
        self.judge_directions()


class WindowedGeneration(Generation):
    """The same promises for models whose layers see a window: a text is continued from what lies in it, and no more."""

    role = "generation.window"
    seconds = 4
    inputs = staticmethod(windowed.inputs)
    fresh = staticmethod(windowed.fresh)
    workload = Workload(prompts=33, tokens=8289, longest=1150, new_tokens=16)
