"""The summary's table on screens of any width: targets stay whole as long as they can."""

from __future__ import annotations

import io
import re

import pytest
import rich.console
from recorded import document, result
from rich.text import Text

from conformance.judgement import Figure
from conformance.results.summary_table import summary_table
from conformance.target import Target
from conformance.verdict import Verdict

LONG = Target("transformers", "eager", "bfloat16", (("vision", "sdpa"),))
OTHER = Target("vllm", "TRITON", "bfloat16")
FIGURES = (Figure("worst single prompt's ratio", 1.0, 1.25),)
RESULTS = [
    result(suite="classification", target=LONG, figures=FIGURES),
    result(Verdict.FAIL, test="test_two", suite="classification", target=LONG, figures=FIGURES),
    result(Verdict.ENVIRONMENT, test="test_three", suite="classification", target=LONG),
    result(suite="multimodal", figures=FIGURES),
]


def shown(width: int, *more: object) -> list[str]:
    file = io.StringIO()
    screen = rich.console.Console(file=file, width=width, force_terminal=False)
    groups = document([*RESULTS, *more])["summary"]["groups"]  # type: ignore[list-item]
    screen.print(summary_table(groups, width, Text))
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    assert max(map(len, lines)) <= width
    return lines


def cells(lines: list[str], column: int) -> list[str]:
    rows = [re.split(r"[|\u2502]", line)[1:-1] for line in lines if line.startswith(("|", "\u2502"))]
    return [row[column].strip() for row in rows if len(row) > column]


@pytest.mark.parametrize("width", [160, 100, 80])
def test_targets_and_verdicts_are_whole_and_the_engine_is_said_once(width: int) -> None:
    lines = shown(width)
    assert lines[0] == "engine: transformers" and sum("transformers" in line for line in lines) == 1
    assert {"eager/bfloat16/vision=sdpa", "sdpa/bfloat16"} == set(cells(lines, 1)) - {""}
    assert " ".join(cells(lines, 2)).split() == ["1", "PASS,", "1", "FAIL,", "1", "ENVIRONMENT", "1", "PASS"]
    assert " ".join(filter(None, cells(lines, 4))) == " ".join(["worst single prompt's ratio"] * 2)


def test_what_the_margin_is_of_is_left_out_before_a_target_is_broken() -> None:
    lines = shown(75)
    assert {"eager/bfloat16/vision=sdpa", "sdpa/bfloat16"} == set(cells(lines, 1)) - {""}
    assert cells(lines, 4) == [] and "0.8" in cells(lines, 3)


def test_on_a_narrow_screen_nothing_is_lost() -> None:
    lines = shown(40)
    assert "".join(cells(lines, 1)) == "eager/bfloat16/vision=sdpasdpa/bfloat16"


def test_several_engines_are_said_in_each_row() -> None:
    lines = shown(160, result(target=OTHER))
    assert "engine: " not in lines[0]
    assert cells(lines, 1)[-1] == "vllm/TRITON/bfloat16" and cells(lines, 1)[0].startswith("transformers/")
