"""Planted faults: a run that does not find what it injected is VOID, wherever its record is read."""

from __future__ import annotations

import dataclasses
import json
import sys
import xml.etree.ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import recorded
import zenith_site
from recorded import result
from zenith.injected import fault

import conformance.faults.library
from conformance.__main__ import main
from conformance.execution import injection
from conformance.faults.fault import Fault
from conformance.results.document import EXIT_MEANINGS
from conformance.results.journal import read_journal
from conformance.results.junit import junit_xml
from conformance.results.planted import Planted, is_void, planted_of
from conformance.results.validation import document_faults, read_document
from conformance.verdict import Verdict

FOUND = Planted("colours", "colours", "zenith/plain/bfloat16", "tiny-colours", "hue.third", "found", "COL-020: far")
MISSED = dataclasses.replace(FOUND, fate="missed", reason="every case passed", target="zenith/a%2Fb/bfloat16/vision=x")
ABSENT = dataclasses.replace(FOUND, fate="not planted", fault="", reason="nothing can be injected into the engine vllm")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zenith_site.install(tmp_path_factory.mktemp("vendor") / "site")


Run = Callable[..., int]


@pytest.fixture
def run(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A run of zenith's suite in this process, planting from these faults."""
    for name, value in zenith_site.environment(site).items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(site))
    for name in [name for name in sys.modules if name.partition(".")[0] == "zenith"]:
        monkeypatch.delitem(sys.modules, name)
    injector = injection.Injector("zenith.injected:FaultyZenith", "zenith.injected:VariedZenith")
    monkeypatch.setattr(injection, "INJECTORS", {"zenith.engine:ZenithRunner": injector})

    def start(*arguments: str, faults: tuple[Fault, ...] = ()) -> int:
        known = MappingProxyType({one.id: one for one in faults})
        monkeypatch.setattr(conformance.faults.library, "faults", lambda: known)
        output = ("--output", str(tmp_path / "out"))
        monkeypatch.setattr(sys, "argv", ["conformance", "--backend", "zenith", "--suite", "colours", *output])
        return main(["run", "--backend", "zenith", "--suite", "colours", *output, *arguments])

    yield start


def test_a_run_that_finds_its_planted_faults_counts(run: Run, tmp_path: Path, capsys: Any) -> None:
    assert run("--plant", faults=(fault("hue.third", structural=True),)) == 0
    document = read_document(tmp_path / "out" / "results.json")
    assert [(one.fault, one.fate, one.target) for one in planted_of(document)] == [
        ("hue.third", "found", "zenith/plain/bfloat16"),
        ("hue.third", "found", "zenith/quick/bfloat16"),
    ]
    assert document["planted"]["faults"][0]["reason"].startswith("COL-020: 160 scores")
    assert "planted faults: 2 of 2 found" in capsys.readouterr().out
    assert {case["verdict"] for case in document["cases"]} == {"PASS"}


def test_a_planted_fault_that_is_not_found_makes_the_run_void_everywhere(run: Run, tmp_path: Path, capsys: Any) -> None:
    assert run("--plant", "--attention", "plain", faults=(fault("hue.inert", structural=True),)) == 1
    said = capsys.readouterr().out
    document = read_document(tmp_path / "out" / "results.json")
    assert is_void(document) and document["run"]["exit_code"] == 1
    assert "hue.inert in colours" in document["planted"]["void"][0]
    assert {case["verdict"] for case in document["cases"]} == {"PASS"}
    assert "VOID: the planted fault hue.inert" in said and "the run is VOID, its verdicts show nothing" in said
    root = xml.etree.ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()
    failed = [case for case in root.iter("testcase") if case.find("failure") is not None]
    assert [case.attrib["classname"] for case in failed] == ["zenith.planted"]
    assert root.attrib["tests"] == str(len(list(root.iter("testcase")))) == "6"
    assert main(["report", str(tmp_path / "out")]) == 1
    assert "VOID: the planted fault hue.inert" in capsys.readouterr().out


def test_a_baseline_does_not_excuse_a_void_run(run: Run, tmp_path: Path, capsys: Any) -> None:
    assert run("--attention", "plain") == 0
    (tmp_path / "out" / "results.json").rename(tmp_path / "baseline.json")
    baseline = ("--baseline", str(tmp_path / "baseline.json"))
    assert run("--plant", "--attention", "plain", *baseline, faults=(fault("hue.inert", structural=True),)) == 1
    assert read_document(tmp_path / "out" / "results.json")["baseline"]["exit_code"] == 1


def test_an_engine_that_nothing_can_be_planted_in_is_said_in_the_record(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(injection, "INJECTORS", {})
    assert run("--plant", faults=(fault("hue.third", structural=True),)) == 0
    document = read_document(tmp_path / "out" / "results.json")
    assert {one.fate for one in planted_of(document)} == {"not planted"} and not is_void(document)
    assert "nothing can be injected into the engine zenith" in planted_of(document)[0].reason
    assert "0 of 0 found; nothing could be planted in 2 more places" in capsys.readouterr().out


def test_what_crashes_was_not_found_and_what_does_not_apply_was_not_planted(run: Run, tmp_path: Path) -> None:
    assert run("--plant", "--attention", "plain", faults=(fault("hue.crash", structural=True),)) == 1
    document = read_document(tmp_path / "out" / "results.json")
    assert "zenith lost its way" in document["planted"]["void"][0]
    several = (fault("hue.refused", structural=True), fault("hue.third", structural=True), fault("hue.coarse"))
    assert run("--plant", "--attention", "plain", faults=several) == 0
    document = read_document(tmp_path / "out" / "results.json")
    assert [one.fault for one in planted_of(document)] == ["hue.third"]


def test_a_run_whose_engine_runs_only_without_faults_is_void(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = injection.Injector("zenith.nowhere:FaultyZenith", "zenith.injected:VariedZenith")
    monkeypatch.setattr(injection, "INJECTORS", {"zenith.engine:ZenithRunner": broken})
    assert run("--plant", "--attention", "plain", faults=(fault("hue.third", structural=True),)) == 1
    document = read_document(tmp_path / "out" / "results.json")
    assert "the engine runs, but not with a fault" in document["planted"]["void"][0]
    assert {case["verdict"] for case in document["cases"]} == {"PASS"}


def test_the_journal_keeps_planted_faults_for_a_run_that_is_told_again(run: Run, tmp_path: Path) -> None:
    inert = (fault("hue.inert", structural=True),)
    assert run("--plant", "--attention", "plain", faults=inert) == 1
    assert [one.fate for one in read_journal(tmp_path / "out").planted] == ["missed"]
    (tmp_path / "out" / "results.json").unlink()
    assert run("--plant", "--attention", "plain", "--resume", faults=inert) == 1
    assert is_void(read_document(tmp_path / "out" / "results.json"))


def test_a_run_is_resumed_with_planted_faults_or_without_as_it_began(run: Run, tmp_path: Path, capsys: Any) -> None:
    def forget_the_last_case() -> None:
        journal = tmp_path / "out" / "journal.jsonl"
        lines = journal.read_bytes().splitlines(keepends=True)
        lines = [line for line in lines if json.loads(line)["kind"] not in ("ended", "target")]
        journal.write_bytes(b"".join(lines[:-1]))

    third = (fault("hue.third", structural=True),)
    for then, now in (("--plant",), ()), ((), ("--plant",)):
        assert run("--attention", "plain", *then, faults=third) == 0
        forget_the_last_case()
        capsys.readouterr()
        assert run("--attention", "plain", "--resume", *now, faults=third) == 4
        assert "planted faults: " in capsys.readouterr().err


def test_a_fault_that_cannot_say_where_it_applies_keeps_no_other_from_being_planted(run: Run, tmp_path: Path) -> None:
    def raises(configuration: Any, role: str) -> None:
        raise KeyError("window")

    broken = dataclasses.replace(fault("hue.broken", structural=True), applies=raises)
    assert run("--plant", "--attention", "plain", faults=(broken, fault("hue.third", structural=True))) == 0
    document = read_document(tmp_path / "out" / "results.json")
    assert [one.fault for one in planted_of(document)] == ["hue.third"]
    assert main(["selftest", "--backend", "zenith", "--suite", "colours", "--output", str(tmp_path / "self")]) == 4


def test_a_run_plants_nothing_unless_it_is_asked_to(run: Run, tmp_path: Path) -> None:
    assert run("--attention", "plain", faults=(fault("hue.inert", structural=True),)) == 0
    assert "planted" not in read_document(tmp_path / "out" / "results.json")


def test_void_must_follow_from_the_planted_faults() -> None:
    document = recorded.document([result()], planted=[FOUND, MISSED, ABSENT])
    assert document["run"]["exit_code"] == 1 and document_faults(document) == []
    changes: list[dict[str, Any]] = [{"void": []}, {"faults": [FOUND.to_json()]}]
    for change in changes:
        altered = {**document, "planted": {**document["planted"], **change}}
        assert any("$.planted.void" in each for each in document_faults(altered))
    passed = {**document, "run": {**document["run"], "exit_code": 0}}
    assert any("$.run.exit_code" in each for each in document_faults(passed))
    assert set(EXIT_MEANINGS) >= {0, 1}


def test_an_interrupted_run_says_so_even_if_it_is_void() -> None:
    assert recorded.document([result()], planted=[MISSED], interrupted=True)["run"]["exit_code"] == 2


def test_junit_has_a_testcase_for_each_planted_fault_and_names_are_text() -> None:
    hostile = dataclasses.replace(MISSED, fault="a]]><b", reason="\x1b[31m</failure>", role="r<")
    document = recorded.document([result(Verdict.PASS)], planted=[FOUND, hostile, ABSENT])
    root = xml.etree.ElementTree.fromstring(junit_xml(json.loads(json.dumps(document))))
    planted = [case for case in root.iter("testcase") if case.attrib["classname"] == "cpu.planted"]
    kinds = [[child.tag for child in case if child.tag in ("failure", "skipped")] for case in planted]
    assert kinds == [[], ["skipped"], ["failure"]]  # by target
    assert root.attrib["tests"] == "4" and root.attrib["failures"] == "1"
    failure = planted[2].find("failure")
    assert failure is not None and "VOID" in failure.attrib["message"]
