"""What becomes of a failure in the grey zone: it is decided on fresh prompts, four times as many.

The same prompts would give the same figures again. So the suite draws new inputs, from a seed that follows from the
case's id, and the promise is judged on those: every run of the case asks the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from conformance.execution.outcome import Outcome
from conformance.judgement import Judgement
from conformance.suite import ConformanceSuite
from conformance.verdict import Verdict

FACTOR = 4
"""How many times as many prompts as the suite has."""


class NoFreshInputs(Exception):
    """The suite says nowhere how fresh inputs are made."""


def seed_of(case_id: str) -> int:
    """The seed of a case's fresh inputs: above 2^32, where no suite's own inputs have theirs."""
    return 2**32 + int(hashlib.sha256(case_id.encode("utf-8", "surrogatepass")).hexdigest()[:8], 16)


def with_fresh_inputs(suite: type[ConformanceSuite], case_id: str) -> type[ConformanceSuite]:
    """The suite as a class with the fresh inputs of a case; raises `NoFreshInputs` where it has none."""
    seed = seed_of(case_id)
    inputs, fresh = (_place(suite, name) for name in ("inputs", "fresh"))
    try:
        if fresh > inputs:  # a base's, beside inputs of another kind
            raise NotImplementedError
        made = suite.fresh(seed, FACTOR)
    except NotImplementedError:
        raise NoFreshInputs(
            f"{suite.__module__}.{suite.__qualname__} has no `fresh(seed, factor)` that would draw them"
        ) from None
    own = {"__module__": suite.__module__, "__qualname__": f"{suite.__qualname__} with fresh inputs {seed}"}
    return type(suite.__name__, (suite,), {**own, "inputs": staticmethod(lambda **_: made)})


def _place(suite: type[ConformanceSuite], name: str) -> int:
    """How far up the suite's bases `name` is defined; 0 is the suite itself."""
    return next(place for place, base in enumerate(suite.__mro__) if name in vars(base))


def is_grey(outcome: Outcome, judgements: Sequence[Judgement]) -> bool:
    """Whether a failure was that of a grey judgement, and so is to be decided on fresh prompts."""
    return outcome.verdict is Verdict.FAIL and bool(judgements) and judgements[-1].stage == "grey"


def as_fresh(judgements: Sequence[Judgement]) -> tuple[Judgement, ...]:
    """Judgements on fresh prompts, marked as such; none of them is put to yet other ones."""
    return tuple(replace(judgement, stage="fresh") for judgement in judgements)


def decided(grey: Outcome, fresh: Outcome, judgements: Sequence[Judgement]) -> Outcome:
    """The outcome of a case whose grey failure was put to fresh prompts, where `judgements` came to `fresh`.

    What neither passes nor fails there is no acquittal: the failure stands.
    """
    asked = f"On fresh prompts, {FACTOR} times as many,"
    if fresh.verdict is Verdict.PASS:
        said = " ".join(judgement.message for judgement in judgements if judgement.figures)
        return Outcome(Verdict.PASS, "", f"{grey.message} {asked} it holds: {said}")
    if fresh.verdict is Verdict.FAIL:
        message = f"{grey.message} {asked} it fails too: {fresh.message}"
        return Outcome(Verdict.FAIL, f"confirmed on fresh prompts: {fresh.reason}", message, fresh.log_tail)
    if fresh.verdict in (Verdict.CRASH, Verdict.TIMEOUT):
        return replace(fresh, reason=f"{fresh.reason} (on fresh prompts)", message=f"{asked} {fresh.message}")
    return undecided(grey, fresh.reason)


def undecided(grey: Outcome, why: str) -> Outcome:
    """The failure as it was, and why fresh prompts did not decide it."""
    first = next(iter(why.splitlines()), "nothing is known of the reason")
    return replace(grey, message=f"{grey.message} Fresh prompts could not decide it: {first}")
