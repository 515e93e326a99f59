"""The strict flavour of junit.xml is what the Jenkins xUnit plug-in's schema accepts; the default one is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from junit_reader import SPREAD, etree, hostile, only_case, written
from recorded import result

from conformance.judgement import Figure
from conformance.names import UsageError
from conformance.results.flavour import FLAVOURS, known_flavour
from conformance.results.record import CaseResult
from conformance.verdict import Verdict

JENKINS = etree.XMLSchema(etree.parse(str(Path(__file__).parent / "jenkins_xunit.xsd")))


@pytest.mark.parametrize(
    "results", [SPREAD, [], [hostile()], [hostile(Verdict.ENVIRONMENT)]], ids=["every verdict", "none", "nasty", "skip"]
)
def test_the_strict_flavour_is_valid_for_the_jenkins_xunit_plug_in(results: list[CaseResult]) -> None:
    root = written(*results, flavour="strict")
    assert JENKINS.validate(root), JENKINS.error_log
    assert len(list(root.iter("testcase"))) == len(results)


def test_the_same_schema_refuses_the_default_flavour() -> None:
    assert not JENKINS.validate(written(*SPREAD))
    said = str(JENKINS.error_log)
    assert "Element 'properties': This element is not expected" in said
    assert "Element 'testsuites', attribute 'skipped'" in said


@pytest.mark.parametrize(
    "spoil",
    [
        lambda root: root.set("skipped", "1"),
        lambda root: root.set("time", "nan"),
        lambda root: root.set("time", "-1.0"),
        lambda root: root.set("time", "1e5"),
        lambda root: root[0].set("line", "618"),
        lambda root: root[0].attrib.pop("name"),
        lambda root: root[0].attrib.pop("failures"),
        lambda root: root[0][0].set("file", "x.py"),
        lambda root: root[0][0].set("timestamp", "0001-01-01T00:00:00"),
        lambda root: root[0][0].attrib.pop("name"),
        lambda root: etree.SubElement(root[0][0], "properties"),
        lambda root: etree.SubElement(root, "system-out"),
        lambda root: etree.SubElement(root[0][0][0], "b"),
    ],
)
def test_the_schema_refuses_each_thing_that_the_strict_flavour_must_not_have(spoil: Any) -> None:
    root = written(result(Verdict.FAIL), flavour="strict")
    assert JENKINS.validate(root)
    spoil(root)
    assert not JENKINS.validate(root)


def test_the_flavours_differ_in_nothing_but_what_the_schema_refuses() -> None:
    full, strict = written(*SPREAD), written(*SPREAD, flavour="strict")
    del full.attrib["skipped"]
    for properties in list(full.iter("properties")):
        properties.getparent().remove(properties)

    def content(root: Any) -> list[Any]:
        return [(each.tag, dict(each.attrib), (each.text or "").strip()) for each in root.iter()]

    assert content(full) == content(strict)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_the_properties_say_is_in_the_output_of_every_flavour(flavour: str) -> None:
    recorded = result(Verdict.FAIL, figures=(Figure("pooled ratio", 2.5, 1.25, "max", "measured on eight devices"),))
    output = only_case(recorded, flavour).findtext("system-out").splitlines()
    said = [f"{each.get('name')} = {each.get('value')}" for each in only_case(recorded).iter("property")]
    assert output == said and len(said) > 5
    assert "vector.agrees: pooled ratio = 2.5 > 1.25 (2 of the limit) [measured on eight devices]" in output


def test_an_unknown_flavour_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown JUnit flavour 'strickt'; did you mean 'strict'"):
        known_flavour("strickt")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0.000"),
        (1e-9, "0.000"),
        (1234567.8912, "1234567.891"),  # no thousands separator, which Surefire writes and others cannot read
        (1e20, "100000000000000000000.000"),
        (float("nan"), "0.000"),
        (float("inf"), "0.000"),
        (-3.0, "0.000"),  # a clock that jumped
    ],
)
def test_times_are_plain_digits_in_every_place(seconds: float, shown: str) -> None:
    root = written(result(duration_s=seconds), flavour="strict")
    assert [each.get("time") for each in root.iter("testsuites", "testsuite", "testcase")] == [shown] * 3
    assert JENKINS.validate(root)
