"""junit.xml as its readers see it: what has gone wrong for others between xmlrunner, Jenkins, GitLab and GitHub.

Every file comes from the real writer, and is read back by lxml and by junitparser.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from junit_reader import SPREAD, etree, hostile, only_case, read, written
from recorded import FINISHED, SDPA, VISION, document, header, result

from conformance.judgement import Figure, Judgement
from conformance.results import junit
from conformance.results.document import build_document
from conformance.results.flavour import FLAVOURS
from conformance.results.junit import BODY_LIMIT, MESSAGE_LIMIT, junit_xml, write_junit
from conformance.results.output import OutputError
from conformance.results.record import CaseResult
from conformance.results.redact import Redactor
from conformance.results.validation import document_faults
from conformance.verdict import Verdict

HERE = Path(__file__).parent


# Names and grouping.


def test_names_with_dots_stay_whole() -> None:
    case = only_case(result(suite="embedding", model="Qwen2.5-0.5B.v1"))
    assert case.get("classname") == "cpu.embedding"
    assert case.get("name") == "test_vectors_agree[transformers/sdpa/bfloat16][Qwen2.5-0.5B.v1]"


def test_every_name_is_there_and_is_ascii_for_readers_that_demand_it() -> None:
    for element in written(*SPREAD, hostile()).iter("testsuite", "testcase"):
        assert element.get("name") and element.get("name").isascii()
        assert element.get("classname", "x").isascii()


def test_a_backend_of_any_name_leaves_the_classname_ascii_and_in_two_parts() -> None:
    built = build_document(header([result()], backend="caf\xe9 \x00"), [result()], finished=FINISHED)
    (case,) = read(junit_xml(built)).iter("testcase")
    assert case.get("classname") == "caf%C3%A9%20%00.embedding"


def test_names_that_were_redacted_are_still_names() -> None:
    recorded = result(model="margarethe-7b")
    built = document([recorded], redact=Redactor(user="margarethe"))
    (case,) = read(junit_xml(built)).iter("testcase")
    assert case.get("name").endswith("[<user>-7b]") and document_faults(built) == []


def test_cases_that_one_reader_would_take_for_one_are_refused() -> None:
    built = document([result(), result(test="test_two")])
    built["cases"][1]["id"] = built["cases"][0]["id"]
    with pytest.raises(ValueError, match="have one JUnit name"):
        junit_xml(built)


@pytest.mark.parametrize("verdict", list(Verdict))
def test_the_number_of_testcases_and_their_grouping_do_not_depend_on_outcomes(verdict: Verdict) -> None:
    passing = [result(test=f"test_{index}", target=target) for index in range(3) for target in (SDPA, VISION)]
    changed = [
        result(verdict if index % 2 else Verdict.PASS, test=one.test, target=one.target)
        for index, one in enumerate(passing)
    ]

    def places(results: list[CaseResult]) -> list[tuple[str, str, str]]:
        cases = written(*results).iter("testcase")
        return [(case.getparent().get("name"), case.get("classname"), case.get("name")) for case in cases]

    assert places(changed) == places(passing)
    assert len(places(changed)) == 6


def test_a_model_that_cannot_be_loaded_leaves_each_of_its_cases_in_its_place() -> None:
    # xmlrunner reports one `_ErrorHolder` without a classname, of the year 1, and loses the class's tests.
    tail = "driver 1.2.3: firmware 7 is too old"
    broken = [
        result(Verdict.ERROR, test=f"test_{i}", started="", duration_s=0.0, reason="loading failed", log_tail=tail)
        for i in range(3)
    ]
    (suite,) = written(*broken)
    assert (suite.get("tests"), suite.get("errors"), suite.get("timestamp")) == ("3", "3", None)
    for case in suite.iter("testcase"):
        assert case.get("classname") == "cpu.embedding"
        assert tail in case.findtext("error")


# Outcomes.


@pytest.mark.parametrize(
    ("verdict", "element"),
    [
        (Verdict.FAIL, "failure"),
        (Verdict.XPASS, "failure"),  # xmlrunner calls an unexpected success an error
        (Verdict.ERROR, "error"),
        (Verdict.CRASH, "error"),
        (Verdict.NOT_RUN, "error"),
        (Verdict.XFAIL, "skipped"),
        (Verdict.SKIPPED, "skipped"),
        (Verdict.WAIVED, "skipped"),
    ],
)
def test_failures_errors_and_skips_are_told_apart_and_the_verdict_leads_the_message(
    verdict: Verdict, element: str
) -> None:
    (outcome,) = only_case(result(verdict, reason="issue 7 says so")).iter("failure", "error", "skipped")
    assert (outcome.tag, outcome.get("type"), outcome.get("message")) == (
        element,
        str(verdict),
        f"{verdict}: issue 7 says so",
    )


def test_an_expected_failure_says_the_same_in_every_run() -> None:
    # xmlrunner writes the addresses of a traceback object there.
    texts = {etree.tostring(only_case(result(Verdict.XFAIL, reason="expected: issue 7"))) for _ in range(2)}
    assert len(texts) == 1 and b"0x" not in texts.pop()


def test_a_case_without_a_reason_still_says_what_it_is_about() -> None:
    (outcome,) = only_case(result(Verdict.NOT_SUPPORTED, reason="")).iter("skipped")
    assert outcome.get("message").startswith("NOT_SUPPORTED: Each vector MUST equal")


def test_a_run_of_skipped_cases_alone_counts_them_and_is_no_success() -> None:
    built = document([result(Verdict.ENVIRONMENT, test=f"test_{i}") for i in range(3)])
    root = read(junit_xml(built))
    assert [root.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["3", "0", "0", "3"]
    assert built["run"]["exit_code"] == 5


def test_an_interrupted_run_lists_what_has_a_verdict_and_counts_no_more() -> None:
    done, missing = result(), result(test="test_two")
    built = build_document(header([done, missing]), [done], finished=FINISHED, interrupted=True)
    root = read(junit_xml(built))
    assert root.get("tests") == "1" == str(len(list(root.iter("testcase"))))


# Texts.


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_hostile_text_survives_in_every_place_where_text_stands(flavour: str) -> None:
    case = only_case(hostile(), flavour)
    shown = r"\x00 ]]> <![CDATA[ &#0; \ud800 \ufffe"
    assert shown in case.findtext("failure") and shown in case.findtext("system-out")
    assert shown in case.find("failure").get("message")
    assert "\U0001f600" in case.findtext("failure")
    assert r"\u202e" in case.findtext("failure")


@pytest.mark.parametrize("text", ["]]>", "]]", "]]>]]>", "a]]>b", "]]]>>", "]" * 50 + ">" * 50, "<![CDATA[x]]>"])
def test_the_end_of_a_cdata_section_inside_a_text_ends_nothing(text: str) -> None:
    case = only_case(result(Verdict.FAIL, message=f"{text}|", reproduce=text, log_tail=text))
    assert f"{text}|" in case.findtext("failure")
    assert case.findtext("failure").endswith(f"last output of the worker:\n{text}")
    assert f"reproduce = {text}" in case.findtext("system-out")


def test_attributes_hold_one_line_since_readers_fold_their_line_ends() -> None:
    data = junit_xml(document([result(Verdict.FAIL, reason="one\ntwo\r\n\tthree")]))
    assert read(data).find(".//failure").get("message") == "FAIL: one two three"
    assert b"&#10;" not in data and b"&#xA;" not in data


def test_a_driver_s_last_words_are_in_the_error() -> None:
    case = only_case(result(Verdict.CRASH, log_tail="\x1b[31mgpu hang\x1b[0m: ecode 9 ]]> \x00\nreset\n"))
    assert case.findtext("error").endswith("last output of the worker:\ngpu hang: ecode 9 ]]> \\x00\nreset")


@pytest.mark.parametrize("where", ["message", "log_tail", "reason", "reproduce", "statement"])
def test_a_huge_text_is_cut_and_says_so(where: str) -> None:
    case = only_case(result(Verdict.FAIL, **{where: "begin" + "x" * 3_000_000 + "end"}))
    assert len(case.findtext("failure")) <= BODY_LIMIT + 100
    assert len(case.findtext("system-out")) <= BODY_LIMIT + 5_000
    assert max(len(value) for each in case.iter() for value in each.attrib.values()) <= MESSAGE_LIMIT
    headline = case.find("failure").get("message")
    assert headline.endswith(" ...") if where == "reason" else "left out" in case.findtext("failure")


def test_figures_without_end_are_cut_in_number_and_the_rest_is_counted() -> None:
    many = tuple(Figure(f"figure {index}", 1.0, 2.0, "max", "measured " * 20) for index in range(5_000))
    case = only_case(result(Verdict.PASS, figures=many))
    names = [each.get("name") for each in case.iter("property")]
    assert names[-1] == "left out" and 10 < len(names) < 1_000
    assert re.fullmatch(r"\d+ more, which results.json has", case.findall(".//property")[-1].get("value"))
    assert len(case.findtext("system-out")) < 2 * BODY_LIMIT


def test_many_failures_share_the_size_that_ci_systems_take(monkeypatch: pytest.MonkeyPatch) -> None:
    results = [result(Verdict.FAIL, test=f"test_{i}", message="\U0001f600" * 20_000) for i in range(20)]
    built = document(results)
    assert len(junit_xml(built)) > 1_000_000
    monkeypatch.setattr(junit, "FILE_LIMIT", 300_000)
    data = junit_xml(built)
    assert len(data) <= 300_000
    root = read(data)
    assert len(list(root.iter("testcase"))) == int(root.get("failures")) == 20
    assert all("characters left out" in each.text for each in root.iter("failure"))


# Times.


def test_a_time_stamp_is_the_earliest_of_the_cases_and_none_where_none_was_started() -> None:
    late, early = "2026-11-30T10:00:05.250+00:00", "2026-11-30T10:00:01Z"
    (suite,) = written(result(started=late), result(test="test_two", started=early))
    assert suite.get("timestamp") == "2026-11-30T10:00:01"
    (idle,) = written(result(Verdict.ENVIRONMENT))
    assert idle.get("timestamp") is None


# The file.


def test_the_file_is_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    program = (
        f"import sys; sys.path[:0] = {[str(HERE), str(HERE.parent)]!r}\n"
        "from recorded import document, result\n"
        "from conformance.results.junit import write_junit\n"
        "from conformance.verdict import Verdict\n"
        "built = document([result(Verdict.FAIL, message='\\u0394\\u6a21\\U0001f600')])\n"
        f"write_junit(built, {str(tmp_path / 'j.xml')!r})\n"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, timeout=60)
    data = (tmp_path / "j.xml").read_bytes()
    assert data.startswith(b'<?xml version="1.0" encoding="utf-8"?>')
    assert "\u0394\u6a21\U0001f600" in data.decode("utf-8")
    assert "\u0394\u6a21\U0001f600" in read(data).find(".//failure").text


def test_a_file_that_cannot_be_written_leaves_the_old_one_and_never_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    write_junit(document([result()]), path)
    before = path.read_bytes()
    built = document([result(Verdict.FAIL, message="x" * 100_000)])
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OutputError, match="may not grow"):
            write_junit(built, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["junit.xml"]


def test_nothing_outside_the_results_is_told() -> None:
    root = written(*SPREAD)
    assert not {name for each in root.iter() for name in each.attrib} & {"file", "line", "url", "log"}
    assert {suite.get("hostname") for suite in root.iter("testsuite")} == {"redacted"}


# Another reader.


def test_junitparser_reads_back_every_outcome_name_time_and_figure() -> None:
    if "TOX_ENV_NAME" not in os.environ:  # the test environments have it
        pytest.importorskip("junitparser")
    parser: Any = importlib.import_module("junitparser.xunit2")
    recorded = [*SPREAD, hostile()]
    suites = list(parser.JUnitXml.fromstring(junit_xml(document(recorded))))
    assert sum(suite.tests for suite in suites) == len(recorded)
    cases = {f"{case.classname}.{case.name}": case for suite in suites for case in suite}
    assert set(cases) == {f"cpu.{one.id}" for one in recorded}
    for one in recorded:
        case = cases[f"cpu.{one.id}"]
        outcomes = [type(each).__name__.lower() for each in case.result]
        assert outcomes == ([one.verdict.junit] if one.verdict.junit else [])
        assert case.time == pytest.approx(one.duration_s)
        said = {each.name: each.value for each in case.properties()}
        assert said["verdict"] == str(one.verdict)
        if one.judgements and one.suite == "embedding":
            assert said["vector.agrees: pooled ratio"] == "1 <= 1.25 (0.8 of the limit) [measured on eight devices]"
        assert "verdict = " in case.system_out


def test_what_a_judgement_adds_comes_back_under_its_criterion() -> None:
    both = (
        Judgement("tokens.equal", Verdict.PASS, "Equal.", (Figure("differing tokens", 0.0, 0.0),)),
        Judgement("vector.agrees", Verdict.FAIL, "Off.", (Figure("pooled ratio", float("nan"), 1.25),)),
    )
    case = only_case(result(Verdict.FAIL, judgements=both))
    said = {each.get("name"): each.get("value") for each in case.iter("property")}
    assert said["tokens.equal: differing tokens"] == "0 <= 0"
    assert said["vector.agrees: pooled ratio"] == "nan is not <= 1.25"
