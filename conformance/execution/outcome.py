"""What unittest and the worker raised, as a verdict."""

from __future__ import annotations

import traceback
import unittest
from dataclasses import dataclass
from typing import Any

from conformance import checkpoint
from conformance.execution.deadline import Deadline
from conformance.execution.errors import (
    DeadlineExceeded,
    EngineLost,
    EnvironmentLacking,
    GivenUp,
    OutOfMemory,
    RemoteFailure,
    WorkerCrashed,
    WorkerGone,
)
from conformance.execution.references import ReferenceFailed
from conformance.reference.sample import UncheckedReference
from conformance.reference.store import StoreError
from conformance.results.going_on import budget_spent
from conformance.runner import NotSupported, Unavailable
from conformance.suite import Underpowered
from conformance.verdict import Verdict


@dataclass(frozen=True)
class Outcome:
    """A verdict with its reason in one line and the full message."""

    verdict: Verdict
    reason: str = ""
    message: str = ""
    log_tail: str = ""


def outcome_of(error: BaseException | None) -> Outcome:
    """The outcome of a case that raised `error`, or nothing."""
    if error is None:
        return Outcome(Verdict.PASS)
    text = str(error) or type(error).__name__
    first = text.strip().splitlines()[0] if text.strip() else type(error).__name__
    if isinstance(error, Underpowered):
        return Outcome(Verdict.UNDERPOWERED, first, text)
    if isinstance(error, AssertionError):
        return Outcome(Verdict.FAIL, first, text)
    if isinstance(error, (NotSupported, unittest.SkipTest)):
        return Outcome(Verdict.NOT_SUPPORTED, first, text)
    if isinstance(error, (EnvironmentLacking, Unavailable, UncheckedReference)):
        reason = error.message.strip().splitlines()[0] if isinstance(error, RemoteFailure) else first
        return Outcome(Verdict.ENVIRONMENT, reason, text)
    if isinstance(error, GivenUp):
        return Outcome(Verdict.NOT_RUN, first, text)
    if isinstance(error, OutOfMemory):
        return Outcome(Verdict.CRASH, f"out of memory: {first}", f"{text}\n{error.remote_traceback}")
    if isinstance(error, EngineLost):
        return Outcome(Verdict.CRASH, f"the engine is gone: {error.message}", f"{text}\n{error.remote_traceback}")
    if isinstance(error, (WorkerCrashed, WorkerGone)):
        return Outcome(Verdict.CRASH, first, text, getattr(error, "log_tail", ""))
    if isinstance(error, DeadlineExceeded):
        return Outcome(Verdict.TIMEOUT, first, text)
    if isinstance(error, RemoteFailure):
        return Outcome(Verdict.ERROR, first, f"{text}\n{error.remote_traceback}")
    if isinstance(error, (checkpoint.CheckpointError, ReferenceFailed, StoreError)):
        return Outcome(Verdict.ERROR, first, text)
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return Outcome(Verdict.ERROR, f"{type(error).__name__}: {first}", trace)


def out_of_time(budget: Deadline) -> Outcome:
    """The outcome of a case that a run's budget left no time to start."""
    return Outcome(Verdict.NOT_RUN, budget_spent(budget.seconds))


class Recorder(unittest.TestResult):
    """Keeps the exception of the one test that it watches."""

    def __init__(self) -> None:
        super().__init__()
        self.error: BaseException | None = None

    def addError(self, test: Any, err: Any) -> None:
        self.error = self.error or err[1]

    def addFailure(self, test: Any, err: Any) -> None:
        self.error = self.error or err[1]

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        self.error = self.error or (err[1] if err else None)

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        # Expected failures are declared beside the profile, with an owner and a date; a decorator hides one.
        self.error = self.error or err[1]

    def addSkip(self, test: Any, reason: str) -> None:
        self.error = self.error or unittest.SkipTest(reason)
