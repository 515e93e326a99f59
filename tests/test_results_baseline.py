"""Beside a baseline only new failures count: the comparison, its exit code, and the files that can be a baseline."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import FINISHED, document, header, result

from conformance.names import UsageError
from conformance.results.baseline import compared, differences, read_baseline
from conformance.results.comparison import Change, Comparison, compare
from conformance.results.document import BASELINE_MEANINGS, build_document, exit_code, final_exit_code, write_document
from conformance.results.loading import Record, read_record
from conformance.results.plain import to_plain
from conformance.results.redact import Redactor
from conformance.results.validation import document_faults
from conformance.verdict import Verdict

PASS, FAIL, CRASH, NOT_RUN = Verdict.PASS, Verdict.FAIL, Verdict.CRASH, Verdict.NOT_RUN
outcomes = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(list(Verdict)))


def made(outcomes: dict[str, Verdict], **arguments: Any) -> dict[str, Any]:
    """The record of a run in which the test `test_x` of each name x had this verdict."""
    return document([result(verdict, test=f"test_{name}") for name, verdict in outcomes.items()], **arguments)


def beside(before: dict[str, Verdict], now: dict[str, Verdict], **arguments: Any) -> dict[str, Any]:
    """The record of `now`, compared with a baseline in which `before` was so."""
    baseline = Record(Path("last/results.json"), "ab" * 32, made(before))
    compared_document = compared(made(now, **arguments), baseline, to_plain)
    assert document_faults(compared_document) == []
    return compared_document


def named(block: dict[str, Any], group: str) -> list[str]:
    return [entry["case"].split("[")[0].removeprefix("embedding.test_") for entry in block[group]]


@pytest.mark.parametrize(
    ("before", "now", "group", "code"),
    [
        (PASS, FAIL, "new", 1),
        (PASS, CRASH, "new", 1),
        (PASS, Verdict.TIMEOUT, "new", 1),
        (PASS, Verdict.ERROR, "new", 1),
        (PASS, Verdict.UNDERPOWERED, "new", 1),
        (PASS, Verdict.XPASS, "new", 1),
        (None, FAIL, "new", 1),
        (NOT_RUN, FAIL, "new", 1),
        (Verdict.XFAIL, FAIL, "new", 1),
        (Verdict.WAIVED, FAIL, "new", 1),
        (FAIL, FAIL, "known", 0),
        (FAIL, CRASH, "known", 0),
        (Verdict.ERROR, Verdict.TIMEOUT, "known", 0),
        (FAIL, PASS, "fixed", 0),
        (CRASH, Verdict.XFAIL, "fixed", 0),
        (FAIL, None, "unseen", 0),
        (FAIL, Verdict.SKIPPED, "unseen", 0),
        (FAIL, Verdict.WAIVED, "unseen", 0),
        (FAIL, NOT_RUN, "unseen", 6),
        (CRASH, Verdict.ENVIRONMENT, "unseen", 6),
        (PASS, Verdict.ENVIRONMENT, None, 6),
        (PASS, NOT_RUN, None, 6),
        (PASS, PASS, None, 0),
        (Verdict.ENVIRONMENT, Verdict.ENVIRONMENT, None, 6),
    ],
)
def test_each_pair_of_verdicts_has_its_group_and_exit_code(
    before: Verdict | None, now: Verdict | None, group: str | None, code: int
) -> None:
    always = {"always": PASS}
    built = beside(
        {**always, **({} if before is None else {"x": before})}, {**always, **({} if now is None else {"x": now})}
    )
    block = built["baseline"]
    groups = [name for name in ("new", "known", "fixed", "unseen") if block[name]]
    assert groups == ([] if group is None else [group])
    for name in groups:
        assert named(block, name) == ["x"]
        assert block[name][0]["before"] == (None if before is None else str(before))
        assert block[name][0]["now"] == (None if now is None else str(now))
    assert block["exit_code"] == final_exit_code(built) == code
    assert code in BASELINE_MEANINGS


def test_the_record_of_the_run_itself_stays_as_it_is() -> None:
    plain = made({"x": FAIL, "y": PASS})
    built = beside({"x": FAIL}, {"x": FAIL, "y": PASS})
    assert {key: value for key, value in built.items() if key != "baseline"} == plain
    assert (built["run"]["exit_code"], built["baseline"]["exit_code"]) == (1, 0)


def test_an_interrupted_run_says_so_and_still_compares() -> None:
    done = [result(FAIL)]
    now = build_document(header([*done, result(test="test_y")]), done, finished=FINISHED, interrupted=True)
    built = compared(now, Record(Path("b.json"), "ab" * 32, made({"z": FAIL})), to_plain)
    assert document_faults(built) == []
    assert (built["baseline"]["exit_code"], len(built["baseline"]["new"])) == (2, 1)


def test_a_run_in_which_nothing_was_executed_is_no_success_beside_any_baseline() -> None:
    assert final_exit_code(beside({"x": FAIL}, {"x": Verdict.ENVIRONMENT})) == 5


@settings(max_examples=80, deadline=None)
@given(outcomes, outcomes)
def test_every_failure_of_either_run_is_in_exactly_one_group(
    before: dict[str, Verdict], now: dict[str, Verdict]
) -> None:
    changes = compare(before, now)
    every = [change.case for change in (*changes.new, *changes.known, *changes.fixed, *changes.unseen)]
    failing = {case for run in (before, now) for case, verdict in run.items() if verdict.is_failure}
    assert len(every) == len(set(every)) and set(every) == failing
    assert Comparison.from_json(json.loads(json.dumps(changes.to_json()))) == changes
    assert changes.is_of(now)


@settings(max_examples=80, deadline=None)
@given(outcomes)
def test_beside_itself_a_run_has_no_new_failure_and_beside_nothing_only_new_ones(now: dict[str, Verdict]) -> None:
    assert compare(now, now).new == compare(now, now).fixed == ()
    alone = compare({}, now)
    assert len(alone.new) == sum(verdict.is_failure for verdict in now.values())
    results = [result(verdict, test=f"test_{name}") for name, verdict in now.items()]
    known = {one.id for one in results if one.verdict.is_failure}
    assert exit_code(results, known=()) == exit_code(results)
    assert exit_code(results, known=known) != 1


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda block: block.update(exit_code=0), "$.baseline.exit_code: is 0; verdicts and known failures make it 1"),
        (lambda block: block["known"].append(block["new"].pop()), "$.baseline: its changes are not those"),
        (lambda block: block["new"].clear(), "$.baseline: its changes are not those"),
        (lambda block: block["new"][0].update(now="ERROR"), "$.baseline: its changes are not those"),
        (lambda block: block["fixed"].append(block["new"][0]), "$.baseline: its changes are not those"),
        (lambda block: block["new"][0].update(before="GOOD"), "$.baseline.new[0].before"),
        (lambda block: block.pop("sha256"), "'sha256' is a required property"),
        (lambda block: block.update(waived=[]), "'waived' was unexpected"),
    ],
)
def test_a_recorded_comparison_that_does_not_follow_from_the_verdicts_is_a_fault(spoil: Any, said: str) -> None:
    built = copy.deepcopy(beside({"x": PASS, "y": FAIL}, {"x": FAIL, "y": FAIL}))
    spoil(built["baseline"])
    assert any(said in fault for fault in document_faults(built)), document_faults(built)


def test_what_the_baseline_s_path_tells_of_the_machine_is_redacted() -> None:
    baseline = Record(Path("/home/margarethe/ci/last/results.json"), "ab" * 32, made({"x": FAIL}))
    built = compared(made({"x": FAIL}), baseline, Redactor(user="margarethe", home="/home/margarethe"))
    assert built["baseline"]["file"] == ".../last/results.json"
    assert document_faults(built) == []


# The differences that are said before the run starts.


def test_a_baseline_of_the_same_plan_needs_no_word() -> None:
    built = made({"x": PASS})
    assert differences(Record(Path("b"), "", built), built["run"]["plan_hash"], [built["cases"][0]["id"]]) == []


def test_a_baseline_of_another_plan_or_of_an_interrupted_run_is_said_with_numbers() -> None:
    done = [result(test="test_x")]
    planned = header([*done, result(test="test_y")])
    baseline = Record(Path("b.json"), "", build_document(planned, done, finished=FINISHED, interrupted=True))
    said = differences(baseline, "another", [done[0].id, "new.test_one[a/b/c][d]", "new.test_two[a/b/c][d]"])
    assert len(said) == 2
    assert "of this run's 3 cases 2 are not in it; of its 1 cases none are not in this run" in said[0]
    assert "was interrupted: 1 of its 2 cases have a verdict" in said[1]


# Files.


def stored(folder: Path, built: dict[str, Any]) -> Path:
    write_document(built, folder / "results.json")
    return folder / "results.json"


def test_a_record_is_found_by_its_file_or_by_its_folder_and_hashed(tmp_path: Path) -> None:
    path = stored(tmp_path, made({"x": PASS}))
    by_file, by_folder = read_record(path), read_record(tmp_path)
    assert by_file == by_folder and by_file.path == path
    import hashlib

    assert by_file.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_record_with_a_comparison_is_itself_a_baseline(tmp_path: Path) -> None:
    path = stored(tmp_path, beside({"x": FAIL}, {"x": FAIL, "y": FAIL}))
    again = compared(made({"x": FAIL, "y": FAIL, "z": FAIL}), read_baseline(path, "cpu"), to_plain)
    assert (named(again["baseline"], "known"), named(again["baseline"], "new")) == (["x", "y"], ["z"])


def refused(path: Path, backend: str = "cpu", output: Path | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        read_baseline(path, backend, output)
    assert len(str(caught.value)) < 4_000
    return str(caught.value)


def test_a_baseline_of_another_backend_is_refused(tmp_path: Path) -> None:
    path = stored(tmp_path, made({"x": PASS}))
    said = refused(path, "xpu")
    assert f"{path}: run.backend is 'cpu', but this run is of 'xpu'" in said


def test_a_baseline_that_the_run_would_replace_is_refused(tmp_path: Path) -> None:
    path = stored(tmp_path, made({"x": PASS}))
    (tmp_path / "link").symlink_to(tmp_path)
    for output in (tmp_path, tmp_path / "link", tmp_path / "link" / ".." / tmp_path.name):
        assert "replaces this baseline" in refused(path, output=output)
    assert read_baseline(path, "cpu", tmp_path / "other").path == path


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no JSON in UTF-8"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe", "no JSON in UTF-8"),
        (b"[]", "a mapping with a schema_version belongs there"),
        (b"null", "a mapping with a schema_version belongs there"),
        (b'{"cases": []}', "a mapping with a schema_version belongs there"),
        (b'{"schema_version": 2, "conformance_version": "9.1"}', "is 2, but this version of conformance reads 1"),
        (b'{"schema_version": 2, "conformance_version": "9.1"}', "was written by conformance 9.1"),
        (b'{"schema_version": "\\u001b[2J' + b"x" * 10_000 + b'"}', "$.schema_version: is '"),
        (b'{"schema_version": 1}', "'cases' is a required property"),
        (b'{"schema_version": NaN}', "NaN is no JSON"),
        (b'{"schema_version": 1e999}', "1e999 is too large for a number"),
        (b'{"schema_version": ' + b"9" * 10_000 + b"}", "is too large for a number"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"schema_version": 1, "facts": ' + b'{"a":' * 200_000, "nested too deeply"),
    ],
)
def test_a_file_that_is_no_record_is_refused_in_one_sentence(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(data)
    assert said in refused(path) and str(path) in refused(path)


def test_a_truncated_record_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    whole = stored(tmp_path, made({"x": PASS, "y": FAIL})).read_bytes()
    path = tmp_path / "cut.json"
    for length in range(0, len(whole) - 2, len(whole) // 50):
        path.write_bytes(whole[:length])
        assert "the file is damaged, cut off" in refused(path)


def test_a_record_with_very_many_faults_is_refused_in_a_few_lines(tmp_path: Path) -> None:
    built = made({str(index): PASS for index in range(100)})
    for case in built["cases"]:
        case["verdict"], case["message"] = "GREAT" * 1_000, 7
    path = stored(tmp_path, built)
    said = refused(path).splitlines()
    assert len(said) == 9 and "more faults like these" in said[-1]
    assert "GREAT" in said[0] and f"{path}: $.cases[0].verdict: " in said[0]


def test_ids_of_hostile_characters_are_refused(tmp_path: Path) -> None:
    for text in ("a\nb", "a b", "\x1b[2J", "\u202e", "\ud800", ""):
        built = made({"x": PASS})
        built["cases"][0]["id"] = text
        assert "$.cases[0].id" in refused(stored(tmp_path, built))


def test_a_count_that_is_written_as_a_fraction_is_a_fault_and_no_crash(tmp_path: Path) -> None:
    path = stored(tmp_path, made({"x": PASS}))
    path.write_text(path.read_text().replace('"attempts": 1', '"attempts": 1.0'))
    assert "attempts: 1.0 found where a count belongs" in refused(path)


def test_what_is_no_regular_file_is_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").mkdir()
    assert "is no file" in refused(tmp_path / "pipe")
    assert "is no file" in refused(Path("/dev/zero"))
    assert "there is no file" in refused(tmp_path / "nowhere.json")
    assert "holds no results.json; name the folder that a run wrote" in refused(tmp_path / "empty")
    (tmp_path / "empty" / "journal.jsonl").touch()
    assert "the run in it has not ended, or was killed" in refused(tmp_path / "empty")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "loop" in refused(tmp_path / "loop")
    assert "cannot be read" in refused(Path("a\0b"))
    path = stored(tmp_path, made({"x": PASS}))
    monkeypatch.setattr("conformance.results.loading.LARGEST", 100)
    assert "no results.json has more than 100" in refused(path)


def test_a_change_says_what_it_is() -> None:
    assert Change("a", None, FAIL).to_json() == {"case": "a", "before": None, "now": "FAIL"}
