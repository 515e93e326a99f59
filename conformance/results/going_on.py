"""How a run that left cases goes on: whether there is something left, and the command for it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.duration import clock
from conformance.verdict import Verdict

_SPENT = "the budget of "


def budget_spent(seconds: float) -> str:
    """The reason of a case that a budget of `seconds` left no time to start."""
    return f"{_SPENT}{clock(seconds)} was spent before the case could start; --budget MINUTES gives more"


def is_unfinished(document: Mapping[str, Any]) -> bool:
    """Whether the run of a results.json ended early: by an interrupt or by its budget, and not by what it found."""
    return bool(document["run"]["interrupted"]) or any(
        case["verdict"] == Verdict.NOT_RUN.value and case["reason"].startswith(_SPENT) for case in document["cases"]
    )


def resume_command(argv: Sequence[str], folder: Path) -> str:
    """The command that goes on with the run in `folder`, which was started with the arguments `argv`."""
    kept: list[str] = []
    rest = iter(argv)
    for argument in rest:
        if argument == "--output":
            next(rest, None)
        elif argument != "--resume" and not argument.startswith("--output="):
            kept.append(argument)
    return shlex.join(["python", "-m", "conformance", *kept, "--resume", "--output", str(folder)])
