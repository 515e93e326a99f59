"""junit.xml, replayed from results.json through unittest-xml-reporting's result class.

That class turns test ids into names by splitting at dots, lets control characters through into attributes, and
writes no properties per case; its hooks are static and named in full, so the ones that call them are replaced too.
Its result lists, its grouping by test class, its outcome elements and its CDATA splitting are used as they are.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.runner import _WritelnDecorator
from urllib.parse import unquote
from xml.dom.minidom import Document, Element

from xmlrunner.result import _TestInfo, _XMLTestResult

from conformance.results.audited import audit_cases
from conformance.results.explanation import circumstances, describe, explain, on_which, source_of
from conformance.results.flavour import DEFAULT_FLAVOUR
from conformance.results.output import write_atomically
from conformance.results.planted import Planted, planted_of
from conformance.results.printable import capped, one_line, printable
from conformance.results.record import CaseResult, figure_from_json
from conformance.target import Target, case_id, encoded
from conformance.verdict import Verdict

MESSAGE_LIMIT = 1_000  # characters of a message attribute: viewers show it as a headline
BODY_LIMIT = 32 * 1024  # characters of a body, an output, all properties together: Jenkins cuts at 100,000
VALUE_LIMIT = 1_000  # characters of a property's value
FILE_LIMIT = 30_000_000  # bytes: GitLab refuses larger files
HOSTNAME = "redacted"  # some viewers want the attribute; the machine's name is nobody's business

_OUTCOMES = {None: _TestInfo.SUCCESS, "failure": _TestInfo.FAILURE, "error": _TestInfo.ERROR, "skipped": _TestInfo.SKIP}


class _ReplayedCase(_TestInfo):  # type: ignore[misc]
    """What the result class wants to know of one test, taken from a case of results.json."""

    def __init__(self, case: Mapping[str, Any], backend: str, position: int, limit: int, beside: str) -> None:
        # Not the base's __init__, which reads all this from a live test and its exception.
        verdict = Verdict(case["verdict"])
        suite = encoded(case["suite"])
        self.position = position
        self.class_name = f"{encoded(backend)}.{suite}"
        self.case_name = one_line(case["id"].removeprefix(f"{suite}."))
        self.test_name = f"{self.class_name}[{CaseResult.from_json(case).target.id}]"  # the testsuite's name
        self.test_id = case["id"]
        self.test_description = one_line(case["statement"])
        self.outcome = _OUTCOMES[verdict.junit]
        self.elapsed_time = _plain_seconds(case["duration_s"])
        self.timestamp = case["started"]
        self.test_exception_name = verdict.value
        self.test_exception_message = one_line(f"{verdict}: {case['reason'] or case['statement']}", MESSAGE_LIMIT)
        self.test_exception_info = capped(printable(capped(explain(case), limit)), limit)
        self.properties = _fitting(_properties(case, beside), limit)
        self.stdout = "\n".join(f"{name} = {value}" for name, value in self.properties)
        self.stderr = None
        self.filename = self.lineno = self.doc = None


class _Replay(_XMLTestResult):  # type: ignore[misc]
    """A test result into which recorded cases are put, instead of tests that run."""

    def __init__(self, document: Mapping[str, Any], flavour: str, limit: int) -> None:
        super().__init__(stream=_WritelnDecorator(io.StringIO()), infoclass=_ReplayedCase)
        self._backend = document["run"]["backend"]
        self._beside = _beside_baseline(document)
        self._is_strict = flavour != DEFAULT_FLAVOUR
        self._limit = limit

    def replay(self, cases: Sequence[Mapping[str, Any]]) -> None:
        """Put every case into the list of its outcome; raises ValueError where two would have one name."""
        names: dict[tuple[str, str], str] = {}
        for position, case in enumerate(cases):
            info = self.infoclass(case, self._backend, position, self._limit, self._beside.get(case["id"], ""))
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
        if self._is_strict:
            root.removeAttribute("skipped")
        for name in sorted(groups, key=lambda name: _position(groups[name][0])):
            self._write_testsuite(name, groups[name], document, root)
        return bytes(document.toxml(encoding="utf-8"))  # not toprettyxml: it puts white space between CDATA sections

    def _write_testsuite(self, name: str, tests: Sequence[_ReplayedCase], document: Document, root: Element) -> None:
        element = _child(document, root, "testsuite")
        element.setAttribute("name", name)
        _totals(element, tests)
        element.setAttribute("hostname", HOSTNAME)
        started = [_iso_seconds(test.timestamp) for test in tests if test.timestamp]
        if started:
            element.setAttribute("timestamp", min(started))
        for test in tests:
            self._write_testcase(test, document, element)

    def _write_testcase(self, test: _ReplayedCase, document: Document, testsuite: Element) -> None:
        element = _child(document, testsuite, "testcase")
        element.setAttribute("classname", test.class_name)
        element.setAttribute("name", test.case_name)
        element.setAttribute("time", f"{test.elapsed_time:.3f}")
        if not self._is_strict:
            properties = _child(document, element, "properties")
            for name, value in test.properties:
                entry = _child(document, properties, "property")
                entry.setAttribute("name", name)
                entry.setAttribute("value", value)
        outcome = test.OUTCOME_ELEMENTS[test.outcome]
        if outcome is not None:
            entry = _child(document, element, outcome)
            entry.setAttribute("type", test.test_exception_name)
            entry.setAttribute("message", test.test_exception_message)
            _XMLTestResult._createCDATAsections(document, entry, test.get_error_info())
        output = _child(document, element, "system-out")
        _XMLTestResult._createCDATAsections(document, output, test.stdout)


def junit_xml(document: Mapping[str, Any], flavour: str = DEFAULT_FLAVOUR) -> bytes:
    """The JUnit XML of a results.json's content, in UTF-8, in one of the `FLAVOURS`.

    `classname` is `backend.suite`, `name` the rest of the case's id; together they are unique, and the same in every
    run. Where the file would be larger than `FILE_LIMIT`, all long texts are cut shorter: every case stays in it.
    Raises ValueError where two cases would have one name.
    """
    long = sum(case["verdict"] != Verdict.PASS for case in document["cases"])
    limit = max(MESSAGE_LIMIT, min(BODY_LIMIT, FILE_LIMIT // (2 * max(long, 1))))
    while True:  # the characters are counted only once they are encoded
        replay = _Replay(document, flavour, limit)
        audited = audit_cases(document["audit"]) if "audit" in document else ()
        replay.replay([*document["cases"], *(_planted_case(one) for one in planted_of(document)), *audited])
        data = replay.xml()
        if len(data) <= FILE_LIMIT or limit <= MESSAGE_LIMIT:
            return data
        limit //= 4


def write_junit(document: Mapping[str, Any], path: Path | str, flavour: str = DEFAULT_FLAVOUR) -> None:
    """Write the JUnit XML to `path`, whole or not at all; raises as `junit_xml`, and `OutputError`."""
    write_atomically(Path(path), junit_xml(document, flavour))


def _planted_case(one: Planted) -> dict[str, Any]:
    """A planted fault as a case: it passes where the fault was found, and fails where that makes the run VOID."""
    engine, attention, dtype, *axes = (unquote(part) for part in one.target.split("/"))
    target = Target(engine, attention, dtype, tuple((key, value) for key, _, value in (a.partition("=") for a in axes)))
    verdict = {"found": Verdict.PASS, "missed": Verdict.FAIL}.get(one.fate, Verdict.SKIPPED)
    told = {"found": f"found: {one.reason}", "missed": f"the run is VOID: {one.name} was not found: {one.reason}"}
    return CaseResult(
        id=case_id("planted", f"{one.suite}:{one.role}:{one.fault or 'none'}", target, one.model),
        suite="planted",
        test=one.fault,
        requirement_id="PLANTED",
        statement="A fault that is injected into the engine MUST be found.",
        role=one.role,
        model=one.model,
        target=target,
        verdict=verdict,
        reason=told.get(one.fate, one.reason),
    ).to_json()


def _beside_baseline(document: Mapping[str, Any]) -> dict[str, str]:
    """What each case is beside the baseline, if there is one: a new failure, a known one, or fixed."""
    block = document.get("baseline", {})
    return {
        change["case"]: f"{what}; in the baseline {change['before'] or 'absent'}"
        for name, what in (("new", "new failure"), ("known", "known failure"), ("fixed", "fixed"))
        for change in block.get(name, [])
    }


def _properties(case: Mapping[str, Any], beside: str) -> list[tuple[str, str]]:
    pairs = [
        ("id", case["id"]),
        ("verdict", case["verdict"]),
        *([("baseline", beside)] if beside else []),
        *([("decided", one_line(case["message"]))] if _is_decided_afresh(case) else []),
        ("requirement", f"{case['requirement_id']}: {case['statement']}"),
        *circumstances(case).items(),
    ]
    for judgement in case["judgements"]:
        for item in judgement["figures"]:
            figure = figure_from_json(item, f"case {case['id']!r}, a figure")
            name = f"{judgement['criterion']}{on_which(judgement)}: {figure.name}"
            pairs.append((name, f"{describe(figure)}{source_of(figure, ' ')}"))
    pairs += [(key, case[key]) for key in ("rows_file", "reproduce") if case[key]]
    return pairs


def _is_decided_afresh(case: Mapping[str, Any]) -> bool:
    return any(judgement.get("stage") == "fresh" for judgement in case["judgements"])


def _fitting(pairs: Sequence[tuple[str, str]], limit: int) -> list[tuple[str, str]]:
    """As many leading pairs, made safe to show, as have `limit` characters together, and how many are left out."""
    fitting: list[tuple[str, str]] = []
    for name, value in pairs:
        pair = (one_line(name, VALUE_LIMIT), one_line(value, VALUE_LIMIT))
        limit -= sum(map(len, pair))
        if limit < 0:
            return [*fitting, ("left out", f"{len(pairs) - len(fitting)} more, which results.json has")]
        fitting.append(pair)
    return fitting


def _plain_seconds(value: object) -> float:
    """A time that is written in plain digits: readers take neither NaN, infinities nor a sign."""
    seconds = float(str(value))
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0


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
