"""How long a plan will take: what was learnt goes before what is declared, and what nobody knows is said."""

from __future__ import annotations

import dataclasses
import math

import pytest
import world
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.duration import clock, in_words
from conformance.estimate import Estimate, Part, beyond_budget, estimate
from conformance.plan import make_plan
from conformance.profile import Profile
from conformance.selection import Selection
from conformance.timings import Timing, Timings

SUITES = (dataclasses.replace(world.SUITES[0], seconds=10.0), dataclasses.replace(world.SUITES[1], seconds=4.0))
TESTS = ("test_answers_are_right", "test_tokens_agree")


def estimated(profile: Profile | None = None, timings: Timings | None = None, **selection: object) -> Estimate:
    used = profile or world.profile()
    plan = make_plan(SUITES, used, world.CATALOGUE, {}, Selection(**selection))  # type: ignore[arg-type]
    return estimate(plan, SUITES, used, timings or Timings(), "Toy 1")


def test_each_suite_counts_once_for_each_target_and_model() -> None:
    found = estimated()
    assert [(part.suite, part.target, part.cases, part.seconds) for part in found.parts] == [
        ("words", "transformers/plain/float32", 2, 10.0),
        ("pairs", "transformers/plain/float32", 1, 4.0),
        ("words", "transformers/plain/bfloat16", 2, 10.0),
        ("words", "transformers/quick/bfloat16", 2, 10.0),
    ]
    assert (found.seconds, found.of("words").seconds, found.of("pairs").seconds) == (34.0, 30.0, 4.0)


def test_cases_that_will_not_run_take_no_time() -> None:
    profile = world.profile(add=world.quirk('suite = "words"', "skip = true"))
    assert [part.suite for part in estimated(profile).parts] == ["pairs"]


def test_a_profile_says_otherwise_for_its_backend() -> None:
    profile = world.profile(add="\n[estimates.embedded]\nwords = 99\n")
    assert [part.seconds for part in estimated(profile).parts] == [99.0, 4.0, 99.0, 99.0]


def test_what_was_learnt_goes_before_what_is_declared() -> None:
    key = ("toy", "transformers/quick/bfloat16", "small-words", "words")
    timings = Timings((Timing(*key, "Toy 1", TESTS, 3.5, "2026-11-30T10:00:00Z"),))
    profile = world.profile(add="\n[estimates.embedded]\nwords = 99\n")
    found = estimated(profile, timings)
    assert [(part.seconds, part.is_learnt) for part in found.parts] == [
        (99, False),
        (4, False),
        (99, False),
        (3.5, True),
    ]
    assert (found.learnt_seconds, found.seconds) == (3.5, 205.5)


def test_what_a_suite_declares_does_not_hold_for_a_full_size_model() -> None:
    found = estimated(models=(("words", "big-words"),), suites=("words",))
    assert {part.seconds for part in found.parts} == {None}
    assert (found.seconds, found.cases_without) == (0, 3)
    profile = world.profile(add="\n[estimates.full]\nwords = 300\n")
    assert estimated(profile, models=(("words", "big-words"),), suites=("words",)).seconds == 900


def test_a_suite_that_declares_nothing_has_no_estimate() -> None:
    plan = world.plan()
    found = estimate(plan, world.SUITES, world.profile(), Timings(), "")
    assert (found.seconds, found.cases_without) == (0, 7)


PARTS = st.lists(
    st.builds(
        Part,
        st.sampled_from("abc"),
        st.just("t"),
        st.just("m"),
        st.integers(1, 9),
        st.none() | st.floats(0.1, 5000),
        st.booleans(),
    ),
    max_size=5,
)


@settings(max_examples=60, deadline=None)
@given(PARTS)
def test_the_suites_add_up_to_the_whole_and_what_was_learnt_is_a_part_of_it(parts: list[Part]) -> None:
    whole = Estimate(tuple(parts))
    suites = [whole.of(suite) for suite in {part.suite for part in parts}]
    assert sum(suite.seconds for suite in suites) == pytest.approx(whole.seconds)
    assert sum(suite.cases_without for suite in suites) == whole.cases_without
    assert 0 <= whole.learnt_seconds <= whole.seconds + 1e-9


def one(**seconds: float) -> Estimate:
    return Estimate(tuple(Part(suite, "t", "m", 2, each) for suite, each in seconds.items()))


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (math.inf, ""),
        (140, ""),
        (
            60,
            "the estimate of 2 min 20 s exceeds the budget of 1 min: what has not started by then will be NOT_RUN. "
            "Without generation (2 min), the run would take 20 s: --suite embedding --suite reward; "
            "or give it --budget 3",
        ),
        (18, "Without generation (2 min), embedding (12 s), the run would take 8 s: --suite reward; or"),
        (6, "No suite fits in whole: ask for fewer targets (--attention, --dtype), or give it --budget 3"),
    ],
)
def test_a_budget_that_is_too_small_is_answered_with_what_to_drop(budget: float, said: str) -> None:
    found = beyond_budget(one(embedding=12, generation=120, reward=8), budget)
    assert (said in found) if said else (found == "")


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ((0.0, 0.0, 0), "nothing to run"),
        ((0.0, 0.0, 7), "7 cases have no estimate"),
        ((62.0, 0.0, 1), "1 min 2 s (declared, for want of earlier runs); 1 case has no estimate"),
        ((62.0, 62.0, 0), "1 min 2 s (learnt from earlier runs)"),
        ((62.0, 60.0, 0), "1 min 2 s (1 min of it learnt from earlier runs, the rest declared)"),
    ],
)
def test_an_estimate_says_how_it_is_known(record: tuple[float, float, int], said: str) -> None:
    assert in_words(dict(zip(("duration_s", "learnt_s", "cases_without"), record, strict=True))) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (0.2, "1 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (160, "2 min 40 s"),
        (3600, "1 h"),
        (4800.4, "1 h 20 min"),
    ],
)
def test_a_duration_is_said_as_people_say_it(seconds: float, said: str) -> None:
    assert clock(seconds) == said
