"""Findings added up: rates with their bounds, and what makes selftest exit 0, 1, 2 or 5."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from conformance.false_alarms import upper_bound
from conformance.selftest.document import document, schema
from conformance.selftest.plot import svg
from conformance.selftest.tally import UNCOVERED_ALLOWED, cell, cells, conclude, suite_cells
from conformance.selftest.trial import OURS, Effect, Evidence, Finding, Result, Ruling

EVIDENCE = Evidence("test_hues_agree", "COL-020", "score.agrees", "pooled ratio", 8.0, 1.47, 5.44, "too far")


def finding(result: Result = Result.FOUND, **changes: Any) -> Finding:
    kind = "fault" if result not in (Result.QUIET, Result.ALARM) else "null"
    made: dict[str, Any] = {
        "kind": kind,
        "name": "hue.third",
        "family": "hue",
        "suite": "colours",
        "role": "colours",
        "model": "tiny-colours",
        "target": "zenith/plain/bfloat16",
        "dtype": "bfloat16",
        "structural": False,
        "result": result,
        "evidence": EVIDENCE if result is Result.FOUND else None,
    }
    return Finding(**{**made, **changes})


@given(st.integers(0, 400), st.integers(1, 400))
@settings(max_examples=40, deadline=None)
def test_the_bound_is_that_of_clopper_and_pearson(count: int, total: int) -> None:
    count = min(count, total)
    expected = 1.0 if count == total else beta.ppf(0.95, count + 1, total - count)
    assert upper_bound(count, total) == pytest.approx(expected, rel=1e-6)


def test_no_alarm_in_n_bounds_the_rate_at_about_three_in_n() -> None:
    assert upper_bound(0, 3000) == pytest.approx(1 - 0.05 ** (1 / 3000), rel=1e-9)
    assert upper_bound(0, 3000) < 0.001 < upper_bound(1, 3000)
    assert upper_bound(0, 0) == 1.0
    with pytest.raises(ValueError, match="3 of 2"):
        upper_bound(3, 2)


def test_everything_found_and_nothing_accused_exits_0() -> None:
    assert conclude([finding(), finding(Result.QUIET), finding(Result.NOT_APPLICABLE)]).exit_code == 0


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (Result.MISSED, "1 fault was missed: hue.third (colours, tiny-colours, zenith/plain/bfloat16)"),
        (Result.ALARM, "1 correct engine was accused"),
        (Result.NOT_MEASURED, "1 trial showed nothing"),
    ],
)
def test_one_miss_one_false_alarm_or_one_trial_without_result_exits_1(result: Result, said: str) -> None:
    verdict = conclude([finding(), finding(result)])
    assert verdict.exit_code == 1 and said in verdict.reasons[0]


def test_so_many_faults_and_no_more_may_be_uncovered_each_counted_once() -> None:
    def uncovered(count: int) -> list[Finding]:
        return [finding(Result.NOT_COVERED, name=f"hue.{index}") for index in range(count)]

    assert conclude(uncovered(UNCOVERED_ALLOWED) * 2).exit_code == 0
    assert conclude(uncovered(UNCOVERED_ALLOWED + 1)).exit_code == 1


def test_an_interrupted_selftest_exits_2_and_one_that_tried_nothing_5() -> None:
    assert conclude([finding(Result.MISSED)], interrupted=True).exit_code == 2
    assert conclude([]).exit_code == 5
    assert conclude([finding(Result.NOT_APPLICABLE)]).exit_code == 5


def test_correct_variations_alone_show_nothing_of_faults_unless_only_they_were_wanted() -> None:
    assert conclude([finding(Result.QUIET)]).exit_code == 5
    assert conclude([finding(Result.QUIET)], any_faults=False).exit_code == 0
    assert conclude([finding(Result.ALARM)]).exit_code == 1


def test_bit_identical_outputs_count_once_and_an_alarm_on_either_counts() -> None:
    same = [finding(Result.QUIET, rulings=(Ruling(OURS, "a", False), Ruling("allclose", "a", True))) for _ in range(3)]
    other = finding(Result.QUIET, rulings=(Ruling(OURS, "b", False),))
    ours = cell([*same, other]).ours
    assert (ours.alarms.count, ours.alarms.total) == (0, 2)
    elsewhere = next(one for one in cell([*same, other]).rules if one.rule == "allclose")
    assert (elsewhere.alarms.count, elsewhere.alarms.total) == (1, 1)


def test_a_rule_is_held_only_against_faults_whose_outputs_it_looks_at() -> None:
    seen = finding(rulings=(Ruling("cosine-1e-3", "a", False), Ruling("cosine-1e-3", "b", True)))
    blind = finding(Result.MISSED, rulings=(Ruling("cosine-1e-3", "a", False),))
    silent = finding()
    tallied = next(one for one in cell([seen, blind, silent]).rules if one.rule == "cosine-1e-3")
    assert (tallied.detected.count, tallied.detected.total) == (1, 2)
    assert (cell([seen, blind, silent]).ours.detected.count, cell([seen, blind, silent]).ours.detected.total) == (2, 3)


def test_cells_are_by_suite_tier_and_family() -> None:
    findings = [finding(), finding(dtype="float32"), finding(family="mask"), finding(Result.QUIET, family="batch")]
    assert [(one.suite, one.dtype, one.family) for one in cells(findings)] == [
        ("colours", "bfloat16", "hue"),
        ("colours", "bfloat16", "mask"),
        ("colours", "float32", "hue"),
    ]
    assert [(one.dtype, one.results[Result.FOUND]) for one in suite_cells(findings)] == [
        ("bfloat16", 2),
        ("float32", 1),
    ]


HOSTILE = "</title><script>alert('&')</script>\x1b[31m\x00\u202e"


def recorded(findings: list[Finding]) -> dict[str, Any]:
    return document(
        "zenith",
        "ab",
        ["--json"],
        {},
        findings,
        ["a note"],
        conclude(findings),
        started="2026-11-30T10:00:00Z",
        seconds=1,
    )


def test_the_record_keeps_to_its_schema_whatever_names_and_numbers_it_holds() -> None:
    odd = Evidence("t", "r", "c", "f", math.inf, math.nan, math.inf, HOSTILE)
    findings = [
        finding(evidence=odd, name=HOSTILE),
        finding(Result.NOT_COVERED, effect=Effect("t", 0.1, 0.7), reason=HOSTILE),
        finding(Result.QUIET, rulings=(Ruling(OURS, "a", False), Ruling("allclose", "a", True))),
    ]
    made = json.loads(json.dumps(recorded(findings), allow_nan=False))
    jsonschema.Draft202012Validator(schema()).validate(made)
    assert made["total"]["found"] == 1 and made["total"]["smallest_effect"] == 0.7
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema()).validate({**made, "more": 1})


def test_the_plot_is_one_xml_document_in_which_names_are_text() -> None:
    findings = [finding(suite=HOSTILE), finding(Result.QUIET, suite=HOSTILE, rulings=(Ruling(OURS, "a", False),))]
    root = xml.etree.ElementTree.fromstring(svg(cell(findings), suite_cells(findings), HOSTILE))
    assert not [element for element in root.iter() if element.tag.endswith("script")]
    text = "".join(root.itertext())
    assert "alert('&')" in text and not set(text) & set("\x00\x1b\u202e")
    assert "conformance: 1 of 1 faults found, 0 of 1 correct outputs accused" in text
