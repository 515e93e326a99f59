"""What a PASS does not cover is told of what happened, and of nothing that did not."""

from __future__ import annotations

import pytest
import world
from recorded import result

from conformance.execution.coverage import not_covered
from conformance.verdict import Verdict

PROFILE = world.profile(add=world.quirk('suite = "words"', "max_tokens = 8"))
SKIPS = world.profile(add=world.quirk('suite = "words"', "skip = true"))
TINY = "The embedded models are tiny"
QUIRK = "Quirk late-drift was applied"
ANSWERS = "small-pairs: no right answers are known"


def told(verdict: Verdict, profile: world.Profile = PROFILE, suite: str = "") -> str:
    cases = [case for case in world.plan(profile).cases if suite in case.id]
    results = [result(verdict, id=case.id) for case in cases]
    return "\n".join(not_covered(world.plan(profile), profile, results))


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.FAIL, Verdict.CRASH])
def test_quirks_and_models_of_cases_that_ran_are_told(verdict: Verdict) -> None:
    assert all(sentence in told(verdict) for sentence in (TINY, QUIRK, ANSWERS))
    assert QUIRK not in told(verdict, suite="pairs.") and ANSWERS in told(verdict, suite="pairs.")


@pytest.mark.parametrize("verdict", [Verdict.NOT_RUN, Verdict.ENVIRONMENT])
def test_those_of_cases_that_did_not_run_are_not(verdict: Verdict) -> None:
    assert not any(sentence in told(verdict) for sentence in (TINY, QUIRK, ANSWERS))
    assert "The profile disclaims strange attention" in told(verdict)


def test_what_a_quirk_skipped_is_told() -> None:
    assert QUIRK in told(Verdict.SKIPPED, SKIPS) and TINY not in told(Verdict.SKIPPED, SKIPS)
