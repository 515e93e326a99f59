"""A run is resumed only where it is still the same run, and a case that ended it twice is not started again."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import header, result

from conformance.execution import resume
from conformance.execution.resume import boot_id, culprits, refuse_another_run, what_changed
from conformance.names import UsageError
from conformance.results.journal import JournalContent, RunHeader, Start

ONE, TWO = result(test="test_one"), result(test="test_two")
FACTS: dict[str, Any] = {
    "device": {"type": "xpu", "name": "a card", "memory_gib": 64.0, "available": True},
    "versions": {"torch": "2.13", "ipex": None},
    "engines": ["transformers"],
    "python": "3.11.7",
    "platform": "linux-x86_64",
    "isa": "AVX512",
    "isa_flags": ["avx2", "avx512f"],
    "precision_switches": {"cudnn.allow_tf32": False},
    "torch_build": {"version": "2.13.0+xpu"},
    "stack": {"id": "0123456789ab", "kernel": "Linux 6.12.1", "environment": {"OMP_NUM_THREADS": "4"}},
    "peak_resident_mib": 200.0,
}
THEN = header([ONE, TWO], facts=FACTS, models={"mine": "abc"})
LEAVES = [
    ("device", "name"),
    ("device", "available"),
    ("versions", "torch"),
    ("versions", "ipex"),
    ("engines",),
    ("python",),
    ("platform",),
    ("isa",),
    ("isa_flags",),
    ("precision_switches", "cudnn.allow_tf32"),
    ("torch_build", "version"),
    ("stack", "kernel"),
    ("stack", "environment", "OMP_NUM_THREADS"),
]


def with_fact(path: tuple[str, ...], value: Any) -> RunHeader:
    facts = copy.deepcopy(FACTS)
    place = facts
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return dataclasses.replace(THEN, facts=facts)


def test_the_same_run_differs_in_nothing() -> None:
    later = dataclasses.replace(THEN, started="2027-01-01T00:00:00Z", argv=("--resume",), boot_id="another")
    assert what_changed(THEN, THEN) == what_changed(THEN, later) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": "0.2.0"}, "version: 0.1.0 then, 0.2.0 now"),
        ({"backend": "xpu"}, "backend: cpu then, xpu now"),
        ({"profile_sha256": "ef" * 32}, "profile (sha256): abababababab then, efefefefefef now"),
        ({"plan_hash": "01" * 32}, "plan (hash): cdcdcdcdcdcd then, 010101010101 now"),
        ({"models": {"mine": "other"}}, "model mine: files in its folder have been changed"),
        ({"planned": (ONE.id,)}, "cases: 1 of then are not planned now"),
        ({"planned": (ONE.id, TWO.id, "x")}, "cases: 1 of now were not planned then"),
        ({"planned": (TWO.id, ONE.id)}, "cases: in another order"),
    ],
)
def test_another_run_is_told_by_what_differs(change: dict[str, Any], said: str) -> None:
    (found,) = what_changed(THEN, dataclasses.replace(THEN, **change))
    assert found == said


def test_the_refusal_leads_with_the_arguments_then_and_now(tmp_path: Path) -> None:
    now = dataclasses.replace(THEN, plan_hash="01" * 32, argv=("--backend", "cpu", "-k", "a b", "--resume"))
    with pytest.raises(UsageError) as caught:
        refuse_another_run(tmp_path, THEN, now)
    assert caught.value.faults[1:3] == (
        "  it was started with: --backend cpu",
        "  now: --backend cpu -k 'a b' --resume",
    )


@settings(max_examples=40, deadline=None)
@given(changed=st.lists(st.sampled_from(LEAVES), unique=True))
def test_every_fact_that_changed_is_named_and_no_other(changed: list[tuple[str, ...]]) -> None:
    now = THEN
    for path in changed:
        facts = copy.deepcopy(dict(now.facts))
        place = facts
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = "changed"
        now = dataclasses.replace(now, facts=facts)
    assert sorted(found.split(": ")[0] for found in what_changed(THEN, now)) == sorted(map(".".join, changed))


def test_a_fact_says_what_it_was_and_what_it_is() -> None:
    assert what_changed(THEN, with_fact(("versions", "torch"), "2.14")) == ["versions.torch: 2.13 then, 2.14 now"]
    assert what_changed(THEN, with_fact(("device", "available"), False)) == ["device.available: true then, false now"]


def test_what_differs_from_boot_to_boot_and_call_to_call_is_no_difference() -> None:
    for path, value in ((("device", "memory_gib"), 63.9), (("device", "reason"), "x"), (("peak_resident_mib",), 1.0)):
        assert what_changed(THEN, with_fact(path, value)) == []
    assert what_changed(THEN, with_fact(("device", "memory_gib"), 32.0)) == ["device.memory_gib: 64.0 then, 32.0 now"]


def test_a_variable_that_is_not_set_any_more_is_a_difference_and_so_is_a_new_one() -> None:
    now = with_fact(("stack", "environment"), {"MKL_CBWR": "AVX2"})
    assert what_changed(THEN, now) == [
        "stack.environment.MKL_CBWR: null then, AVX2 now",
        "stack.environment.OMP_NUM_THREADS: 4 then, null now",
    ]


def test_the_id_of_the_stack_is_not_compared_itself_and_what_only_a_worker_tells_is_once_it_is_known() -> None:
    assert what_changed(THEN, with_fact(("stack", "id"), "another")) == []
    now = with_fact(("stack", "runtime"), {"oneDNN": "3.8"})
    assert what_changed(now, THEN) == []
    assert what_changed(now, with_fact(("stack", "runtime"), {"oneDNN": "3.9"})) == [
        "stack.runtime.oneDNN: 3.8 then, 3.9 now"
    ]


def test_facts_that_are_not_known_yet_are_not_compared() -> None:
    assert what_changed(THEN, dataclasses.replace(THEN, facts={"device": {"type": "xpu"}})) == []
    assert what_changed(THEN, dataclasses.replace(THEN, facts={"device": {"type": "cuda"}})) != []


def died(boots: list[str], launched_in: list[int]) -> JournalContent:
    """A journal whose starts had these boot ids; the first case was in flight at the ends of some of them."""
    starts = tuple(Start("2026-11-30T10:00:00Z", (), boot) for boot in boots)
    return JournalContent(THEN, starts, (), {ONE.id: tuple(launched_in)}, (), torn=False, length=0)


@pytest.mark.parametrize(
    ("boots", "launched_in", "here", "said"),
    [
        (["a"], [0], "a", None),
        (["a", "a"], [0, 1], "a", "the run died twice while it ran"),
        (["a", "a", "a"], [0, 1, 2], "a", "the run died 3 times while it ran"),
        (["a"], [0], "b", "the host went down while it ran"),
        (["a", "b"], [0], "b", "the host went down while it ran"),
        (["a", "b"], [1], "b", None),
        ([""], [0], "b", None),
        (["a"], [0], "", None),
        (["", ""], [0, 1], "", "the run died twice"),
    ],
)
def test_a_case_is_started_again_once_and_never_after_it_took_the_host_down(
    boots: list[str], launched_in: list[int], here: str, said: str | None
) -> None:
    found = culprits(died(boots, launched_in), here)
    assert (said is None and found == {}) or (said is not None and found[ONE.id].startswith(said))


def test_the_host_tells_its_boots_apart(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert boot_id() == boot_id()
    monkeypatch.setattr(resume, "_BOOT_ID", tmp_path / "missing")
    assert boot_id() == ""


@pytest.mark.parametrize("given", [("--url", "http://b/v1"), ("--url=http://b/v1",), ()])
def test_another_server_is_another_run(given: tuple[str, ...]) -> None:
    then = dataclasses.replace(THEN, argv=("--engine", "openai", "--url", "http://a/v1"))
    (found,) = what_changed(then, dataclasses.replace(then, argv=("--engine", "openai", *given)))
    assert found == f"server: http://a/v1 then, {'http://b/v1' if given else 'none'} now"
    assert what_changed(then, dataclasses.replace(then, argv=("--url=http://a/v1", "--resume"))) == []
