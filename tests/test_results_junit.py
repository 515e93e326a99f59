"""junit.xml: names that are the same in every run, counts that add up, and bytes that every parser reads."""

from __future__ import annotations

import dataclasses
import importlib
import re
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any
from xml.dom import minidom

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import VISION, document, figures, result, texts

from conformance.judgement import Figure
from conformance.results.junit import BODY_LIMIT, MESSAGE_LIMIT, junit_xml, write_junit
from conformance.results.printable import one_line, printable
from conformance.results.record import CaseResult
from conformance.runner import Effective
from conformance.target import Target
from conformance.verdict import Verdict

etree: Any = importlib.import_module("lxml.etree")  # it has no types

EVERY_VERDICT = [result(verdict, test=f"test_{verdict}".lower()) for verdict in Verdict]
SPREAD = [
    *EVERY_VERDICT,
    result(target=VISION),
    result(suite="reward"),
    result(Verdict.FAIL, suite="reward", model="m"),
]


def _parsed(*results: CaseResult) -> ET.Element:
    data = junit_xml(document(results))
    minidom.parseString(data)
    strict = etree.fromstring(data, etree.XMLParser(recover=False, huge_tree=False))
    tree = ET.fromstring(data)
    assert [one.text for one in strict.iter()] == [one.text for one in tree.iter()]
    return tree


def _one(found: CaseResult) -> ET.Element:
    return _parsed(found).findall("./testsuite/testcase")[0]


@pytest.mark.parametrize("counted", ["root", "suite"])
def test_counts_equal_the_elements(counted: str) -> None:
    root = _parsed(*SPREAD)
    for element in [root] if counted == "root" else root.findall("testsuite"):
        cases = list(element.iter("testcase"))
        assert int(element.attrib["tests"]) == len(cases) > 0
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(element.attrib[name]) == len(list(element.iter(tag)))
        assert float(element.attrib["time"]) == pytest.approx(sum(float(case.attrib["time"]) for case in cases))


@pytest.mark.parametrize("verdict", list(Verdict))
def test_each_verdict_becomes_its_element_and_leads_the_message(verdict: Verdict) -> None:
    case = _one(result(verdict, reason="no XPU device is visible"))
    outcomes = [child for child in case if child.tag in ("failure", "error", "skipped")]
    assert [child.tag for child in outcomes] == ([verdict.junit] if verdict.junit else [])
    for child in outcomes:
        assert child.attrib["type"] == verdict.value
        assert child.attrib["message"] == f"{verdict}: no XPU device is visible"
        assert "16 vectors of 256 numbers were compared" in (child.text or "")


def test_classname_and_name_are_the_backend_and_the_case_id() -> None:
    for recorded in SPREAD:
        case = _one(recorded)
        assert f"{case.attrib['classname']}.{case.attrib['name']}" == f"cpu.{recorded.id}"
        assert case.attrib["classname"] == f"cpu.{recorded.suite}"


def test_names_are_unique_ascii_and_independent_of_outcomes_and_times() -> None:
    def names(results: list[CaseResult]) -> list[tuple[str, str]]:
        return [(case.attrib["classname"], case.attrib["name"]) for case in _parsed(*results).iter("testcase")]

    later = [
        dataclasses.replace(one, verdict=Verdict.CRASH, started="2027-01-01T00:00:00.5+00:00", duration_s=9.0)
        for one in SPREAD
    ]
    assert names(SPREAD) == names(later)
    assert len(set(names(SPREAD))) == len(SPREAD)
    assert all("".join(name).isascii() for name in names(SPREAD))


def test_one_testsuite_holds_one_suite_on_one_target() -> None:
    suites = _parsed(*SPREAD).findall("testsuite")
    assert [suite.attrib["name"] for suite in suites] == [
        "cpu.embedding[transformers/sdpa/bfloat16]",
        "cpu.embedding[transformers/eager/float32/vision=50%25/half]",
        "cpu.reward[transformers/sdpa/bfloat16]",
    ]


def test_cases_keep_the_order_of_the_document_whatever_their_outcome() -> None:
    mixed = [result(verdict, test=f"test_{i}") for i, verdict in enumerate([Verdict.FAIL, Verdict.PASS, Verdict.ERROR])]
    names = [case.attrib["name"].partition("[")[0] for case in _parsed(*mixed).iter("testcase")]
    assert names == ["test_0", "test_1", "test_2"]


def test_two_cases_of_one_name_are_refused() -> None:
    doubled = document([result()])
    doubled["cases"] *= 2
    with pytest.raises(ValueError, match="one JUnit name"):
        junit_xml(doubled)


def test_no_attribute_is_written_that_strict_schemas_lack() -> None:
    # The attributes that the Jenkins xUnit plug-in's schema and the widespread "JUnit.xsd" both know.
    allowed = {
        "testsuites": {"tests", "failures", "errors", "skipped", "time"},
        "testsuite": {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname"},
        "testcase": {"classname", "name", "time"},
        "failure": {"type", "message"},
        "error": {"type", "message"},
        "skipped": {"type", "message"},
        "property": {"name", "value"},
        "properties": set(),
        "system-out": set(),
    }
    for element in _parsed(*SPREAD).iter():
        assert set(element.attrib) <= allowed[element.tag]


def test_nothing_names_the_machine_and_timestamps_are_plain() -> None:
    for suite in _parsed(*SPREAD).findall("testsuite"):
        assert suite.attrib["hostname"] == "redacted"
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.attrib["timestamp"])


def test_figures_limits_kernels_and_quirks_are_properties_and_repeated_as_output() -> None:
    case = _one(result(Verdict.FAIL, figures=(Figure("pooled ratio", 2.5, 1.25, "max", "measured on eight devices"),)))
    properties = {one.attrib["name"]: one.attrib["value"] for one in case.iter("property")}
    assert properties["vector.agrees: pooled ratio"] == "2.5 > 1.25 (2 of the limit) [measured on eight devices]"
    assert properties["kernels"] == "aten::flash x 56; 56 attention calls made"
    assert properties["quirks"] == "short-prompts"
    assert properties["requirement"].startswith("EMB-010: Each vector MUST")
    assert case.findtext("system-out") == "\n".join(f"{name} = {value}" for name, value in properties.items())
    body = case.findtext("failure") or ""
    for said in ("2.5 > 1.25", "measured on eight devices", "reproduce: python -m conformance run"):
        assert said in body


NASTY = [
    "nul \x00 bell \x07 escape \x1b[31mred\x1b[0m title \x1b]0;owned\x07 c1 \x9b1m",
    "]]>]]> -- <!-- --> <![CDATA[ &amp; &#0; <b>'\"",
    "lone \ud800 high, \udfff low, \ufffe \uffff, \U0001fffe, \U0001f600",
    "line\r\nends\rand\ttabs\x0b\x0c\x85\u2028",
]


@pytest.mark.parametrize("nasty", NASTY)
def test_any_text_anywhere_is_read_back_by_every_parser(nasty: str) -> None:
    target = Target("transformers", "sdpa", "bfloat16", (("vision", nasty),))
    recorded = result(
        Verdict.FAIL,
        suite=nasty,
        model=nasty,
        target=target,
        figures=(Figure(nasty, 1.0, 2.0, "max", nasty),),
        reason=nasty,
        message=nasty,
        statement=nasty,
        requirement_id=nasty,
        effective=Effective(nasty, nasty, {nasty: 1}, 1, 1),
        quirks=(nasty,),
        reproduce=nasty,
        log_tail=nasty,
    )
    case = _one(recorded)
    assert printable(nasty) in (case.findtext("failure") or "")
    outcome = case.find("failure")
    assert outcome is not None
    assert outcome.attrib["message"] == f"FAIL: {one_line(recorded.reason)}"


@settings(max_examples=60, deadline=None)
@given(text=texts, held=st.lists(figures, max_size=2))
def test_any_unicode_is_read_back(text: str, held: list[Figure]) -> None:
    case = _one(result(Verdict.ERROR, message=text, reason=text, log_tail=text, figures=tuple(held)))
    assert printable(text) in (case.findtext("error") or "")


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(codec=None)))
def test_printable_text_is_valid_in_xml_and_shows_what_was_there(text: str) -> None:
    shown = printable(text)
    assert ET.fromstring(f"<a>{shown.replace('&', '&amp;').replace('<', '&lt;')}</a>").text in (shown, None)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)
    assert printable(shown) == shown


def test_a_terminal_escape_is_taken_out_whole_and_a_control_is_shown() -> None:
    assert printable("\x1b[1;31mred\x1b[0m \x1b]8;;http://x\x1b\\link\x07 \x00") == "red link\\x07 \\x00"


@pytest.mark.parametrize("filler", ["x", "]]>", "\x1b[31m", "\x00", "\n"])
def test_a_message_of_a_megabyte_is_cut_in_time_and_says_so(filler: str) -> None:
    huge = "begin" + filler * (1_000_000 // len(filler)) + "end"
    began = time.monotonic()
    failure = _one(result(Verdict.FAIL, message=huge, reason=huge)).find("failure")
    assert time.monotonic() - began < 5
    assert failure is not None
    assert len(failure.text or "") <= BODY_LIMIT + 100
    assert len(failure.attrib["message"]) <= MESSAGE_LIMIT
    assert "begin" in (failure.text or "")
    if filler in ("x", "]]>", "\x00"):
        assert "characters left out" in (failure.text or "")


def test_the_file_is_written_whole(tmp_path: Path) -> None:
    built: dict[str, Any] = document(EVERY_VERDICT)
    write_junit(built, tmp_path / "junit.xml")
    assert [path.name for path in tmp_path.iterdir()] == ["junit.xml"]
    assert (tmp_path / "junit.xml").read_bytes() == junit_xml(built)
    assert (tmp_path / "junit.xml").stat().st_mode & 0o400


def test_a_run_without_cases_is_a_file_without_testcases() -> None:
    root = _parsed()
    assert (root.attrib["tests"], len(root)) == ("0", 0)
