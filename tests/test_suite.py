"""What a suite's class does around a promise: it asks once, proves what ran, records every judgement."""

from __future__ import annotations

import unittest
from typing import Any

import pytest

from conformance.execution.outcome import Outcome, Recorder, outcome_of
from conformance.judgement import Judgement
from conformance.runner import Effective, Observation
from conformance.suite import Answers, Bench, ConformanceSuite, Requirement, Sources, observation, requirement
from conformance.verdict import Verdict

RAN = Effective("bfloat16", "plain", {"toy::plain": 6}, layers=3, forwards=2)
PASS, FAIL, UNDERPOWERED = (
    Judgement(f"toy.{verdict.value.lower()}", verdict, f"it is a {verdict}")
    for verdict in (Verdict.PASS, Verdict.FAIL, Verdict.UNDERPOWERED)
)


class Base(ConformanceSuite):
    __test__ = False  # no test of pytest's
    role = "toys"

    @observation(yardstick=False)
    @staticmethod
    def first(ask: Any) -> Observation:
        return Observation(((1,),), RAN)

    @requirement("TOY-010", "A toy MUST be one.")
    def test_it_is_a_toy(self) -> None:
        self.judge(PASS)


class Toys(Base):
    @observation(reference=False)
    @staticmethod
    def second(ask: Any) -> Observation:
        return Observation(((2,),), RAN)

    @requirement("TOY-020", "A toy MUST be known.", answers=True)
    def test_it_is_known(self) -> None:
        self.judge(PASS)
        self.judge(FAIL)
        self.judge(PASS)

    @requirement("TOY-030", "A toy MUST show something.")
    def test_it_shows_something(self) -> None:
        self.judge(UNDERPOWERED)

    @requirement("TOY-040", "A toy MUST run as asked.")
    def test_it_ran(self) -> None:
        assert self.observed.first.prompt_token_ids == ((1,),)
        assert self.observed.first is self.observed.first

    def helper(self) -> None: ...


def bench(effective: Effective = RAN, **changes: Any) -> Bench:
    def ask(name: str) -> Observation:
        return Observation(((1,),), effective)

    settings: dict[str, Any] = {
        "observed": Answers(ask),
        "reference": Answers(ask),
        "yardstick": Answers(ask),
        "inputs": None,
        "dtype": "bfloat16",
        "precision": "eager",
        "attention": "plain",
        "kernels": ["toy::*"],
        "tokenizer": None,
    }
    return Bench(**{**settings, **changes})


def outcome(test: str, with_bench: Bench | None = None) -> tuple[Outcome, Toys]:
    case = Toys(test)
    case.bench = with_bench or bench()
    recorder = Recorder()
    case.run(recorder)
    return outcome_of(recorder.error), case


def test_observations_and_promises_are_those_of_the_base_first() -> None:
    assert Toys.observations() == {"first": Sources(True, False), "second": Sources(False, True)}
    assert Toys.promises() == ("test_it_is_a_toy", "test_it_is_known", "test_it_shows_something", "test_it_ran")
    assert Toys.test_it_is_known.requirement == Requirement(  # type: ignore[attr-defined]
        "TOY-020", "A toy MUST be known.", True
    )


def test_a_passing_judgement_is_recorded_and_the_case_passes() -> None:
    found, case = outcome("test_it_is_a_toy")
    assert found.verdict is Verdict.PASS and case.judgements == [PASS]


def test_a_failing_judgement_ends_the_case_with_its_message() -> None:
    found, case = outcome("test_it_is_known")
    assert (found.verdict, found.reason) == (Verdict.FAIL, "it is a FAIL")
    assert case.judgements == [PASS, FAIL]


def test_a_judgement_that_shows_nothing_is_no_pass_and_no_failure() -> None:
    found, _ = outcome("test_it_shows_something")
    assert (found.verdict, found.reason) == (Verdict.UNDERPOWERED, "it is a UNDERPOWERED")


def test_what_ran_is_proven_once_before_an_observation_is_used() -> None:
    found, case = outcome("test_it_ran")
    assert found.verdict is Verdict.PASS and case.effective == RAN
    assert [one.criterion for one in case.judgements] == ["observed.ran_as_requested"]


@pytest.mark.parametrize(
    "effective",
    [
        Effective("float32", "plain", {"toy::plain": 6}, 3, 2),
        Effective("bfloat16", "quick", {"toy::plain": 6}, 3, 2),
        Effective("bfloat16", "plain", {"other::plain": 6}, 3, 2),
        Effective("bfloat16", "plain", {"toy::plain": 5}, 3, 2),
        Effective("bfloat16", "plain", {}, 3, 2),
    ],
)
def test_an_observation_of_something_else_fails_before_it_is_used(effective: Effective) -> None:
    found, case = outcome("test_it_ran", bench(effective))
    assert found.verdict is Verdict.FAIL and case.effective == effective


def test_answers_are_asked_for_once() -> None:
    asked: list[str] = []

    def ask(name: str) -> str:
        asked.append(name)
        return name.upper()

    answers = Answers(ask)
    assert (answers.hue, answers.hue, answers.kind) == ("HUE", "HUE", "KIND")
    assert asked == ["hue", "kind"]


def test_an_error_is_an_answer_and_is_kept() -> None:
    asked: list[str] = []

    def ask(name: str) -> Any:
        asked.append(name)
        raise ValueError(name)

    answers = Answers(ask)
    for _ in range(2):
        with pytest.raises(ValueError, match="hue"):
            _ = answers.hue
    assert asked == ["hue"]


def test_an_error_that_is_not_final_is_asked_for_again() -> None:
    replies: list[Any] = [OSError("gone"), 7]

    def ask(name: str) -> Any:
        reply = replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    answers = Answers(ask, is_final=lambda error: not isinstance(error, OSError))
    with pytest.raises(OSError, match="gone"):
        _ = answers.hue
    assert answers.hue == 7


def test_private_names_are_no_observations() -> None:
    with pytest.raises(AttributeError):
        _ = Answers(lambda name: name).__deepcopy__


class Careless(unittest.TestCase):
    __test__ = False

    def test_with_a_failing_part(self) -> None:
        for number in range(3):
            with self.subTest(number=number):
                self.assertNotEqual(number, 1)

    @unittest.expectedFailure
    def test_expected_to_fail(self) -> None:
        self.fail("as expected")

    def test_that_leaves(self) -> None:
        raise SystemExit(3)


@pytest.mark.parametrize(
    ("test", "verdict"),
    [
        ("test_with_a_failing_part", Verdict.FAIL),
        ("test_expected_to_fail", Verdict.FAIL),
        ("test_that_leaves", Verdict.ERROR),
    ],
)
def test_nothing_that_unittest_offers_hides_a_failure(test: str, verdict: Verdict) -> None:
    recorder = Recorder()
    Careless(test).run(recorder)
    assert outcome_of(recorder.error).verdict is verdict
