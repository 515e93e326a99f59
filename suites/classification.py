"""Classification: the probability of each class of a text, and the top class.

The promises hold for every model with the role `classification`: a sequence classifier with several classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance import criteria
from conformance.discovery import load_tests
from conformance.runner import ClassLogits
from conformance.suite import Ask, observation, requirement
from conformance.workload import Workload
from suites.company import InCompany
from suites.inputs import classification

__all__ = ["Classification", "load_tests"]


class Classification(InCompany):
    role = "classification"
    compared = "logits"
    seconds = 2
    needs = frozenset({"classify"})
    inputs = staticmethod(classification.inputs)
    fresh = staticmethod(classification.fresh)
    workload = Workload(prompts=128, tokens=12908, longest=1150)

    @observation()
    @staticmethod
    def logits(ask: Ask) -> ClassLogits:
        return ask.runner.classify(ask.inputs.texts)

    @staticmethod
    def some(ask: Ask, rows: Sequence[int]) -> ClassLogits:
        return ask.runner.classify([ask.inputs.texts[row] for row in rows])

    @staticmethod
    def directed(answers: Any) -> Any:
        return answers.logits.values

    @requirement("CLS-010", "The engine MUST classify the very tokens that the reference classifies.")
    def test_prompt_tokens_agree(self) -> None:
        self.judge(criteria.observed.same_prompt_tokens(self.observed.logits, self.reference.logits))

    @requirement("CLS-020", "The engine MUST return finite logits of every class for every text, not all the same.")
    def test_every_text_has_its_logits(self) -> None:
        self.judge(criteria.observed.is_complete(self.observed.logits, count=len(self.bench.inputs.texts)))

    @requirement("CLS-030", "Class probabilities MUST equal the reference's within the rounding of the served dtype.")
    def test_class_probabilities_agree(self) -> None:
        self.judge(
            criteria.classes.agrees(
                x=self.observed.logits.values,
                r=self.reference.logits.values,
                e=self.yardstick.logits.values,
                dtype=self.bench.dtype,
                precision=self.bench.precision,
            )
        )

    @requirement("CLS-040", "The raw logits' common offset MUST equal the reference's within rounding.")
    def test_common_offset_agrees(self) -> None:
        self.judge(
            criteria.classes.offsets_agree(
                x=self.observed.logits.values,
                r=self.reference.logits.values,
                e=self.yardstick.logits.values,
                dtype=self.bench.dtype,
                precision=self.bench.precision,
            )
        )

    @requirement("CLS-050", "The top class MUST be the reference's, but for ties within its rounding.")
    def test_top_classes_agree(self) -> None:
        self.judge(
            criteria.classes.top_classes_agree(
                x=self.observed.logits.values, r=self.reference.logits.values, e=self.yardstick.logits.values
            )
        )

    @requirement("CLS-060", "The top class MUST be the one that is known to be right.", answers=True)
    def test_top_classes_are_known(self) -> None:
        self.judge(
            criteria.classes.top_classes_are_known(x=self.observed.logits.values, labels=self.bench.inputs.labels)
        )

    @requirement("CLS-080", "A prompt's answer MUST NOT depend on how many are asked with it, beyond rounding.")
    def test_answers_do_not_depend_on_the_batch(self) -> None:
        self.judge_batch()

    @requirement("CLS-090", "An answer MUST NOT depend on the order in which prompts are asked, beyond rounding.")
    def test_answers_do_not_depend_on_the_order(self) -> None:
        self.judge_turned()

    @requirement("CLS-100", "A prompt's answer MUST NOT depend on longer prompts beside it, beyond rounding.")
    def test_answers_do_not_depend_on_padding(self) -> None:
        self.judge_padding()

    @requirement("CLS-110", "The same question MUST have the same answer again, beyond rounding.")
    def test_answers_repeat(self) -> None:
        self.judge_repeat()

    @requirement("CLS-200", "The error MUST NOT point in the direction of a known fault.", directions=True)
    def test_error_is_no_known_fault(self) -> None:
        self.judge_directions()
