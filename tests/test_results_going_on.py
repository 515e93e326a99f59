"""The command that goes on with a run is one that a shell takes, whatever the run was started with."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from recorded import document, result

from conformance.results.going_on import budget_spent, is_unfinished, resume_command
from conformance.verdict import Verdict


@pytest.mark.parametrize(
    "argv",
    [
        ("run", "--backend", "cpu", "-k", "a b*", "--output", "before"),
        ("run", "--backend", "cpu", "--output=before", "-k", "a b*", "--resume"),
        ("run", "--resume", "--backend", "cpu", "-k", "a b*"),
    ],
)
def test_the_command_has_the_runs_arguments_and_its_folder(argv: tuple[str, ...]) -> None:
    expected = ["run", "--backend", "cpu", "-k", "a b*", "--resume", "--output", "my out"]
    assert shlex.split(resume_command(argv, Path("my out")))[3:] == expected


def test_only_what_an_interrupt_or_the_budget_left_goes_on() -> None:
    given_up = result(Verdict.NOT_RUN, test="test_two", reason="the target was given up after 2 crashes")
    late = result(Verdict.NOT_RUN, test="test_two", reason=budget_spent(60))
    assert not is_unfinished(document([result(), given_up]))
    assert is_unfinished(document([result(), late]))
    assert is_unfinished(document([result()], interrupted=True))
