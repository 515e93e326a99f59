"""selftest from the command line to its files, on a vendor's engine that is injected into and needs no torch."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jsonschema
import pytest
import zenith_site
from zenith.injected import fault, null

import conformance.faults.library
import conformance.nulls.library
from conformance.__main__ import main
from conformance.criteria import limits as limits_module
from conformance.execution import device, injection
from conformance.faults.fault import Fault
from conformance.results.output import claimed
from conformance.selftest import execution
from conformance.selftest.document import schema
from conformance.suite import ConformanceSuite

INJECTOR = injection.Injector("zenith.injected:FaultyZenith", "zenith.injected:VariedZenith")
FAULTS = (fault("hue.third"), fault("hue.coarse"))
NULLS = (null("exact.as-is"), null("exact.nudge"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zenith_site.install(tmp_path_factory.mktemp("vendor") / "site")


Selftest = Callable[..., "tuple[int, dict[str, Any]]"]


@pytest.fixture
def selftest(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Selftest]:
    """Runs `selftest` in this process with these faults and nulls; its exit code and selftest.json."""
    for name, value in zenith_site.environment(site).items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(site))
    for name in [name for name in sys.modules if name.partition(".")[0] == "zenith"]:
        monkeypatch.delitem(sys.modules, name)  # the installed package is meant, not the one beside this file
    engines = {"zenith.engine:ZenithRunner": INJECTOR}
    monkeypatch.setattr(injection, "INJECTORS", engines)

    def run(
        *arguments: str, faults: tuple[Fault, ...] = FAULTS, nulls: tuple[Any, ...] = NULLS
    ) -> tuple[int, dict[str, Any]]:
        known: dict[str, Mapping[str, Any]] = {"faults": _by_id(faults), "nulls": _by_id(nulls)}
        monkeypatch.setattr(conformance.faults.library, "faults", lambda: known["faults"])
        monkeypatch.setattr(conformance.nulls.library, "nulls", lambda: known["nulls"])
        code = main(
            ["selftest", "--backend", "zenith", "--suite", "colours", "--output", str(tmp_path / "out"), *arguments]
        )
        made = json.loads((tmp_path / "out" / "selftest.json").read_text("utf-8"))
        jsonschema.Draft202012Validator(schema()).validate(made)
        assert made["exit_code"] == code
        return code, made

    yield run


def _by_id(several: Any) -> Mapping[str, Any]:
    return MappingProxyType({one.id: one for one in several})


def results(made: Mapping[str, Any]) -> dict[str, str]:
    return {f"{one['kind']} {one['name']}".strip(): one["result"] for one in made["trials"]}


def test_found_faults_and_quiet_nulls_exit_0_with_tables_and_plot(
    selftest: Selftest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, made = selftest()
    said = capsys.readouterr().out
    assert code == 0, said
    assert results(made) == {
        "clean": "no alarm",
        "fault hue.third": "found",
        "fault hue.coarse": "found",
        "null exact.as-is": "no alarm",
    }
    found = next(one for one in made["trials"] if one["name"] == "hue.coarse")
    assert found["target"] == "zenith/quick/bfloat16"  # not plain, which claims eager rounding
    evidence = found["evidence"]
    assert (evidence["requirement_id"], evidence["criterion"]) == ("COL-020", "score.agrees")
    assert evidence["margin"] == pytest.approx(evidence["value"] / evidence["limit"]) and 1 < evidence["margin"] < 10
    assert made["total"]["rules"][0]["false_alarms"]["count"] == 0
    assert (tmp_path / "out" / "selftest.svg").read_bytes().startswith(b"<?xml")
    assert "2 of 2 faults found" in said and "exit code 0" in said and "allclose" in said


def test_a_criterion_loosened_to_ten_times_its_limit_exits_1(
    selftest: Selftest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    strict = limits_module.limits()

    errors = ("pooled_16bit", "single_sigma", "single_over_yardstick", "bias_sigma", "bias_shared")
    wide = {name: getattr(strict.score, name) for name in errors}
    wide = {name: dataclasses.replace(limit, value=10 * limit.value) for name, limit in wide.items()}
    loosened = dataclasses.replace(strict, score=dataclasses.replace(strict.score, **wide))
    monkeypatch.setattr("conformance.criteria.score.limits", lambda: loosened)
    code, made = selftest()
    assert code == 1
    assert results(made)["fault hue.coarse"] == "missed"
    missed = next(one for one in made["trials"] if one["result"] == "missed")
    assert missed["effect"]["size"] > 1 and "must be seen" in missed["reason"]
    assert "1 fault was missed: hue.coarse" in capsys.readouterr().out


def test_a_suite_that_skips_its_assertion_exits_1(selftest: Selftest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConformanceSuite, "judge", lambda self, judgement: None)
    code, made = selftest()
    assert code == 1
    assert results(made)["clean"] == "false alarm"
    assert results(made)["fault hue.third"] == "not measured"
    assert "judged nothing" in next(one["reason"] for one in made["trials"] if one["kind"] == "clean")


def test_a_suite_that_keeps_judgements_and_raises_nothing_exits_1(
    selftest: Selftest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ConformanceSuite, "judge", lambda self, judgement: self.judgements.append(judgement))
    code, made = selftest()
    assert code == 1 and results(made)["fault hue.third"] == "missed"


def test_a_correct_variation_that_is_accused_exits_1_and_is_named(
    selftest: Selftest, capsys: pytest.CaptureFixture[str]
) -> None:
    code, made = selftest(nulls=(null("exact.wrong"),))
    assert code == 1 and results(made)["null exact.wrong"] == "false alarm"
    assert made["total"]["rules"][0]["false_alarms"]["count"] == 1
    assert "1 correct engine was accused: exact.wrong" in capsys.readouterr().out


def test_a_fault_below_honest_rounding_is_not_covered_unless_it_is_structural(selftest: Selftest) -> None:
    code, made = selftest(faults=(*FAULTS, fault("hue.faint")))
    faint = next(one for one in made["trials"] if one["name"] == "hue.faint")
    assert (code, faint["result"]) == (0, "not covered")
    assert 0 < faint["effect"]["size"] < faint["effect"]["smallest"]
    code, made = selftest(faults=(*FAULTS, fault("hue.faint", structural=True)))
    assert (code, results(made)["fault hue.faint"]) == (1, "missed")


def test_a_fault_that_changes_nothing_is_missed(selftest: Selftest) -> None:
    code, made = selftest(faults=(fault("hue.inert"),))
    assert code == 1 and results(made)["fault hue.inert"] == "missed"


def test_a_crash_of_the_engine_is_no_find(selftest: Selftest) -> None:
    code, made = selftest(faults=(*FAULTS, fault("hue.crash")))
    crashed = next(one for one in made["trials"] if one["name"] == "hue.crash")
    assert (code, crashed["result"]) == (1, "not measured") and "zenith lost its way" in crashed["reason"]


def test_a_fault_that_applies_nowhere_counts_as_neither(selftest: Selftest, capsys: pytest.CaptureFixture[str]) -> None:
    told, refused = fault("hue.window", reason="the model has no window"), fault("hue.refused")
    code, made = selftest(faults=(*FAULTS, told, refused))
    assert code == 0
    assert results(made)["fault hue.window"] == results(made)["fault hue.refused"] == "not applicable"
    assert made["total"]["not_applicable"] == 2 and made["total"]["found"] == 2
    said = capsys.readouterr().out
    assert "the model has no window" in said and "zenith has no window" in said


def test_one_fault_can_be_named_and_is_tried_alone(selftest: Selftest) -> None:
    code, made = selftest("--fault", "hue.third")
    assert code == 0 and set(results(made)) == {"clean", "fault hue.third"}
    code, made = selftest("--null", "exact.nudge")
    assert code == 0 and set(results(made)) == {"clean", "null exact.nudge"}


def test_full_runs_every_attention_backend_and_every_case(selftest: Selftest) -> None:
    _, made = selftest("--full")
    assert {one["target"] for one in made["trials"]} == {"zenith/plain/bfloat16", "zenith/quick/bfloat16"}
    assert {one["name"] for one in made["trials"] if one["kind"] == "null"} == {"exact.as-is", "exact.nudge"}


def test_unknown_names_are_answered_with_the_nearest_before_anything_runs(
    selftest: Selftest, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError):
        selftest("--fault", "hue.thirt", "--fault", "Hue!", "--null", "exact.nudged")
    said = capsys.readouterr().err
    assert "unknown fault 'hue.thirt'; did you mean 'hue.third'?" in said
    assert "'Hue!' is no injection" in said
    assert "unknown null 'exact.nudged'; did you mean 'exact.nudge'?" in said
    assert main(["selftest", "--backend", "zenith", "--fault", "hue.third@middle"]) == 4
    assert "only in all" in capsys.readouterr().err


def test_an_engine_that_nothing_can_be_injected_into_is_said(
    selftest: Selftest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(injection, "INJECTORS", {})
    code, made = selftest()
    assert code == 5 and made["trials"] == []
    said = capsys.readouterr().out
    assert "nothing can be injected into the engine zenith" in said
    assert "smallest effect" not in said and "0 of 0" not in said  # no table without a row


def test_an_interrupt_keeps_what_was_measured(selftest: Selftest, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []

    def interrupt(finding: Any) -> None:
        if finding.kind == "fault" and not sent:
            sent.append(finding)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("conformance.selftest.console.Screen.found", lambda self, finding: interrupt(finding))
    code, made = selftest(faults=tuple(fault(f"hue.third-{index}") for index in range(200)))
    assert code == 2 and 1 < len(made["trials"]) < 200
    assert {one["result"] for one in made["trials"]} == {"no alarm", "found"}


def test_json_is_the_record_alone_on_standard_output(selftest: Selftest, capsys: pytest.CaptureFixture[str]) -> None:
    _, made = selftest("--json", "--fault", "hue.third")
    captured = capsys.readouterr()
    assert json.loads(captured.out) == made and "found: hue.third" in captured.err


def test_list_names_all_without_a_backend(selftest: Selftest, capsys: pytest.CaptureFixture[str]) -> None:
    selftest("--fault", "hue.third")
    capsys.readouterr()
    assert main(["selftest", "--list"]) == 0
    said = capsys.readouterr().out
    assert "hue.third" in said and "exact.nudge" in said and "colours, float32, tiny-colours" in said


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Standard output whose reader has gone, as after `| head`."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        yield


@pytest.mark.parametrize("json_too", [(), ("--json",)])
def test_a_reader_that_has_gone_costs_neither_results_nor_exit_code(
    selftest: Selftest, unread: None, json_too: tuple[str, ...]
) -> None:
    code, made = selftest(*json_too, faults=(fault("hue.inert"),))
    assert code == 1 and results(made)["fault hue.inert"] == "missed"


def test_what_cannot_be_written_in_the_end_is_shown_and_an_internal_error(
    selftest: Selftest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    selftest("--fault", "hue.third")
    (tmp_path / "out" / "selftest.svg").unlink()
    (tmp_path / "out" / "selftest.svg").mkdir()
    capsys.readouterr()
    assert main(["selftest", "--backend", "zenith", "--suite", "colours", "--output", str(tmp_path / "out")]) == 3
    captured = capsys.readouterr()
    assert "cannot write" in captured.err and "2 of 2 faults found" in captured.out


def test_a_folder_that_another_selftest_writes_to_is_left_alone(
    selftest: Selftest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    selftest("--fault", "hue.third")
    with claimed(tmp_path / "out"):
        assert main(["selftest", "--backend", "zenith", "--output", str(tmp_path / "out")]) == 4
    assert "another run" in capsys.readouterr().err


def test_a_defect_in_the_midst_keeps_what_was_found(selftest: Selftest, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(trial: Any, *given: Any) -> Any:
        if trial.name == "hue.coarse":
            raise ValueError("no such row")
        return judged(trial, *given)

    judged = execution.finding_of
    monkeypatch.setattr(execution, "finding_of", broken)
    code, made = selftest(faults=FAULTS)
    assert code == 3 and "internal error: ValueError: no such row" in made["reasons"][0]
    assert results(made)["clean"] == "no alarm"


def test_another_run_on_the_device_is_no_internal_error(
    selftest: Selftest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def busy(*_: Any) -> Any:
        raise device.DeviceBusy("process 7 is testing it")

    monkeypatch.setattr(device, "owned_device", busy)
    with pytest.raises(FileNotFoundError):
        selftest()
    assert "process 7 is testing it" in capsys.readouterr().err
