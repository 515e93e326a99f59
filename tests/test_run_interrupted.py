"""What crashes, hangs, interrupts, kills and full disks leave of a run: everything that had ended before them."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import zenith_site
from background import ended, eventually, in_flight, started
from zenith_site import PLAIN, Ran, misdeeds, profile
from zenith_site import run_plain as run

from conformance.execution.interrupts import Interrupts
from conformance.results.journal import read_journal
from conformance.results.validation import read_document


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zenith_site.install(tmp_path_factory.mktemp("vendor") / "site")


def test_a_crash_costs_the_case_in_flight_and_the_rest_runs_in_a_fresh_worker(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, text=misdeeds(classify="segfault"))
    crashed = done.cases["test_kinds_are_complete"]
    assert done.code == 1 and crashed["verdict"] == "CRASH"
    assert "SIGSEGV while running classify" in crashed["reason"] and "Fatal Python error" in crashed["log_tail"]
    assert sum(verdict == "PASS" for verdict in done.verdicts.values()) == 4
    assert done.document["run"]["counters"]["models_loaded"] == 2
    assert done.junit == {"testcase": 5, "failure": 0, "error": 1, "skipped": 0}


def test_a_second_crash_ends_the_target_and_the_rest_is_not_run(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, text=misdeeds(score_pairs="segfault", classify="segfault"))
    assert list(done.verdicts.values()) == ["CRASH", "CRASH", "NOT_RUN", "NOT_RUN", "NOT_RUN"]
    assert done.cases["test_kinds_are_complete"]["reason"] == "the target was given up after 2 crashes"
    assert done.cases["test_kinds_are_complete"]["started"] == ""
    journal = read_journal(done.output)  # a case that is given up was never launched
    assert (done.output / "journal.jsonl").read_text().count('"started", "id"') == 2 and journal.in_flight == ()


def test_one_target_that_is_given_up_leaves_the_other_alone(site: Path, tmp_path: Path) -> None:
    when = zenith_site.quirk('attention = "plain"', 'options = { misdeeds = { load = "segfault" } }')
    done = zenith_site.run(site, tmp_path, text=profile(add=when))
    assert {verdict for name, verdict in done.verdicts.items() if name.startswith("quick")} == {"PASS"}
    assert [verdict for name, verdict in done.verdicts.items() if name.startswith("plain")][:3] == [
        "CRASH",
        "CRASH",
        "NOT_RUN",
    ]


def test_a_question_that_a_crash_interrupted_is_asked_again_by_the_next_case(site: Path, tmp_path: Path) -> None:
    marker = str(tmp_path / "crashed")
    done = run(site, tmp_path, text=misdeeds(score_pairs="segfault_once"), ZENITH_MARKER=marker)
    assert list(done.verdicts.values()) == ["CRASH", "PASS", "PASS", "PASS", "PASS"]


def test_a_hang_is_a_timeout_after_the_deadline_of_the_case(site: Path, tmp_path: Path) -> None:
    begin = time.monotonic()
    done = run(site, tmp_path, "--deadline", "1", text=misdeeds(classify="hang"))
    case = done.cases["test_kinds_are_complete"]
    assert (done.code, case["verdict"]) == (1, "TIMEOUT")
    assert "classify had not ended when its deadline of 1 s passed" in case["reason"]
    assert "_hang" in case["message"]  # where it hung
    assert 1 <= case["duration_s"] < 5 and time.monotonic() - begin < 15
    assert sum(verdict == "PASS" for verdict in done.verdicts.values()) == 4


def test_out_of_memory_is_a_crash_in_those_words(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, text=misdeeds(classify="out_of_memory"))
    case = done.cases["test_kinds_are_complete"]
    assert (done.code, case["verdict"]) == (1, "CRASH")
    assert case["reason"].startswith("out of memory: ") and "tried to allocate 2.00 GiB" in case["reason"]
    assert sum(verdict == "PASS" for verdict in done.verdicts.values()) == 4


def test_a_worker_that_crashes_as_it_ends_costs_no_verdict(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, text=misdeeds(close="segfault"))
    assert (done.code, set(done.verdicts.values())) == (0, {"PASS"})
    assert "the worker did not end well" in done.process.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_had_ended(site: Path, tmp_path: Path, number: signal.Signals) -> None:
    with started(site, tmp_path, misdeeds(classify="hang")) as process:
        assert eventually(lambda: in_flight(tmp_path, "test_kinds_are_complete"))
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        said, _ = process.communicate(timeout=20)
    assert process.returncode == 2, said
    document = read_document(tmp_path / "out" / "results.json")
    assert document["run"]["interrupted"] and document["run"]["planned"] == 5
    assert [case["verdict"] for case in document["cases"]] == ["PASS", "PASS"]
    assert "3 of 5 planned cases have no result." in document["not_covered"]
    assert Ran(subprocess.CompletedProcess([], 2), tmp_path / "out").junit["testcase"] == 2
    assert len(family) == 2 and all(ended(member) for member in family)
    assert f"`--resume` goes on: python -m conformance --profile {tmp_path}" in said
    assert f" --resume --output {tmp_path / 'out'}\n" in said
    assert "exit code 2: the run was interrupted" in said and "Traceback" not in said


def test_a_second_interrupt_does_not_cost_the_results(site: Path, tmp_path: Path) -> None:
    with started(site, tmp_path, misdeeds(classify="hang")) as process:
        assert eventually(lambda: in_flight(tmp_path, "test_kinds_are_complete"))
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=20)
    assert process.returncode == 2, said
    assert len(read_document(tmp_path / "out" / "results.json")["cases"]) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_before_the_facts_are_known_leaves_an_empty_record(
    site: Path, tmp_path: Path, number: signal.Signals
) -> None:
    slow = Path(shutil.copytree(site, tmp_path / "slow"))
    marker = tmp_path / "importing"
    (slow / "torch.py").write_text(f"open({str(marker)!r}, 'w').close()\nimport time\ntime.sleep(30)\n")
    with started(slow, tmp_path, profile()) as process:
        assert eventually(marker.exists)
        process.send_signal(number)
        said, _ = process.communicate(timeout=20)
    assert process.returncode == 2, said
    document = read_document(tmp_path / "out" / "results.json")
    assert (document["run"]["interrupted"], document["run"]["planned"], document["cases"]) == (True, 5, [])
    assert Ran(subprocess.CompletedProcess([], 2), tmp_path / "out").junit["testcase"] == 0
    assert read_journal(tmp_path / "out").results == () and "Traceback" not in said


@pytest.mark.parametrize("heeded", [True, False])
def test_an_interrupt_ends_only_what_heeds_it(heeded: bool) -> None:
    with Interrupts() as interrupts:
        reached = False
        with contextlib.suppress(KeyboardInterrupt), interrupts.heeded() if heeded else contextlib.nullcontext():
            signal.raise_signal(signal.SIGTERM)
            reached = True
        assert reached != heeded
        signal.raise_signal(signal.SIGINT)  # the second costs nothing
        with pytest.raises(KeyboardInterrupt), interrupts.heeded():
            raise AssertionError("an interrupt that was kept ends the next block that heeds it")
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_second_run_into_the_same_folder_is_refused_and_touches_nothing(site: Path, tmp_path: Path) -> None:
    with started(site, tmp_path, misdeeds(classify="hang")) as process:
        assert eventually(lambda: in_flight(tmp_path, "test_kinds_are_complete"))
        before = (tmp_path / "out" / "journal.jsonl").read_bytes()
        second = zenith_site.conformance(
            site, "--backend", "zenith", "--suite", "colours", "--output", tmp_path / "out"
        )
        assert second.returncode == 4
        assert f"another run (process {process.pid}) is writing there" in second.stderr
        assert (tmp_path / "out" / "journal.jsonl").read_bytes() == before
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert len(read_document(tmp_path / "out" / "results.json")["cases"]) == 2
    assert run(site, tmp_path).code == 0  # the lock ends with its holder


def test_a_killed_run_leaves_a_readable_journal_and_no_worker(site: Path, tmp_path: Path) -> None:
    with started(site, tmp_path, misdeeds(classify="hang")) as process:
        assert eventually(lambda: in_flight(tmp_path, "test_kinds_are_complete"))
        family = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait(10)
        assert len(family) == 2 and eventually(lambda: all(ended(member) for member in family))
    journal = read_journal(tmp_path / "out")
    assert [result.verdict.value for result in journal.results] == ["PASS", "PASS"]
    assert [case.split("[")[0] for case in journal.in_flight] == ["colours.test_kinds_are_complete"]
    assert not (tmp_path / "out" / "results.json").exists()
    told = zenith_site.conformance(site, "report", tmp_path / "out")
    assert told.returncode == 4 and "was killed before its end; if it is not at work any more" in told.stderr
    assert f" --resume --output {tmp_path / 'out'}\n" in told.stderr


def test_without_the_process_that_starts_workers_the_run_goes_on_with_another(site: Path, tmp_path: Path) -> None:
    with started(site, tmp_path, misdeeds(classify="hang")) as process:
        assert eventually(lambda: in_flight(tmp_path, "test_kinds_are_complete"))
        server, worker = psutil.Process(process.pid).children(recursive=True)
        assert worker.ppid() == server.pid
        server.kill()
        said, _ = process.communicate(timeout=20)
    assert process.returncode == 1, said
    verdicts = [case["verdict"] for case in read_document(tmp_path / "out" / "results.json")["cases"]]
    assert verdicts == ["PASS", "PASS", "CRASH", "PASS", "PASS"]


@pytest.mark.parametrize("kind", ["a file", "below a file"])
def test_an_output_that_cannot_be_written_is_said_before_anything_runs(site: Path, tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").touch()
    output = tmp_path / "file" / ("" if kind == "a file" else "out")
    done = zenith_site.conformance(site, "--backend", "zenith", "--suite", "colours", "--output", output)
    assert done.returncode == 4
    assert done.stderr.startswith(f"conformance: cannot write {output}") and "--output" in done.stderr
    assert "zenith loads" not in done.stdout and "not a folder" in done.stderr


def test_a_disk_that_fills_up_is_said_and_what_had_ended_is_kept(site: Path, tmp_path: Path) -> None:
    """The limit on a file's size stands in for the disk: the same write fails, half-way through a line."""
    whole = run(site, tmp_path / "whole")
    assert whole.code == 0
    limit = int(0.6 * (whole.output / "journal.jsonl").stat().st_size)
    command = [sys.executable, "-m", "conformance", "--backend", "zenith", "--suite", "colours", *PLAIN]
    done = zenith_site.executed(site, [*command, "--output", str(tmp_path / "out")], file_limit=limit)
    assert done.returncode == 3
    assert f"conformance: cannot write {tmp_path / 'out' / 'journal.jsonl'}: " in done.stderr
    assert "ulimit" in done.stderr and "Traceback" not in done.stderr
    journal = read_journal(tmp_path / "out")
    assert 1 <= len(journal.results) < 5 and not journal.torn


def test_rows_that_cannot_be_kept_cost_no_verdict(site: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "rows").symlink_to(tmp_path / "elsewhere" / "missing")
    done = run(site, tmp_path, text=misdeeds(score_pairs="off_by_a_third"))
    assert (done.code, done.verdicts["test_hues_agree"]) == (1, "FAIL")
    assert done.cases["test_hues_agree"]["rows_file"] is None
    assert "its rows are not kept" in done.process.stdout
    assert not list((tmp_path / "elsewhere").iterdir())
