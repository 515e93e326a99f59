"""One call of what a profile disclaims, in a worker of its own, and what its answer, refusal or crash amounts to."""

from __future__ import annotations

import numpy as np

from conformance import criteria
from conformance.execution.errors import EnvironmentLacking, RemoteFailure
from conformance.execution.holder import LOST
from conformance.execution.outcome import Outcome, outcome_of
from conformance.execution.session import Session
from conformance.runner import RAISED, AttentionCall, AttentionOutputs, NotSupported, Unavailable
from conformance.suite import Ask, ConformanceSuite, observation, requirement
from conformance.verdict import Verdict


class Answered(Exception):
    """What is disclaimed was not refused; the message says what came instead."""


class Disclaimed(ConformanceSuite):
    """Planned for what a profile disclaims, and for nothing else."""

    role = "attention"
    needs = frozenset({"attention"})

    @staticmethod
    def inputs() -> AttentionCall:
        """A small causal call with two query heads to a key head; its numbers are exact in every dtype."""
        draw = np.random.default_rng(11)
        shapes = [(1, 4, 16, 64), (1, 2, 16, 64), (1, 2, 16, 64)]
        query, key, value = (draw.integers(-8, 9, shape).astype(np.float32) / 8 for shape in shapes)
        return AttentionCall(query, key, value)

    @observation(reference=False, yardstick=False)
    @staticmethod
    def answer(ask: Ask) -> AttentionOutputs:
        """One call. Unavailable where the engine's adapter calls no kernels, so that nothing can be shown."""
        if "attention" not in ask.runner.capabilities:
            raise Unavailable(
                "it was loaded without complaint, but the engine's adapter makes no single attention calls, so whether "
                "it is refused was not shown"
            )
        return ask.runner.attention([ask.inputs])

    @requirement("DIS-010", "What the profile disclaims MUST be refused.")
    def test_is_refused(self) -> None:
        """Raises what the engine refuses with, or `Answered`."""
        found: AttentionOutputs = self.bench.observed.answer
        self.effective = found.effective
        refusals = [fault for fault in found.faults[0] if fault.startswith(RAISED)]
        if refusals:
            raise NotSupported(refusals[0])
        judgement = criteria.attention.agrees(
            [self.bench.inputs], found, dtype=self.bench.dtype, precision=self.bench.precision
        )
        self.judgements.append(judgement)
        right = "are right" if judgement.verdict is Verdict.PASS else "are not right"
        kernels = ", ".join(found.effective.kernels) or "no kernel that is known here"
        raise Answered(
            f"{self.bench.attention} answered ({kernels} ran), and its numbers {right}\n{judgement.message}\n"
            "Where that is as it should be, claim it under [engines] instead of disclaiming it."
        )


class DisclaimedSession(Session):
    """A session in which a refusal passes, and a crash is no more than was to be expected."""

    def outcome(self, error: BaseException | None) -> Outcome:
        """PASS for a refusal, XPASS for an answer, XFAIL for a lost worker; the rest as in any session."""
        text = str(error)
        first = text.strip().splitlines()[0] if text.strip() else type(error).__name__
        if isinstance(error, Answered):
            return Outcome(Verdict.XPASS, f"disclaimed, but {first}", text)
        if isinstance(error, LOST):
            what = outcome_of(error)
            return Outcome(Verdict.XFAIL, f"not refused, but {what.verdict}: {first}", what.message, what.log_tail)
        is_missing = isinstance(error, EnvironmentLacking) and error.type_name == Unavailable.__name__
        if isinstance(error, (RemoteFailure, NotSupported)) and not is_missing:
            return Outcome(Verdict.PASS, f"refused: {first}", text)
        return outcome_of(error)
