"""Reward: one scalar that says how good an answer is, the conversation written out by the model's chat template.

The promises hold for every model with the role `reward`: a sequence classifier with a single output.
"""

from __future__ import annotations

from conformance import criteria
from conformance.discovery import load_tests
from conformance.runner import Scalars
from conformance.suite import Ask, ConformanceSuite, observation, requirement
from suites.inputs import reward

__all__ = ["Reward", "load_tests"]


class Reward(ConformanceSuite):
    role = "reward"
    needs = frozenset({"reward"})
    inputs = staticmethod(reward.inputs)

    @observation()
    @staticmethod
    def rewards(ask: Ask) -> Scalars:
        return ask.runner.reward(ask.inputs.conversations)

    @requirement("RWD-010", "The engine MUST apply the chat template so that it reads the reference's very tokens.")
    def test_prompt_tokens_agree(self) -> None:
        self.judge(criteria.observed.same_prompt_tokens(self.observed.rewards, self.reference.rewards))

    @requirement("RWD-020", "The engine MUST return one finite reward a conversation, and not the same one for all.")
    def test_every_conversation_has_its_reward(self) -> None:
        self.judge(criteria.observed.is_complete(self.observed.rewards, count=len(self.bench.inputs.conversations)))

    @requirement("RWD-030", "Rewards MUST equal the reference's within the rounding of the served dtype.")
    def test_rewards_agree(self) -> None:
        self.judge(
            criteria.score.agrees(
                x=self.observed.rewards.values,
                r=self.reference.rewards.values,
                e=self.yardstick.rewards.values,
                dtype=self.bench.dtype,
                precision=self.bench.precision,
            )
        )

    @requirement("RWD-040", "Answers to one prompt MUST keep the reference's order, but for ties within rounding.")
    def test_answers_keep_their_order(self) -> None:
        self.judge(
            criteria.score.are_ordered(
                x=self.observed.rewards.values,
                r=self.reference.rewards.values,
                e=self.yardstick.rewards.values,
                groups=self.bench.inputs.groups,
                grades=None,
            )
        )

    @requirement(
        "RWD-050", "The better answer MUST have the higher reward where it is known which one is.", answers=True
    )
    def test_preference_is_known(self) -> None:
        self.judge(
            criteria.score.are_ordered(
                x=self.observed.rewards.values,
                r=self.reference.rewards.values,
                e=self.yardstick.rewards.values,
                groups=self.bench.inputs.groups,
                grades=self.bench.inputs.grades,
            )
        )
