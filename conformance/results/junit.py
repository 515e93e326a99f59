"""junit.xml, replayed from results.json through unittest-xml-reporting's result class.

That class turns test ids into names by splitting at dots, lets control characters through into attributes, and
writes no properties per case; its hooks are static and named in full, so the ones that call them are replaced too.
Its result lists, its grouping by test class, its outcome elements and its CDATA splitting are used as they are.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.runner import _WritelnDecorator
from xml.dom.minidom import Document, Element

from xmlrunner.result import _TestInfo, _XMLTestResult

from conformance.results.explanation import circumstances, describe, explain
from conformance.results.output import write_atomically
from conformance.results.printable import capped, one_line, printable
from conformance.results.record import CaseResult, figure_from_json
from conformance.target import encoded
from conformance.verdict import Verdict

MESSAGE_LIMIT = 1_000  # characters of a message attribute: viewers show it as a headline
BODY_LIMIT = 32 * 1024  # characters of a body: GitLab refuses files over 30 MB, Jenkins cuts at 100,000
VALUE_LIMIT = 1_000  # characters of a property's value
HOSTNAME = "redacted"  # some viewers want the attribute; the machine's name is nobody's business

_OUTCOMES = {None: _TestInfo.SUCCESS, "failure": _TestInfo.FAILURE, "error": _TestInfo.ERROR, "skipped": _TestInfo.SKIP}


class _ReplayedCase(_TestInfo):  # type: ignore[misc]
    """What the result class wants to know of one test, taken from a case of results.json."""

    def __init__(self, case: Mapping[str, Any], backend: str, position: int) -> None:
        # Not the base's __init__, which reads all this from a live test and its exception.
        verdict = Verdict(case["verdict"])
        suite = encoded(case["suite"])
        self.position = position
        self.class_name = one_line(f"{backend}.{suite}")
        self.case_name = one_line(case["id"].removeprefix(f"{suite}."))
        self.test_name = f"{self.class_name}[{CaseResult.from_json(case).target.id}]"  # the testsuite's name
        self.test_id = case["id"]
        self.test_description = one_line(case["statement"])
        self.outcome = _OUTCOMES[verdict.junit]
        self.elapsed_time = float(case["duration_s"])
        self.timestamp = case["started"]
        self.test_exception_name = verdict.value
        self.test_exception_message = one_line(f"{verdict}: {case['reason'] or case['statement']}", MESSAGE_LIMIT)
        self.test_exception_info = capped(printable(capped(explain(case), BODY_LIMIT)), BODY_LIMIT)
        self.properties = [(one_line(name), one_line(value, VALUE_LIMIT)) for name, value in _properties(case)]
        self.stdout = "\n".join(f"{name} = {value}" for name, value in self.properties)
        self.stderr = None
        self.filename = self.lineno = self.doc = None


class _Replay(_XMLTestResult):  # type: ignore[misc]
    """A test result into which recorded cases are put, instead of tests that run."""

    def __init__(self, backend: str) -> None:
        super().__init__(stream=_WritelnDecorator(io.StringIO()), infoclass=_ReplayedCase)
        self._backend = backend

    def replay(self, cases: Sequence[Mapping[str, Any]]) -> None:
        """Put every case into the list of its outcome; raises ValueError where two would have one name."""
        names: dict[tuple[str, str], str] = {}
        for position, case in enumerate(cases):
            info = self.infoclass(case, self._backend, position)
            name = (info.class_name, info.case_name)
            if name in names:
                raise ValueError(f"cases {names[name]!r} and {case['id']!r} have one JUnit name, {'.'.join(name)}")
            names[name] = case["id"]
            self.testsRun += 1
            if info.outcome == info.SUCCESS:
                self.successes.append(info)
            elif info.outcome == info.FAILURE:
                self.failures.append((info, info.get_error_info()))
            elif info.outcome == info.ERROR:
                self.errors.append((info, info.get_error_info()))
            else:
                self.skipped.append((info, info.test_exception_message))

    def xml(self) -> bytes:
        """The whole file, in UTF-8."""
        groups = {name: sorted(tests, key=_position) for name, tests in self._get_info_by_testcase().items()}
        document = Document()
        root = document.createElement("testsuites")
        document.appendChild(root)
        _totals(root, [info for tests in groups.values() for info in tests])
        for name in sorted(groups, key=lambda name: _position(groups[name][0])):
            self._report_testsuite(name, groups[name], document, root, None)
        return bytes(document.toxml(encoding="utf-8"))  # not toprettyxml: it puts white space between CDATA sections

    @staticmethod
    def _report_testsuite(
        suite_name: str,
        tests: Sequence[_ReplayedCase],
        xml_document: Document,
        parentElement: Element,
        properties: None,
    ) -> Element:
        element = _child(xml_document, parentElement, "testsuite")
        element.setAttribute("name", suite_name)
        _totals(element, tests)
        element.setAttribute("hostname", HOSTNAME)
        started = [_iso_seconds(test.timestamp) for test in tests if test.timestamp]
        if started:
            element.setAttribute("timestamp", min(started))
        for test in tests:
            _Replay._report_testcase(test, element, xml_document)
        return element

    @staticmethod
    def _report_testcase(test_result: _ReplayedCase, xml_testsuite: Element, xml_document: Document) -> None:
        element = _child(xml_document, xml_testsuite, "testcase")
        element.setAttribute("classname", test_result.class_name)
        element.setAttribute("name", test_result.case_name)
        element.setAttribute("time", f"{test_result.elapsed_time:.3f}")
        properties = _child(xml_document, element, "properties")
        for name, value in test_result.properties:
            entry = _child(xml_document, properties, "property")
            entry.setAttribute("name", name)
            entry.setAttribute("value", value)
        outcome = test_result.OUTCOME_ELEMENTS[test_result.outcome]
        if outcome is not None:
            entry = _child(xml_document, element, outcome)
            entry.setAttribute("type", test_result.test_exception_name)
            entry.setAttribute("message", test_result.test_exception_message)
            _XMLTestResult._createCDATAsections(xml_document, entry, test_result.get_error_info())
        output = _child(xml_document, element, "system-out")
        _XMLTestResult._createCDATAsections(xml_document, output, test_result.stdout)


def junit_xml(document: Mapping[str, Any]) -> bytes:
    """The JUnit XML of a results.json's content, in UTF-8.

    `classname` is `backend.suite`, `name` the rest of the case's id; together they are unique, and the same in every
    run. Raises ValueError where two cases would have one name.
    """
    replay = _Replay(document["run"]["backend"])
    replay.replay(document["cases"])
    return replay.xml()


def write_junit(document: Mapping[str, Any], path: Path | str) -> None:
    """Write the JUnit XML to `path`, whole or not at all; raises as `junit_xml`, and `OutputError`."""
    write_atomically(Path(path), junit_xml(document))


def _properties(case: Mapping[str, Any]) -> list[tuple[str, str]]:
    pairs = [
        ("id", case["id"]),
        ("verdict", case["verdict"]),
        ("requirement", f"{case['requirement_id']}: {case['statement']}"),
        *circumstances(case).items(),
    ]
    for judgement in case["judgements"]:
        for item in judgement["figures"]:
            figure = figure_from_json(item, f"case {case['id']!r}, a figure")
            source = f" [{figure.provenance}]" if figure.provenance else ""
            pairs.append((f"{judgement['criterion']}: {figure.name}", f"{describe(figure)}{source}"))
    pairs += [(key, case[key]) for key in ("rows_file", "reproduce") if case[key]]
    return pairs


def _totals(element: Element, tests: Sequence[_ReplayedCase]) -> None:
    element.setAttribute("tests", str(len(tests)))
    for name, outcome in (("failures", _TestInfo.FAILURE), ("errors", _TestInfo.ERROR), ("skipped", _TestInfo.SKIP)):
        element.setAttribute(name, str(sum(test.outcome == outcome for test in tests)))
    element.setAttribute("time", f"{sum(test.elapsed_time for test in tests):.3f}")


def _child(document: Document, parent: Element, name: str) -> Element:
    """A new element on a line of its own: the file stays readable, and diffs stay small."""
    parent.appendChild(document.createTextNode("\n"))
    element = document.createElement(name)
    parent.appendChild(element)
    return element


def _iso_seconds(text: str) -> str:
    """The time without fraction and zone: JUnit's schema knows neither; it is UTC."""
    return text[: len("2026-11-30T10:00:00")]


def _position(info: _ReplayedCase) -> int:
    return info.position
