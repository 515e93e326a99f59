"""The closed set of verdicts that a case can have, and what each means for JUnit and for the exit code."""

from __future__ import annotations

import enum


class Verdict(str, enum.Enum):
    """The outcome of one case."""

    PASS = "PASS"
    FAIL = "FAIL"
    UNDERPOWERED = "UNDERPOWERED"  # the inputs could not have shown a fault
    XPASS = "XPASS"  # an expected failure passed
    ERROR = "ERROR"  # the case raised something that is no judgement
    CRASH = "CRASH"  # the worker died, or ran out of memory, while the case was in flight
    TIMEOUT = "TIMEOUT"
    XFAIL = "XFAIL"
    NOT_SUPPORTED = "NOT_SUPPORTED"
    ENVIRONMENT = "ENVIRONMENT"  # this machine cannot run the case: no such device, no such package
    SKIPPED = "SKIPPED"  # by a quirk, which the reason names
    WAIVED = "WAIVED"
    NOT_RUN = "NOT_RUN"  # planned, but the run ended or the target was given up before it
    INTERMITTENT = "INTERMITTENT"

    def __str__(self) -> str:
        return self.value

    @property
    def junit(self) -> str | None:
        """The JUnit element that reports this verdict: `failure`, `error`, `skipped`, or None for a pass."""
        return _JUNIT.get(self, "skipped")

    @property
    def is_failure(self) -> bool:
        """True where the verdict speaks against the stack under test: the run exits 1."""
        return self in _FAILURES

    @property
    def is_incomplete(self) -> bool:
        """True where something selected could not run: a run without failures exits 6."""
        return self in (Verdict.ENVIRONMENT, Verdict.NOT_RUN)

    @property
    def is_executed(self) -> bool:
        """True where the case really ran; a run in which none did exits 5."""
        return self in _EXECUTED


_JUNIT: dict[Verdict, str | None] = {
    Verdict.PASS: None,
    Verdict.FAIL: "failure",
    Verdict.UNDERPOWERED: "failure",
    Verdict.XPASS: "failure",
    Verdict.INTERMITTENT: "failure",
    Verdict.ERROR: "error",
    Verdict.CRASH: "error",
    Verdict.TIMEOUT: "error",
    Verdict.NOT_RUN: "error",
}
_FAILURES = frozenset(
    {
        Verdict.FAIL,
        Verdict.UNDERPOWERED,
        Verdict.XPASS,
        Verdict.INTERMITTENT,
        Verdict.ERROR,
        Verdict.CRASH,
        Verdict.TIMEOUT,
    }
)
_EXECUTED = _FAILURES | {Verdict.PASS, Verdict.XFAIL}
