"""References are found where they were shipped or stored, computed once otherwise, and their failure is their own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import world
import zenith_site
from zenith import colours
from zenith.engine import ZenithRunner

from conformance.execution import measurement
from conformance.execution.outcome import Outcome, outcome_of
from conformance.execution.pools import Pools
from conformance.execution.references import ReferenceFailed, References
from conformance.execution.session import Attempt
from conformance.reference import compute
from conformance.runner import LoadRequest, Unavailable
from conformance.verdict import Verdict


class CrashingRunner(ZenithRunner):
    """Dies where the computation needs it."""

    def classify(self, prompts: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


class RaisingRunner(ZenithRunner):
    def classify(self, prompts: Any) -> Any:
        raise ValueError("no kinds today")


class AbsentRunner(ZenithRunner):
    def __enter__(self) -> ZenithRunner:
        raise Unavailable("this machine has no arithmetic")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    site = zenith_site.install(tmp_path / "site")
    tests = str(Path(__file__).parent)
    monkeypatch.syspath_prepend(str(site))  # for the versions of torch and transformers
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{tests}")
    monkeypatch.setenv("CONFORMANCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compute, "RUNNER", "zenith.engine:ZenithRunner")
    return site / "zenith" / "checkpoints" / "tiny-colours"


@pytest.fixture
def references() -> Iterator[References]:
    with Pools() as pools:
        yield References(pools, "TOY", 20.0, lambda _: None)


def get(references: References, folder: Path, *, embedded: bool = False, **changes: str) -> Any:
    request = LoadRequest("tiny-colours", str(folder), "colours", "cpu", "plain", "bfloat16", {"max_tokens": 64})
    precision = changes.pop("precision", "eager")
    return references.get(
        colours.Colours,
        replace(request, **changes),  # type: ignore[arg-type]
        embedded=embedded,
        precision=precision,
    )


def test_what_is_shipped_is_not_computed(references: References, folder: Path) -> None:
    reference, yardstick = get(references, folder, embedded=True)
    assert set(reference) == {"hues", "kinds", "names"} and set(yardstick) == {"hues"}
    assert references.computed == 0


def test_what_is_computed_is_stored_and_found_again(references: References, folder: Path) -> None:
    first = get(references, folder)
    assert references.computed == 2
    second = get(references, folder)
    assert references.computed == 2
    assert (first[0]["hues"].values == second[0]["hues"].values).all()
    get(references, folder, precision="fused")  # the same reference, another yardstick
    assert references.computed == 3


def test_the_time_of_computing_is_counted_and_that_of_finding_again_is_not(
    references: References, folder: Path
) -> None:
    get(references, folder)
    took = references.computing_s
    assert took > 0
    get(references, folder)
    assert references.computing_s == took


def test_a_case_is_not_charged_for_the_references_that_its_group_computed(
    references: References, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([100.0, 143.0])
    monkeypatch.setattr(measurement, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    class Computing:
        def attempt(self, test: str, references: References) -> Attempt:
            references.computing_s += 40.0
            return Attempt(Outcome(Verdict.PASS))

    case = world.plan().cases[0]
    request: Any = SimpleNamespace(reproduce=lambda case: "", load_seconds=1.0)
    of: Any = SimpleNamespace(device="cpu")
    unused: Any = None
    listener: Any = SimpleNamespace(note=print)
    run = measurement.Measurement(request, of, references.pools, references, unused, listener, [], {})
    session: Any = Computing()
    assert run._run_case(session, case).duration_s == 3.0


def test_altered_weights_are_computed_anew(references: References, folder: Path) -> None:
    (folder / "config.json").write_text('{"vocab_size": 256}')
    get(references, folder, embedded=True)
    assert references.computed == 2


@pytest.mark.parametrize("runner", ["CrashingRunner", "RaisingRunner"])
def test_a_computation_that_fails_is_no_finding_about_the_engine(
    references: References, folder: Path, monkeypatch: pytest.MonkeyPatch, runner: str
) -> None:
    monkeypatch.setattr(compute, "RUNNER", f"{__name__}:{runner}")
    with pytest.raises(ReferenceFailed, match=r"^the reference of tiny-colours could not be computed: ") as caught:
        get(references, folder)
    assert outcome_of(caught.value).verdict is Verdict.ERROR


@pytest.mark.parametrize("runner", [f"{__name__}:AbsentRunner", "a_module_that_nobody_has:Runner"])
def test_a_machine_that_cannot_compute_is_an_environment(
    references: References, folder: Path, monkeypatch: pytest.MonkeyPatch, runner: str
) -> None:
    monkeypatch.setattr(compute, "RUNNER", runner)
    with pytest.raises(Unavailable, match="the reference of tiny-colours cannot be computed here") as caught:
        get(references, folder)
    assert outcome_of(caught.value).verdict is Verdict.ENVIRONMENT


def test_a_claim_without_a_yardstick_is_refused(references: References, folder: Path) -> None:
    with pytest.raises(ValueError, match="there is no yardstick for bfloat16 with the claim 'tf32'"):
        get(references, folder, precision="tf32")
