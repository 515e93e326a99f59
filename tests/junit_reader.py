"""junit.xml written by the real writer and read back by a reader that forgives nothing; results to write into it."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from recorded import VISION, document, result

from conformance.judgement import Figure
from conformance.results.junit import junit_xml
from conformance.results.record import CaseResult
from conformance.verdict import Verdict

etree: Any = importlib.import_module("lxml.etree")  # it has no types

EVERY_VERDICT = [result(verdict, test=f"test_{verdict}".lower()) for verdict in Verdict]
SPREAD = [*EVERY_VERDICT, result(target=VISION), result(suite="reward", model="Qwen2.5-0.5B.v1")]
NASTY = "\x00\x1b[31m ]]> <![CDATA[ &#0; \ud800 \ufffe \r\n\t\x85\u2028 'q' \"q\" \U0001f600 \u202e"


def read(data: bytes) -> Any:
    """The file's root, as a reader that forgives nothing sees it."""
    return etree.fromstring(data, etree.XMLParser(recover=False, huge_tree=False, resolve_entities=False))


def written(*results: CaseResult, flavour: str = "properties") -> Any:
    return read(junit_xml(document(results), flavour))


def only_case(recorded: CaseResult, flavour: str = "properties") -> Any:
    (case,) = written(recorded, flavour=flavour).iter("testcase")
    return case


def hostile(verdict: Verdict = Verdict.FAIL, **changes: Any) -> CaseResult:
    texts = dict.fromkeys(("reason", "message", "statement", "requirement_id", "reproduce", "log_tail"), NASTY)
    made = result(verdict, suite=NASTY, model=NASTY, figures=(Figure(NASTY, 1.0, 2.0, "max", NASTY),), quirks=(NASTY,))
    return dataclasses.replace(made, **{**texts, **changes})
