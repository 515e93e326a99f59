"""What a run is asked to do, and who is told how it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from conformance.estimate import Estimate
from conformance.execution.deadline import NEVER, Deadline
from conformance.execution.pools import Pools
from conformance.faults.fault import Fault
from conformance.plan import Case, Plan
from conformance.profile import Profile
from conformance.results.flavour import DEFAULT_FLAVOUR
from conformance.results.journal import JournalContent, RunHeader
from conformance.results.loading import Record
from conformance.results.record import CaseResult


class Listener(Protocol):
    """Who is told how the run goes."""

    def run_started(self, header: RunHeader, kept: Sequence[CaseResult] = ()) -> None:
        """The plan is made and the journal is open; `kept` are the results that a resumed run has already."""

    def case_started(self, case_id: str) -> None:
        """A case is launched."""

    def case_finished(self, result: CaseResult) -> None:
        """A case has its verdict."""

    def group_finished(self, target: str, model: str, results: Sequence[CaseResult]) -> None:
        """All cases of a model on a target have theirs."""

    def note(self, text: str) -> None:
        """Something that is worth a line and is no verdict."""


@dataclass(frozen=True)
class RunRequest:
    """What is run. `plan` plans for given facts; `reproduce` is the command that runs one case alone.

    `junit` is one of `FLAVOURS`; beside a `baseline`, new failures alone decide the exit code. `former` is what the
    journal in `output` says of a run that is to be resumed.
    """

    plan: Callable[[Mapping[str, Any]], Plan]
    facts: Mapping[str, Any]
    profile: Profile
    engines: Mapping[str, str]  # name -> "module:Class"
    output: Path
    argv: tuple[str, ...]
    reproduce: Callable[[Case], str]
    load_seconds: float
    case_seconds: float
    estimate: Callable[[Plan, Mapping[str, Any]], Estimate]  # of what the plan runs, on the machine of these facts
    junit: str = DEFAULT_FLAVOUR
    baseline: Record | None = None
    budget: Deadline = NEVER  # after it no further case is started
    former: JournalContent | None = None
    pools: Pools | None = None  # the caller's, whose libraries are imported already; else the run has its own
    plant: Mapping[str, Fault] | None = None  # the faults to plant from; None: none are
    # From the plan, its results and the facts: the profile held against them. None where nobody asked for it.
    audit: Callable[[Plan, Sequence[CaseResult], Mapping[str, Any]], Mapping[str, Any]] | None = None
