"""`report` tells a finished run again from its record alone, and says what is wrong with an unusable one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from junit_reader import SPREAD, hostile
from recorded import FINISHED, document, header, result

from conformance.__main__ import main
from conformance.results.document import build_document, write_document
from conformance.results.junit import junit_xml
from conformance.verdict import Verdict

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("torch", "numpy", "transformers", "safetensors")


def stored(folder: Path, built: dict[str, Any]) -> Path:
    write_document(built, folder / "results.json")
    return folder


def report(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["report", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_it_shows_what_the_run_showed_and_writes_junit_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    built = document(SPREAD, not_covered=["Nothing is said of speed."])
    code, out, _ = report(capsys, stored(tmp_path, built))
    assert code == built["run"]["exit_code"] == 1
    lines = out.splitlines()
    assert lines[0] == f"conformance 0.1.0: backend cpu, {len(SPREAD)} cases"
    assert "started 2026-11-30T10:00:00Z, finished 2026-11-30T10:01:30Z" in lines
    for one in SPREAD:
        assert (f"{one.verdict} {one.id}" in out) == (one.verdict is not Verdict.PASS)
    assert "- Nothing is said of speed." in lines
    assert lines[-2] == f"written: {tmp_path / 'junit.xml'}"
    assert lines[-1].endswith("exit code 1: there are failures")
    assert (tmp_path / "junit.xml").read_bytes() == junit_xml(built)


def test_the_record_is_only_read_and_named_by_folder_or_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stored(tmp_path, document([result()])) / "results.json"
    before = path.read_bytes(), path.stat().st_mtime_ns
    by_folder, by_file = report(capsys, tmp_path), report(capsys, path)
    assert by_folder == by_file and by_file[0] == 0
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["junit.xml", "results.json"]


def test_the_strict_flavour_can_be_had_from_a_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built = document(SPREAD)
    stored(tmp_path, built)
    report(capsys, tmp_path, "--junit", "strict")
    assert (tmp_path / "junit.xml").read_bytes() == junit_xml(built, "strict")
    code, _, err = report(capsys, tmp_path, "--junit", "jenkins")
    assert code == 4 and "unknown JUnit flavour 'jenkins'; known are properties, strict" in err


def test_json_is_the_record_alone_on_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built = document([result()])
    code, out, err = report(capsys, stored(tmp_path, built), "--json")
    assert code == 0 and json.loads(out) == built
    assert "1 PASS in 90.0 s; exit code 0" in err


def test_a_baseline_can_be_applied_afterwards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failing = document([result(Verdict.FAIL)])
    now, last = stored(tmp_path / "now", failing), stored(tmp_path / "last", failing)
    code, out, _ = report(capsys, now, "--baseline", last)
    assert code == 0 and f"known: FAIL {result().id}" in out
    assert json.loads((now / "results.json").read_text()) == failing  # the record of the run stays as it is
    assert b"known failure" in (now / "junit.xml").read_bytes()
    other = stored(tmp_path / "other", build_document(header([], backend="xpu"), [], finished=FINISHED))
    code, _, err = report(capsys, now, "--baseline", other)
    assert code == 4 and "run.backend is 'xpu', but this run is of 'cpu'" in err


def test_a_run_is_no_baseline_of_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = stored(tmp_path, document([result(Verdict.FAIL)]))
    code, _, err = report(capsys, now, "--baseline", now / "results.json")
    assert code == 4 and "beside itself a run has no new failure" in err


def test_an_interrupted_run_is_told_with_what_it_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = result()
    built = build_document(header([done, result(test="test_two")]), [done], finished=FINISHED, interrupted=True)
    code, out, _ = report(capsys, stored(tmp_path, built))
    assert code == 2
    assert "backend cpu, 2 cases" in out and "1 of 2 planned cases have no result." in out


def test_hostile_text_of_a_record_reaches_the_terminal_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = report(capsys, stored(tmp_path, document([hostile(Verdict.CRASH)], not_covered=["\x1b[2J\x07 x"])))
    assert not {"\x1b", "\x07", "\x00", "\u202e", "\x85"} & set(out)
    assert "\\x00 ]]> <![CDATA[" in out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "holds no results.json; name the folder that a run wrote (--output), or the file"),
        ("", "no JSON in UTF-8"),
        ('{"schema_version": 2}', "$.schema_version: is 2, but this version of conformance reads 1"),
        ('{"schema_version": 1}', "'summary' is a required property"),
    ],
)
def test_a_record_that_cannot_be_used_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, said: str
) -> None:
    if content is not None:
        (tmp_path / "results.json").write_text(content)
    code, out, err = report(capsys, tmp_path)
    assert (code, out) == (4, "") and said in err and str(tmp_path) in err
    assert not (tmp_path / "junit.xml").exists()


def test_two_cases_that_junit_could_not_tell_apart_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built = document([result(suite="a", test="x"), result(suite="a", test="y")])
    built["cases"][0]["id"], built["cases"][1]["id"] = "a.x", "x"  # no run writes such ids
    for group in (*built["summary"]["suites"], *built["summary"]["targets"], *built["summary"]["groups"]):
        group["worst"]["case"] = "a.x"
    code, _, err = report(capsys, stored(tmp_path, built))
    assert code == 4 and "have one JUnit name" in err


def test_a_folder_that_cannot_be_written_is_told_of_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(tmp_path, document([result()]))
    (tmp_path / "junit.xml").mkdir()
    code, out, err = report(capsys, tmp_path)
    assert code == 4 and "1 PASS in 90.0 s" in out and "written:" not in out
    assert "cannot write" in err and "copy results.json to a folder that you may write to" in err


def test_it_imports_neither_torch_nor_numpy(tmp_path: Path) -> None:
    now, last = (stored(tmp_path / name, document(SPREAD)) for name in ("now", "last"))
    program = (
        "import sys\nfrom conformance.__main__ import main\n"
        f"code = main(['report', {str(now)!r}, '--baseline', {str(last)!r}])\n"
        f"print(code, [name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=60
    )
    assert done.stderr.splitlines()[-1] == "6 []"  # SPREAD has NOT_RUN, and every failure is known
