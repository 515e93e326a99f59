"""results.json: what it holds follows from the results, and its schema refuses everything else."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import FINISHED, VISION, document, figures, header, result, texts

from conformance.judgement import Figure
from conformance.results.document import EXIT_MEANINGS, build_document, exit_code, write_document
from conformance.results.validation import DocumentError, document_faults, read_document, schema
from conformance.verdict import Verdict

EVERY_VERDICT = [result(verdict, test=f"test_{verdict}".lower()) for verdict in Verdict]


def test_the_schema_is_a_valid_schema_of_its_draft() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


def test_the_schema_closes_every_object_but_the_open_ones() -> None:
    def objects(node: Any) -> list[dict[str, Any]]:
        children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
        found = [node] if isinstance(node, dict) and node.get("type") == "object" else []
        return found + [item for child in children for item in objects(child)]

    opened = [item for item in objects(schema()) if "additionalProperties" not in item]
    assert [item["description"][:14] for item in opened] == ["What was known"]  # the facts, as they are given


def test_a_document_of_every_verdict_fits_the_schema() -> None:
    assert document_faults(document(EVERY_VERDICT)) == []


@settings(max_examples=40, deadline=None)
@given(verdict=st.sampled_from(list(Verdict)), held=st.lists(figures, max_size=3), message=texts)
def test_any_result_makes_a_valid_document(verdict: Verdict, held: list[Figure], message: str) -> None:
    one = result(verdict, target=VISION, figures=tuple(held), message=message, reason=message)
    broken = [figure.name for figure in held if not figure.holds]
    faults = document_faults(json.loads(json.dumps(document([one]), allow_nan=False)))
    # A criterion that passes a figure outside its limit contradicts itself, and the reader says so.
    assert bool(faults) == bool(broken and verdict is Verdict.PASS)


def _change(path: list[Any], value: Any) -> Callable[[dict[str, Any]], None]:
    def change(broken: dict[str, Any]) -> None:
        place: Any = broken
        for step in path[:-1]:
            place = place[step]
        if value is KeyError:
            del place[path[-1]]
        else:
            place[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_change(["schema_version"], 2), "$.schema_version"),
        (_change(["more"], 1), "'more' was unexpected"),
        (_change(["run", "more"], 1), "'more' was unexpected"),
        (_change(["run", "counters", "references_computed"], KeyError), "'references_computed' is a required"),
        (_change(["run", "profile", "sha256"], "abc"), "$.run.profile.sha256"),
        (_change(["run", "started"], "yesterday"), "$.run.started"),
        (_change(["run", "exit_code"], 3), "$.run.exit_code"),
        (_change(["run", "exit_code"], 0), "the verdicts make it 1"),
        (_change(["run", "planned"], 3), "$.run.planned"),
        (_change(["run", "planned"], 1), "$.run.planned"),
        (_change(["run", "interrupted"], True), "the verdicts make it 2"),
        (_change(["summary", "verdicts"], {"PASS": 2}), "$.summary: differs"),
        (_change(["summary", "verdicts"], {"PASSED": 2}), "PASSED"),
        (_change(["summary", "suites", 0, "worst", "margin"], 0.1), "$.summary: differs"),
        (_change(["not_covered"], [""]), "$.not_covered"),
        (_change(["cases", 0, "verdict"], "OK"), "$.cases[0].verdict"),
        (_change(["cases", 0, "statement"], KeyError), "'statement' is a required"),
        (_change(["cases", 0, "target", "device"], "cpu"), "'device' was unexpected"),
        (_change(["cases", 0, "judgements", 0, "verdict"], "CRASH"), "$.cases[0].judgements[0].verdict"),
        (_change(["cases", 0, "judgements", 0, "figures", 0, "value"], "1"), "$.cases[0].judgements[0].figures[0]"),
        (_change(["cases", 0, "judgements", 0, "figures", 0, "value"], 9.0), "exceed their limits"),
        (_change(["cases", 0, "reason"], "two\nlines"), "$.cases[0].reason"),
        (_change(["cases", 0, "rows_file"], "../elsewhere"), "$.cases[0].rows_file"),
        (_change(["cases", 0, "duration_s"], -1), "$.cases[0].duration_s"),
        (_change(["cases", 0, "effective", "kernels", "aten::flash"], -1), "aten::flash"),
        (_change(["cases", 1, "id"], result().id), "occur more than once"),
    ],
)
def test_a_broken_document_is_refused_with_its_place(
    change: Callable[[dict[str, Any]], None], said: str, tmp_path: Path
) -> None:
    broken = copy.deepcopy(document([result(), result(Verdict.FAIL, test="test_other")]))
    change(broken)
    path = tmp_path / "results.json"
    write_document(broken, path)
    with pytest.raises(DocumentError) as caught:
        read_document(path)
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["", "[", '{"schema_version": NaN}', "\ufeff{}", "[]"])
def test_what_is_no_document_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(text, "utf-8")
    with pytest.raises(DocumentError, match=r"results\.json"):
        read_document(path)


def test_a_document_is_read_back_as_it_was_built(tmp_path: Path) -> None:
    built = document([result(message="\ud800 \x1b[31m \U0001f600"), *EVERY_VERDICT[1:]])
    write_document(built, tmp_path / "results.json")
    assert read_document(tmp_path / "results.json") == built
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ("PASS", 0),
        ("PASS SKIPPED NOT_SUPPORTED WAIVED XFAIL", 0),
        ("XFAIL", 0),
        ("PASS FAIL", 1),
        ("PASS UNDERPOWERED", 1),
        ("PASS XPASS", 1),
        ("PASS INTERMITTENT", 1),
        ("PASS ERROR", 1),
        ("PASS TIMEOUT ENVIRONMENT", 1),
        ("CRASH NOT_RUN", 1),
        ("", 5),
        ("ENVIRONMENT", 5),
        ("SKIPPED NOT_SUPPORTED", 5),
        ("NOT_RUN", 5),
        ("PASS ENVIRONMENT", 6),
        ("PASS NOT_RUN", 6),
    ],
)
def test_the_exit_code_follows_from_the_verdicts(verdicts: str, code: int) -> None:
    results = [result(Verdict(name), test=f"test_{name}") for name in verdicts.split()]
    assert exit_code(results) == code
    assert exit_code(results, interrupted=True) == 2
    assert {code, 2} <= set(EXIT_MEANINGS)


def test_what_the_engine_refused_is_incomplete_and_what_the_plan_knew_is_rightly_skipped() -> None:
    known = result(Verdict.NOT_SUPPORTED, test="test_two", reason="no encoder")
    refused = result(Verdict.NOT_SUPPORTED, test="test_three", reason="no colours", attempts=1)
    assert (exit_code([result(), known]), exit_code([result(), known, refused])) == (0, 6)
    assert exit_code([known, refused]) == 5
    built = document([result(), known, refused])
    assert built["not_covered"][:2] == [
        "1 case is NOT_SUPPORTED: no encoder.",
        "1 case was refused by the engine although the profile claims it: no colours.",
    ]
    assert document_faults(built) == []
    built["run"]["exit_code"] = 0
    assert document_faults(built) == ["$.run.exit_code: is 0; the verdicts make it 6"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(list(Verdict)), max_size=6))
def test_exit_code_zero_means_that_something_passed_and_nothing_went_wrong(verdicts: list[Verdict]) -> None:
    results = [result(verdict, test=f"test_{index}") for index, verdict in enumerate(verdicts)]
    good = {Verdict.PASS, Verdict.XFAIL}
    harmless = {*good, Verdict.SKIPPED, Verdict.NOT_SUPPORTED, Verdict.WAIVED}
    assert (exit_code(results) == 0) == (bool(set(verdicts) & good) and set(verdicts) <= harmless)


def test_the_summary_counts_per_suite_and_target_and_names_the_worst_figure() -> None:
    close = Figure("pooled ratio", 1.2, 1.25)
    results = [
        result(),
        result(Verdict.FAIL, test="test_two", target=VISION, figures=(Figure("pooled ratio", 5.0, 1.25),)),
        result(suite="reward", figures=(close, Figure("bias", math.nan))),
        result(Verdict.ENVIRONMENT, suite="reward", test="test_two"),
    ]
    summary = document(results)["summary"]
    assert summary["verdicts"] == {"PASS": 2, "FAIL": 1, "ENVIRONMENT": 1}
    assert [(one["suite"], one["verdicts"]) for one in summary["suites"]] == [
        ("embedding", {"PASS": 1, "FAIL": 1}),
        ("reward", {"PASS": 1, "ENVIRONMENT": 1}),
    ]
    assert [(one["suite"], one["target"]) for one in summary["groups"]] == [
        ("embedding", "transformers/sdpa/bfloat16"),
        ("embedding", "transformers/eager/float32/vision=50%25/half"),
        ("reward", "transformers/sdpa/bfloat16"),
    ]
    assert summary["suites"][0]["worst"]["case"] == results[1].id
    assert summary["suites"][0]["worst"]["margin"] == pytest.approx(4.0)
    assert summary["suites"][1]["worst"]["margin"] == pytest.approx(0.96)


def test_a_document_says_what_a_pass_does_not_cover() -> None:
    absent = result(Verdict.ENVIRONMENT, test="test_two", reason="no XPU device is visible")
    told = document([result(), absent], not_covered=["Nothing is said of speed."])["not_covered"]
    assert told == [
        "1 case is ENVIRONMENT: no XPU device is visible.",
        "Only these models were run: qwen3-0.6. Other weights and sizes are not covered.",
        "Only these targets were run: transformers/sdpa/bfloat16. Nothing is said of any other.",
        "Nothing is said of speed.",
    ]


def test_reasons_are_counted_only_where_there_are_several() -> None:
    late = [result(Verdict.NOT_RUN, test=f"test_{index}", reason="too late") for index in range(3)]
    given_up = result(Verdict.NOT_RUN, test="test_x", reason="given up")
    assert document(late)["not_covered"][0] == "3 cases are NOT_RUN: too late."
    assert document([*late, given_up])["not_covered"][0] == "4 cases are NOT_RUN: too late (3); given up (1)."


def test_cases_come_in_the_order_of_the_plan() -> None:
    results = [result(test=f"test_{name}") for name in "bac"]
    built = build_document(header(results), results[::-1], finished=FINISHED)
    assert [case["id"] for case in built["cases"]] == [one.id for one in results]


def test_results_that_are_not_those_of_the_plan_are_refused() -> None:
    one, two = result(), result(test="test_two")
    for planned, results, said in (
        ([one, two], [one], "1 cases have no result"),
        ([one], [one, two], "1 cases were not planned"),
        ([one], [one, one], "1 cases have two results"),
    ):
        with pytest.raises(ValueError, match=said):
            build_document(header(planned), results, finished=FINISHED)


def test_an_interrupted_run_makes_a_document_of_what_was_finished() -> None:
    one, two = result(), result(test="test_two")
    built = build_document(header([one, two]), [one], finished=FINISHED, interrupted=True)
    assert document_faults(built) == []
    assert (built["run"]["exit_code"], built["run"]["planned"], len(built["cases"])) == (2, 2, 1)
    assert built["not_covered"][0] == "1 of 2 planned cases have no result."


def test_redaction_reaches_every_part_and_keeps_the_document_consistent() -> None:
    def redact(value: Any) -> Any:
        return json.loads(json.dumps(value).replace("qwen3-0.6", "<model>").replace("a processor", "<device>"))

    built = document([result(), result(Verdict.FAIL, test="test_two")], redact=redact, not_covered=["a processor"])
    assert "qwen3" not in json.dumps(built)
    assert "a processor" not in json.dumps(built)
    assert document_faults(built) == []
