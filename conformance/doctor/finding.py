"""What a check found, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

MEANINGS = {
    0: "nothing stands in the way of this run",
    1: "the device computes wrong numbers",
    6: "the run could not be complete",
}
"""What an examination's exit codes mean."""


class Status(str, Enum):
    """How much a finding weighs."""

    OK = "ok"
    WARNING = "warning"  # the run can be complete, but slow, short of space, or not what one thinks
    PROBLEM = "problem"  # the run cannot be complete and right


@dataclass(frozen=True)
class Finding:
    """One thing that a check has to say. `wrong_numbers` marks a problem that is no lack but a wrong result.

    `figures` are the numbers behind the sentence, bytes, seconds or shares of a limit, as their names say.
    """

    check: str
    status: Status
    found: str
    advice: str = ""  # what to do; only what is ok needs none
    wrong_numbers: bool = False
    figures: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status is not Status.OK and not self.advice:
            raise ValueError(f"{self.check}: a {self.status.value} should say what to do: {self.found}")

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "check": self.check,
            "status": self.status.value,
            "found": self.found,
            "advice": self.advice,
            "wrong_numbers": self.wrong_numbers,
            "figures": dict(self.figures),
        }


def ok(check: str, found: str, **figures: float) -> Finding:
    """A finding that is no reason to worry."""
    return Finding(check, Status.OK, found, figures=figures)


def warning(check: str, found: str, advice: str, **figures: float) -> Finding:
    """A finding that does not stop a run."""
    return Finding(check, Status.WARNING, found, advice, figures=figures)


def problem(check: str, found: str, advice: str, *, wrong_numbers: bool = False, **figures: float) -> Finding:
    """A finding with which a run cannot be complete, or, with `wrong_numbers`, not right."""
    return Finding(check, Status.PROBLEM, found, advice, wrong_numbers, figures)


def exit_code(findings: Iterable[Finding]) -> int:
    """A key of `MEANINGS`; wrong numbers weigh more than what could not run."""
    problems = [finding for finding in findings if finding.status is Status.PROBLEM]
    if any(finding.wrong_numbers for finding in problems):
        return 1
    return 6 if problems else 0
