"""Text about pictures and videos: greedy, 128 tokens, and the logprob of every token, as `generation` has them.

The promises hold for every model with the role `multimodal`. What can go wrong with pictures shows first where it is
made, not dozens of tokens later: the grids in which pictures are seen, the vision tower's output, and the order of
images and frames have promises of their own.
"""

from __future__ import annotations

from typing import Any

from conformance import criteria
from conformance.discovery import load_tests
from conformance.runner import Generations, VisionFeatures
from conformance.suite import Ask, observation, requirement
from conformance.workload import Workload
from suites.greedy import MAX_TOKENS, GreedyText
from suites.inputs import multimodal

__all__ = ["Multimodal", "load_tests"]

FEATURED_FRAMES = 8
"""Features are compared of each prompt's first image, and of its first video where that has at most so many frames."""


class Multimodal(GreedyText):
    role = "multimodal"
    seconds = 22
    needs = frozenset({"generate", "score_tokens"})
    inputs = staticmethod(multimodal.inputs)
    fresh = staticmethod(multimodal.fresh)
    workload = Workload(prompts=37, tokens=4239, longest=1172, new_tokens=128, patches=8596, largest_picture=4600)

    @observation(yardstick=False)
    @staticmethod
    def ended(ask: Ask) -> Generations:
        ended = ask.inputs.ended
        return ask.runner.generate(ended.prompts, max_tokens=MAX_TOKENS, **ended.pictures)

    @observation()
    @staticmethod
    def features(ask: Ask) -> VisionFeatures:
        images = [given[0] for given in ask.inputs.images if given]
        videos = [given[0] for given in ask.inputs.videos if given and len(given[0]) <= FEATURED_FRAMES]
        return ask.runner.vision_features(images, videos)

    @requirement("MMG-010", "The engine MUST continue the very tokens that the reference continues.")
    def test_prompt_tokens_agree(self) -> None:
        self.judge(criteria.observed.same_prompt_tokens(self.observed.greedy, self.reference.greedy))

    @requirement("MMG-015", "Every image and video MUST be seen in the reference's grid of patches.")
    def test_grids_agree(self) -> None:
        self.judge(criteria.vision.same_grids(self.observed.greedy, self.reference.greedy))

    @requirement("MMG-020", "The engine MUST return ids, text, logprobs and a finish reason for every prompt.")
    def test_every_prompt_has_its_text(self) -> None:
        self.judge(criteria.observed.is_complete(self.observed.greedy, count=len(self.bench.inputs.prompts)))

    @requirement("MMG-030", "Text, ids, logprobs and finish reason of one answer MUST agree with each other.")
    def test_answers_are_consistent(self) -> None:
        self.judge_consistency(
            self.observed.greedy, self.bench.settings.get("max_tokens", self.bench.inputs.new_tokens)
        )

    @requirement("MMG-033", "Logprobs of free text MUST equal the reference's, as far as the texts are the same.")
    def test_free_logprobs_agree(self) -> None:
        self.judge_free_logprobs()

    @requirement("MMG-035", "What the vision tower hands on MUST equal the reference's within rounding.")
    def test_vision_features_agree(self) -> None:
        self.judge(
            criteria.vision.features_agree(
                x=self.observed.features.values,
                r=self.reference.features.values,
                e=self.yardstick.features.values,
                dtype=self.bench.dtype,
                precision=self.bench.precision,
                grids=self.reference.features.grids,
            )
        )

    @requirement(
        "MMG-040", "Greedy text MUST be the reference's; it may leave it only where the reference is undecided."
    )
    def test_greedy_tokens_agree(self) -> None:
        self.judge_greedy()

    @requirement(
        "MMG-050", "After a divergence, set back on the reference's text, the rest MUST be the reference's too."
    )
    def test_anchored_tokens_agree(self) -> None:
        self.judge_anchored()

    @requirement("MMG-060", "Logprobs of forced tokens through prefill MUST equal the reference's within rounding.")
    def test_prefill_logprobs_agree(self) -> None:
        self.judge_logprobs(self.observed.prefilled)

    @requirement("MMG-070", "Logprobs of forced tokens through decode MUST equal the reference's within rounding.")
    def test_decode_logprobs_agree(self) -> None:
        self.judge_decoded()

    @requirement("MMG-080", "Text MUST end with the model's end token where the reference's does, and say so.")
    def test_text_ends_at_end_tokens(self) -> None:
        self.judge_ending(self.observed.ended, self.reference.ended)

    @requirement("MMG-090", "The answer MUST follow the order in which a prompt gives its images.")
    def test_answers_follow_image_order(self) -> None:
        self.judge_order(self.bench.inputs.image_order, "images")

    @requirement("MMG-095", "The answer MUST follow the order of a video's frames.")
    def test_answers_follow_frame_order(self) -> None:
        self.judge_order(self.bench.inputs.frame_order, "frames")

    @requirement("MMG-100", "The answer MUST be the one that is known to be right.", answers=True)
    def test_answer_is_known(self) -> None:
        self.judge_continuations()

    @requirement("MMG-110", "An answer that ends MUST be the one that is known to be right.", answers=True)
    def test_ended_answer_is_known(self) -> None:
        self.judge(
            criteria.tokens.texts_are_known(texts=self.observed.ended.texts, known=self.bench.inputs.ended.texts)
        )

    @requirement("MMG-130", "A prompt's answer MUST NOT depend on how many are asked with it, beyond rounding.")
    def test_answers_do_not_depend_on_the_batch(self) -> None:
        self.judge_batch()

    @requirement("MMG-140", "An answer MUST NOT depend on the order in which prompts are asked, beyond rounding.")
    def test_answers_do_not_depend_on_the_order(self) -> None:
        self.judge_turned()

    @requirement("MMG-150", "A prompt's answer MUST NOT depend on longer prompts beside it, beyond rounding.")
    def test_answers_do_not_depend_on_padding(self) -> None:
        self.judge_padding()

    @requirement("MMG-160", "The same question MUST have the same answer again, beyond rounding.")
    def test_answers_repeat(self) -> None:
        self.judge_repeat()

    @requirement("MMG-170", "Decoded logprobs MUST NOT depend on the prompts decoded beside it, beyond rounding.")
    def test_decoding_does_not_depend_on_company(self) -> None:
        self.judge_decoded_company()

    @requirement("MMG-180", "An edited token MUST NOT change a logprob before it, beyond rounding.")
    def test_later_tokens_do_not_leak(self) -> None:
        self.judge_future()

    @requirement("MMG-200", "The error MUST NOT point in the direction of a known fault.", directions=True)
    def test_error_is_no_known_fault(self) -> None:
        self.judge_directions()

    def judge_order(self, pairs: Any, what: str) -> None:
        """Judge the answers to pairs of prompts that differ in the order of their images or frames."""
        self.judge(
            criteria.vision.answers_follow_order(
                x=self.observed.greedy, r=self.capped_reference(), pairs=pairs, what=what
            )
        )
