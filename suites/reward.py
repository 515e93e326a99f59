"""Reward: one scalar that says how good an answer is, the conversation written out by the model's chat template.

The promises hold for every model with the role `reward`: a sequence classifier with a single output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance import criteria
from conformance.discovery import load_tests
from conformance.runner import Scalars
from conformance.suite import Ask, observation, requirement
from conformance.workload import Workload
from suites.inputs import reward
from suites.scored import Scored

__all__ = ["Reward", "load_tests"]


class Reward(Scored):
    role = "reward"
    compared = "rewards"
    seconds = 3
    needs = frozenset({"reward"})
    inputs = staticmethod(reward.inputs)
    fresh = staticmethod(reward.fresh)
    workload = Workload(prompts=128, tokens=17121, longest=1127)

    @observation()
    @staticmethod
    def rewards(ask: Ask) -> Scalars:
        return ask.runner.reward(ask.inputs.conversations)

    @staticmethod
    def some(ask: Ask, rows: Sequence[int]) -> Scalars:
        return ask.runner.reward([ask.inputs.conversations[row] for row in rows])

    @staticmethod
    def score(answers: Any) -> Any:
        return answers.rewards.values

    @requirement("RWD-010", "The engine MUST apply the chat template so that it reads the reference's very tokens.")
    def test_prompt_tokens_agree(self) -> None:
        self.judge(criteria.observed.same_prompt_tokens(self.observed.rewards, self.reference.rewards))

    @requirement("RWD-020", "The engine MUST return one finite reward a conversation, and not the same one for all.")
    def test_every_conversation_has_its_reward(self) -> None:
        self.judge(criteria.observed.is_complete(self.observed.rewards, count=len(self.bench.inputs.conversations)))

    @requirement("RWD-030", "Rewards MUST equal the reference's within the rounding of the served dtype.")
    def test_rewards_agree(self) -> None:
        self.judge_scores()

    @requirement("RWD-040", "Answers to one prompt MUST keep the reference's order, but for ties within rounding.")
    def test_answers_keep_their_order(self) -> None:
        self.judge_order(grades=None)

    @requirement(
        "RWD-050", "The better answer MUST have the higher reward where it is known which one is.", answers=True
    )
    def test_preference_is_known(self) -> None:
        self.judge_order(grades=self.bench.inputs.grades)

    @requirement("RWD-070", "A prompt's answer MUST NOT depend on how many are asked with it, beyond rounding.")
    def test_answers_do_not_depend_on_the_batch(self) -> None:
        self.judge_batch()

    @requirement("RWD-080", "An answer MUST NOT depend on the order in which prompts are asked, beyond rounding.")
    def test_answers_do_not_depend_on_the_order(self) -> None:
        self.judge_turned()

    @requirement("RWD-090", "A prompt's answer MUST NOT depend on longer prompts beside it, beyond rounding.")
    def test_answers_do_not_depend_on_padding(self) -> None:
        self.judge_padding()

    @requirement("RWD-100", "The same question MUST have the same answer again, beyond rounding.")
    def test_answers_repeat(self) -> None:
        self.judge_repeat()

    @requirement("RWD-200", "The error MUST NOT point in the direction of a known fault.", directions=True)
    def test_error_is_no_known_fault(self) -> None:
        self.judge_directions()
