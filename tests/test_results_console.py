"""The console says in full what went wrong, and shows foreign text as text, on any stream."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from background import eventually
from hypothesis import given, settings
from recorded import VISION, document, header, result, texts

from conformance.judgement import Figure
from conformance.results import console as console_module
from conformance.results.console import Console
from conformance.results.explanation import describe
from conformance.results.record import CaseResult
from conformance.verdict import Verdict

FAILED = result(
    Verdict.FAIL,
    test="test_two",
    figures=(Figure("pooled ratio", 2.5, 1.25, "max", "measured on eight devices"), Figure("cosine", 0.97)),
    log_tail="loading weights\n",
)


def _shown(*results: CaseResult, stream: io.TextIOBase | None = None, terminal: bool = False, **built: Any) -> str:
    # A wide screen: wrapping is rich's business, and the words are ours.
    file: Any = stream or io.StringIO()
    with Console(file, terminal=terminal, width=200) as console:
        console.run_started(header(results))
        for one in results:
            console.case_started(one.id)
            console.case_finished(one)
        console.group_finished("transformers/sdpa/bfloat16", "qwen3-0.6", results)
        console.note("waiting for the device")
        console.run_finished(document(results, **built), [Path("out") / "results.json"])
    return str(file.getvalue()) if isinstance(file, io.StringIO) else ""


def test_a_reason_that_many_cases_share_is_said_once_and_counted() -> None:
    many = [result(Verdict.NOT_RUN, test=f"test_{index}", reason="the budget was spent") for index in range(9)]
    shown = _shown(result(), *many, result(Verdict.ENVIRONMENT, test="test_x", reason="the budget was spent"))
    assert shown.count("\nNOT_RUN ") == 1 and shown.count("\nENVIRONMENT ") == 1
    assert "- 9 cases are NOT_RUN: the budget was spent.\n" in shown


def test_a_failure_is_shown_in_full_at_once() -> None:
    file = io.StringIO()
    Console(file, terminal=False).case_finished(FAILED)
    shown = file.getvalue()
    for said in (
        f"FAIL {FAILED.id}\n",
        "EMB-010: Each vector MUST equal",
        "16 vectors of 256 numbers were compared",
        "pooled ratio = 2.5 > 1.25 (2 of the limit)  [measured on eight devices]",
        "cosine = 0.97",
        "kernels: aten::flash x 56; 56 attention calls made",
        "reproduce: python -m conformance run --backend cpu -k ID",
        "loading weights",
    ):
        assert said in shown


def test_a_pass_is_silent_and_what_could_not_run_takes_one_line() -> None:
    file = io.StringIO()
    console = Console(file, terminal=False)
    console.case_finished(result())
    assert file.getvalue() == ""
    absent = result(Verdict.ENVIRONMENT, reason="no XPU device is visible")
    console.case_finished(absent)
    assert file.getvalue() == f"ENVIRONMENT {absent.id}: no XPU device is visible\n"


def test_a_group_takes_one_line_with_counts_and_worst_margin() -> None:
    line = next(line for line in _shown(result(), FAILED).splitlines() if line.startswith("[2/2]"))
    assert line == "[2/2] transformers/sdpa/bfloat16 qwen3-0.6: 1 PASS, 1 FAIL; worst margin 2 (pooled ratio)"


def test_a_group_that_did_not_run_takes_no_line_of_its_own() -> None:
    shown = _shown(result(Verdict.NOT_RUN, reason="the budget was spent"))
    assert "[1/1]" not in shown and "worst margin none" not in shown
    assert "NOT_RUN embedding.test_vectors_agree" in shown and "1 NOT_RUN in 90.0 s" in shown


def test_the_summary_ends_with_what_is_not_covered_the_files_and_the_exit_code() -> None:
    lines = _shown(result(), FAILED, not_covered=["Nothing is said of speed."]).rstrip().splitlines()
    row = next(line for line in lines if "1 PASS, 1 FAIL" in line and line.startswith(("|", "\u2502")))
    assert re.split(r"\s*[|\u2502]\s*", row)[1:-1] == [
        "embedding",
        "sdpa/bfloat16",
        "1 PASS, 1 FAIL",
        "2",
        "pooled ratio",
    ]
    assert any(line.rstrip() == "engine: transformers" for line in lines)
    assert "- Nothing is said of speed." in lines
    assert lines[-2:] == [
        "written: out/results.json",
        "1 PASS, 1 FAIL in 90.0 s; exit code 1: there are failures",
    ]


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8", "cp437"])
def test_no_encoding_of_the_stream_ends_a_run(encoding: str, terminal: bool) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="strict")
    named = result(
        Verdict.FAIL, target=VISION, model="\u6a21\u578b", message="\u0394 = 3 \U0001f600 \ud800 caf\xe9 " * 20
    )
    _shown(named, result(suite="\u5957\u4ef6"), stream=stream, terminal=terminal)
    stream.flush()
    shown = raw.getvalue().decode(encoding)
    assert "exit code 1" in shown
    assert ("\\u0394" in shown) == (encoding != "utf-8")


HOSTILE = "[red]x[/red] [/] [link=http://x]y[/link] :boom: \x1b[2J\x1b]0;owned\x07 \x9b31m \u202e \r over"


@pytest.mark.parametrize("terminal", [True, False])
def test_foreign_text_is_neither_markup_nor_control(terminal: bool) -> None:
    hostile = result(Verdict.CRASH, suite=HOSTILE, reason=HOSTILE, message=HOSTILE, log_tail=HOSTILE, quirks=(HOSTILE,))
    shown = _shown(hostile, terminal=terminal, not_covered=[HOSTILE])
    assert shown.count("[red]x[/red] [/] [link=http://x]y[/link] :boom:") >= 4
    for control in ("\x1b[2J", "\x1b]", "\x07", "\x9b", "\u202e", "0;owned"):
        assert control not in shown
    if not terminal:
        assert "\x1b" not in shown


@settings(max_examples=40, deadline=None)
@given(texts)
def test_any_text_can_be_shown(text: str) -> None:
    shown = _shown(result(Verdict.ERROR, reason=text, message=text, model=text))
    shown.encode("utf-8")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown.replace("\t", " "))


def test_a_terminal_shows_one_moving_line_and_leaves_none_behind() -> None:
    file = io.StringIO()
    with Console(file, terminal=True, width=60) as console:
        console.run_started(header([result(), FAILED]))
        console.case_started(FAILED.id)
        console.case_finished(FAILED)
        console.case_started(result().id)
        moving = file.getvalue().splitlines()[-1]
    assert "1/2, 1 failed, 1 s  embedding.test_vectors_agree" in moving
    assert max(len(part) for part in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\r", moving).split("\r")) <= 60
    assert file.getvalue().endswith("\x1b[?25h\r\x1b[1A\x1b[2K")  # the cursor shown again, the line taken away


def test_the_moving_line_shows_the_time_that_goes_by_in_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    file, now = io.StringIO(), [100.0]
    monkeypatch.setattr(console_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with Console(file, terminal=True, width=90) as console:
        console.run_started(header([FAILED]))
        console.case_started(FAILED.id)
        now[0] += 62
        assert eventually(lambda: "0/1, 1 min 2 s  embedding.test_two" in file.getvalue(), 5)


def test_a_run_without_results_shows_no_table() -> None:
    shown = _shown(interrupted=True)
    assert not set("\u2502\u2503|") & set(shown) and "no cases in 90.0 s" in shown


def test_long_lines_are_not_wrapped_in_a_log() -> None:
    file = io.StringIO()
    Console(file, terminal=False).case_finished(result(Verdict.ENVIRONMENT, reason="word " * 100))
    assert len(file.getvalue().splitlines()) == 1


def test_a_reader_that_goes_away_does_not_end_the_run() -> None:
    here = Path(__file__).parent
    program = (
        f"import sys; sys.path[:0] = {[str(here), str(here.parent)]!r}\n"
        "from recorded import document, header, result\n"
        "from conformance.results.console import Console\n"
        "from conformance.verdict import Verdict\n"
        "results = [result(Verdict.FAIL, test=f'test_{i}') for i in range(50)]\n"
        "with Console() as console:\n"
        "    console.run_started(header(results))\n"
        "    for one in results: console.case_finished(one)\n"
        "    console.run_finished(document(results))\n"
        "print('still here', file=sys.stderr)\n"
    )
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "still here\n")


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (Figure("f", 2.5, 1.25), "2.5 > 1.25 (2 of the limit)"),
        (Figure("f", 1.0, 1.25), "1 <= 1.25 (0.8 of the limit)"),
        (Figure("f", 0.5, 0.9, "min"), "0.5 < 0.9"),
        (Figure("f", 3, 0), "3 > 0"),
        (Figure("f", float("nan"), 1.25), "nan is not <= 1.25"),
        (Figure("f", 0.97), "0.97"),
    ],
)
def test_a_figure_is_described_against_its_limit(figure: Figure, text: str) -> None:
    assert describe(figure) == text
