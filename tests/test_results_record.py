"""A case's result survives JSON, and what is no recorded result is refused."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import VISION, figures, result, texts

from conformance.judgement import Figure, Judgement
from conformance.results.explanation import circumstances
from conformance.results.margin import margin, worst_margin
from conformance.results.plain import RecordError, to_plain
from conformance.results.record import CaseResult
from conformance.runner import Effective
from conformance.verdict import Verdict


def _same(left: CaseResult, right: CaseResult) -> bool:
    # NaN is not equal to itself; its text is.
    return repr(left) == repr(right)


@settings(max_examples=50, deadline=None)
@given(verdict=st.sampled_from(list(Verdict)), held=st.lists(figures, max_size=3), message=texts, log=texts)
def test_a_result_survives_json(verdict: Verdict, held: list[Figure], message: str, log: str) -> None:
    before = result(verdict, target=VISION, figures=tuple(held), message=message, log_tail=log, rows_file="rows/a")
    text = json.dumps(before.to_json(), allow_nan=False)
    assert _same(CaseResult.from_json(json.loads(text)), before)


@pytest.mark.parametrize("cached", [None, 0, 96])
def test_tokens_from_a_cache_are_kept_where_they_are_known(cached: int | None) -> None:
    ran = Effective("float32", "plain", {"toy::paged": 4}, 4, 1, evidence="resolved", cached_tokens=cached)
    data = result(effective=ran).to_json()
    assert CaseResult.from_json(data).effective == ran
    assert ("96 prompt tokens came from a cache" in circumstances(data)["kernels"]) is (cached == 96)


def test_numbers_that_json_lacks_are_written_as_words() -> None:
    held = tuple(Figure(name, value) for name, value in (("a", math.nan), ("b", math.inf), ("c", -math.inf)))
    recorded = result(figures=held).to_json()["judgements"][0]["figures"]
    assert [figure["value"] for figure in recorded] == ["nan", "inf", "-inf"]


def test_a_result_keeps_no_arrays() -> None:
    judgement = Judgement("vector.agrees", Verdict.FAIL, "far off", rows={"x": np.zeros((4, 2))})
    assert result(Verdict.FAIL, judgements=(judgement,)).judgements[0].rows == {}


def test_a_reason_is_one_line() -> None:
    assert result(Verdict.ERROR, reason="first\n  second\r\nthird").reason == "first second third"


def _without(path: list[Any]) -> dict[str, Any]:
    data = copy.deepcopy(result(Verdict.FAIL).to_json())
    place: Any = data
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    return data


def _with(path: list[Any], value: Any) -> dict[str, Any]:
    data = copy.deepcopy(result(Verdict.FAIL).to_json())
    place: Any = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return data


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (_without(["verdict"]), "missing ['verdict']"),
        (_without(["target", "dtype"]), "missing ['dtype']"),
        (_without(["judgements", 0, "figures", 0, "limit"]), "missing ['limit']"),
        (_with(["extra"], 1), "unknown ['extra']"),
        (_with(["verdict"], "PASSED"), "'PASSED' is no verdict"),
        (_with(["judgements", 0, "verdict"], "GOOD"), "'GOOD' is no verdict"),
        (_with(["judgements", 0, "figures", 0, "value"], "1.0"), "is no number"),
        (_with(["judgements", 0, "figures", 0, "value"], True), "is no number"),
        (_with(["judgements", 0, "figures", 0, "bound"], "upper"), 'it is "max" or "min"'),
        (_with(["judgements"], {}), "where a list belongs"),
        (_with(["effective", "kernels", "aten::flash"], -1), "where a count belongs"),
        (_with(["effective", "kernels"], []), "where a mapping belongs"),
        (_with(["message"], None), "where text belongs"),
        (_with(["attempts"], 1.5), "where a count belongs"),
        (_with(["target"], "transformers"), "where a mapping"),
    ],
)
def test_what_is_no_recorded_result_is_refused_with_its_place(broken: dict[str, Any], said: str) -> None:
    with pytest.raises(RecordError) as caught:
        CaseResult.from_json(broken)
    assert said in str(caught.value)
    assert broken["id"] in str(caught.value)


def test_facts_of_any_origin_become_json() -> None:
    facts = {"folder": Path("a/b"), "flags": {"amx", "avx"}, "memory": math.inf, 3: (1, 2), "none": None, "on": True}
    plain = {"folder": "a/b", "flags": ["amx", "avx"], "memory": "inf", "3": [1, 2], "none": None, "on": True}
    assert to_plain(facts) == plain


@settings(max_examples=200, deadline=None)
@given(figures)
def test_a_margin_is_above_one_exactly_where_the_figure_does_not_hold(figure: Figure) -> None:
    share = margin(figure)
    if figure.limit is None:
        assert share is None
    else:
        assert share is not None
        assert not math.isnan(share)
        assert (share <= 1) == figure.holds


@pytest.mark.parametrize(
    ("figure", "share"),
    [
        (Figure("ratio", 1.0, 1.25), 0.8),
        (Figure("ratio", 2.5, 1.25), 2.0),
        (Figure("cosine", 0.8, 0.4, "min"), 0.5),
        (Figure("differing tokens", 0, 0), 0.0),
        (Figure("differing tokens", 1, 0), math.inf),
        (Figure("ratio", math.nan, 1.25), math.inf),
        (Figure("rounds to one", 1.9999999999999998, 1.9999999999999996), math.nextafter(1, 2)),
    ],
)
def test_a_margin_is_the_share_of_the_limit_that_is_used(figure: Figure, share: float) -> None:
    assert margin(figure) == pytest.approx(share, rel=1e-12)
    assert (share > 1) == ((margin(figure) or 0) > 1)


def test_the_worst_margin_is_the_largest_and_names_its_case() -> None:
    held = [
        ("a", Figure("one", 1, 2)),
        ("b", Figure("two", 3, 4)),
        ("c", Figure("three", 99)),
        ("d", Figure("4", 3, 4)),
    ]
    worst = worst_margin(held)
    assert worst is not None
    assert (worst.case, worst.figure.name, worst.margin) == ("b", "two", 0.75)
    assert worst_margin([("c", Figure("no limit", 99))]) is None


def test_having_just_enough_prompts_is_no_worst_margin_but_having_too_few_is() -> None:
    ratio, enough, few = Figure("ratio", 1, 2), Figure("prompts", 16, 16, "min"), Figure("prompts", 8, 16, "min")
    for held, name in (([ratio, enough], "ratio"), ([ratio, few], "prompts"), ([enough], "prompts")):
        worst = worst_margin([("case", figure) for figure in held])
        assert worst is not None
        assert worst.figure.name == name
