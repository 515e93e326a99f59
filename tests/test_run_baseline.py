"""`run --baseline` and `run --junit` from the command line to the files, on a vendor's engine that needs no torch."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import zenith_site
from junit_reader import read
from zenith_site import Ran, misdeeds
from zenith_site import run_plain as run

FAILING = "colours.test_kinds_are_complete[zenith/plain/bfloat16][tiny-colours]"
SWAPPED = "colours.test_hues_agree[zenith/plain/bfloat16][tiny-colours]"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zenith_site.install(tmp_path_factory.mktemp("vendor") / "site")


@pytest.fixture(scope="module")
def failed(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A run in which one case is an ERROR."""
    return run(site, tmp_path_factory.mktemp("failed"), text=misdeeds(classify="raise"))


@pytest.fixture(scope="module")
def passed(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run(site, tmp_path_factory.mktemp("passed"), text=zenith_site.profile())


def last_lines(done: Ran) -> list[str]:
    """The report's end, from the baseline on."""
    lines = done.process.stdout.splitlines()
    return lines[next(index for index, line in enumerate(lines) if line.startswith("Beside the baseline")) :]


def test_a_failure_that_the_baseline_has_does_not_count(site: Path, tmp_path: Path, failed: Ran) -> None:
    done = run(site, tmp_path, "--baseline", failed.output, text=misdeeds(classify="raise"))
    assert (failed.code, done.code) == (1, 0), done.said
    lines = last_lines(done)
    assert lines[1:3] == [f"known: ERROR {FAILING}", "0 new failures, 1 known, 0 fixed, 0 not executed now"]
    assert lines[-1].startswith("4 PASS, 1 ERROR in ") and "exit code 0: no new failures" in lines[-1]
    document = done.document
    assert (document["run"]["exit_code"], document["baseline"]["exit_code"]) == (1, 0)
    record = failed.output / "results.json"
    assert document["baseline"]["file"].endswith("out/results.json")
    assert document["baseline"]["sha256"] == hashlib.sha256(record.read_bytes()).hexdigest()
    assert document["baseline"]["known"] == [{"case": FAILING, "before": "ERROR", "now": "ERROR"}]
    assert done.junit["error"] == 1  # junit.xml tells what happened; it also says that it is known
    properties = read((done.output / "junit.xml").read_bytes()).iterfind(".//property[@name='baseline']")
    assert [each.get("value") for each in properties] == ["known failure; in the baseline ERROR"]


def test_a_new_failure_is_named_last_and_a_fixed_one_is_to_be_removed(site: Path, tmp_path: Path, failed: Ran) -> None:
    record = failed.output / "results.json"
    done = run(site, tmp_path, "--baseline", record, text=misdeeds(score_pairs="off_by_a_third"))
    assert done.code == 1
    lines = last_lines(done)
    assert lines[1:-1] == [
        f"fixed: PASS {FAILING} (was ERROR); remove it from the baseline",
        f"new: FAIL {SWAPPED} (was PASS)",
        "1 new failure, 0 known, 1 fixed, 0 not executed now",
    ]
    assert "exit code 1: there are failures that the baseline does not have" in lines[-1]


def test_a_crash_where_the_baseline_passed_is_new(site: Path, tmp_path: Path, passed: Ran) -> None:
    done = run(site, tmp_path, "--baseline", passed.output, text=misdeeds(classify="segfault"))
    assert done.code == 1
    assert f"new: CRASH {FAILING} (was PASS)" in last_lines(done), done.said


def test_what_could_not_run_stays_incomplete(site: Path, tmp_path: Path, passed: Ran) -> None:
    done = run(site, tmp_path, "--baseline", passed.output, text=misdeeds(classify="not_supported"))
    assert done.code == 6
    assert "exit code 6: incomplete: no new failures, but something selected could not run" in last_lines(done)[-1]


def test_failures_of_the_baseline_that_are_not_selected_are_named(site: Path, tmp_path: Path, failed: Ran) -> None:
    done = run(site, tmp_path, "--baseline", failed.output, "-k", "hues_agree", text=misdeeds(classify="raise"))
    assert done.code == 0
    lines = last_lines(done)
    assert "a run of another plan" in lines[0]
    assert f"unseen: {FAILING} is not in this run; in the baseline it was ERROR" in lines
    assert "of this run's 1 cases none are not in it; of its 5 cases 4 are not in this run" in done.process.stdout


def test_json_holds_the_comparison_too(site: Path, tmp_path: Path, failed: Ran) -> None:
    done = run(site, tmp_path, "--baseline", failed.output, "--json", text=misdeeds(classify="raise"))
    assert json.loads(done.process.stdout) == done.document and "baseline" in done.document
    assert done.code == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no file"),
        ('{"schema_version": 1,', "the file is damaged, cut off"),
        ('{"schema_version": 3, "conformance_version": "2.0"}', "$.schema_version: is 3"),
        ('{"schema_version": 1}', "'run' is a required property"),
    ],
)
def test_an_unusable_baseline_is_said_before_anything_runs(
    site: Path, tmp_path: Path, content: str | None, said: str
) -> None:
    path = tmp_path / "baseline.json"
    if content is not None:
        path.write_text(content)
    done = run(site, tmp_path, "--baseline", path)
    assert done.code == 4 and said in done.process.stderr and str(path) in done.process.stderr, done.said
    assert not done.output.exists() and "loads" not in done.said


def test_a_baseline_of_another_backend_and_one_in_the_output_folder_are_refused(
    site: Path, tmp_path: Path, passed: Ran
) -> None:
    other = json.loads((passed.output / "results.json").read_text())
    other["run"]["backend"] = "xpu"
    (tmp_path / "other.json").write_text(json.dumps(other))
    done = run(site, tmp_path, "--baseline", tmp_path / "other.json")
    assert done.code == 4 and "run.backend is 'xpu', but this run is of 'zenith'" in done.process.stderr
    first = run(site, tmp_path)
    before = (first.output / "results.json").read_bytes()
    again = run(site, tmp_path, "--baseline", first.output)
    assert again.code == 4 and "replaces this baseline" in again.process.stderr
    assert (first.output / "results.json").read_bytes() == before


def test_the_strict_flavour_is_written_where_it_is_asked_for(site: Path, tmp_path: Path) -> None:
    strict = run(site, tmp_path, "--junit", "strict")
    root = read((strict.output / "junit.xml").read_bytes())
    assert strict.code == 0 and root.get("skipped") is None
    assert not list(root.iter("properties")) and len(list(root.iter("testcase"))) == 5
    misspelt = run(site, tmp_path, "--junit", "strickt")
    assert misspelt.code == 4
    assert "unknown JUnit flavour 'strickt'; did you mean 'strict'?" in misspelt.process.stderr
