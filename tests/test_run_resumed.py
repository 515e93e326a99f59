"""`--resume` goes on with a run that did not end, refuses another one, and starts no case again that ended it twice."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
import zenith_site
from background import ended, eventually, in_flight, started
from zenith_site import PLAIN, Ran, misdeeds, profile, quirk
from zenith_site import run_plain as run

from conformance.results.journal import read_journal
from conformance.results.validation import read_document

KINDS = "test_kinds_are_complete"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zenith_site.install(tmp_path_factory.mktemp("vendor") / "site")


@pytest.fixture
def marker(tmp_path: Path) -> dict[str, str]:
    return {"ZENITH_MARKER": str(tmp_path / "marker")}


def resume(site: Path, folder: Path, *arguments: Any, **more: str) -> Ran:
    """Go on with the run that `started` began in this folder."""
    return run(site, folder, "--resume", *arguments, text=(folder / "profile.toml").read_text(), **more)


def end(site: Path, folder: Path, text: str, number: signal.Signals, marker: dict[str, str], *more: str) -> str:
    """Start a run, wait until it hangs in the case of the kinds, and end it by this signal; what it said."""
    with started(site, folder, text, *more, **marker) as process:
        assert eventually(lambda: in_flight(folder, KINDS))
        assert eventually((Path(marker["ZENITH_MARKER"])).exists)
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        said, _ = process.communicate(timeout=20)
        assert eventually(lambda: all(ended(member) for member in family))
    return said


def journal_lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out" / "journal.jsonl").read_text().splitlines()]


def launches(folder: Path, test: str) -> int:
    return sum(line["kind"] == "started" and f".{test}[" in line["id"] for line in journal_lines(folder))


@pytest.mark.parametrize(("number", "attempts"), [(signal.SIGKILL, 2), (signal.SIGTERM, 1), (signal.SIGINT, 1)])
def test_a_run_that_was_ended_goes_on_and_says_so(
    site: Path, tmp_path: Path, marker: dict[str, str], number: signal.Signals, attempts: int
) -> None:
    end(site, tmp_path, misdeeds(classify="hang_once"), number, marker)
    before = read_journal(tmp_path / "out").results
    done = resume(site, tmp_path, **marker)
    assert (done.code, set(done.verdicts.values())) == (0, {"PASS"}), done.said
    run_record = done.document["run"]
    assert (len(run_record["resumed"]), run_record["interrupted"], run_record["planned"]) == (1, False, 5)
    assert run_record["resumed"][0] > run_record["started"]
    assert done.cases[KINDS]["attempts"] == attempts and launches(tmp_path, KINDS) == 2
    assert [done.cases[result.test] for result in before] == [result.to_json() for result in before]
    assert "resumed: 2 cases of 5 had ended: 2 PASS" in done.process.stdout and "[5/5]" in done.process.stdout
    assert done.junit == {"testcase": 5, "failure": 0, "error": 0, "skipped": 0}


def test_a_run_that_has_ended_is_reported_again_and_nothing_is_run(site: Path, tmp_path: Path) -> None:
    text = misdeeds(score_pairs="off_by_a_third")
    former = run(site, tmp_path, text=text)
    files = {name: (former.output / name).read_bytes() for name in ("results.json", "junit.xml", "journal.jsonl")}
    (former.output / "results.json").unlink()
    again = resume(site, tmp_path, ZENITH_DEVICES="0")
    assert again.code == former.code == 1
    assert "nothing to resume in" in again.process.stdout and "every case has its verdict" in again.process.stdout
    assert {name: (again.output / name).read_bytes() for name in files} == files
    assert "1 FAIL" in again.process.stdout


def test_without_a_journal_there_is_nothing_to_resume(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, "--resume")
    assert done.code == 4 and "nothing to resume: there is no" in done.process.stderr
    assert not done.output.exists()


def test_a_journal_that_cannot_be_read_is_said_with_its_line(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path)
    with (done.output / "journal.jsonl").open("a") as file:
        file.write("{}\n")
    again = run(site, tmp_path, "--resume")
    assert again.code == 4 and "a JSON object with a 'kind'" in again.process.stderr, again.said
    assert "leave --resume out" in again.process.stderr and "Traceback" not in again.said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("selection", ["plan (hash): ", "cases: 4 of then are not planned now"]),
        ("profile", ["plan (hash): ", "profile (sha256): "]),
        ("torch", ["torch_build.version: 2.13.0 then, 2.12.1 now"]),
        ("device", ["device.available: true then, false now"]),
        ("version", ["version: 0.1.0 then, 9.9.9 now"]),
        ("variable", ["stack.environment.OMP_NUM_THREADS: null then, 3 now"]),
        ("engine", ["versions.torch: 2.13.0 then, 2.14.0 now"]),
    ],
)
def test_another_run_is_not_resumed_and_every_difference_is_named(
    site: Path, tmp_path: Path, marker: dict[str, str], change: str, said: list[str]
) -> None:
    text = profile(device="zenith", engine='options = { misdeeds = { classify = "hang_once" } }')
    end(site, tmp_path, text, signal.SIGKILL, marker)
    before = (tmp_path / "out" / "journal.jsonl").read_bytes()
    arguments, more = [], dict(marker)
    if change == "selection":
        arguments = ["-k", KINDS]
    elif change == "profile":
        (tmp_path / "profile.toml").write_text(text + "\n")
    elif change == "torch":
        more["ZENITH_TORCH"] = "2.12.1"
    elif change == "device":
        more["ZENITH_DEVICES"] = "0"
    elif change == "variable":
        more["OMP_NUM_THREADS"] = "3"
    elif change == "engine":
        site = Path(shutil.copytree(site, tmp_path / "newer"))
        (site / "torch-2.13.0.dist-info").rename(site / "torch-2.14.0.dist-info")
        metadata = site / "torch-2.14.0.dist-info" / "METADATA"
        metadata.write_text(metadata.read_text().replace("2.13.0", "2.14.0"))
    elif change == "version":
        (site_of_another := tmp_path / "another").mkdir()
        (site_of_another / "sitecustomize.py").write_text("import conformance\nconformance.__version__ = '9.9.9'\n")
        more["PYTHONPATH"] = f"{site}:{site_of_another}:{zenith_site.ROOT}"
    done = resume(site, tmp_path, *arguments, **more)
    assert done.code == 4, done.said
    assert "cannot be resumed" in done.process.stderr and "it was started with: --profile" in done.process.stderr
    assert all(part in done.process.stderr for part in said), done.said
    assert (tmp_path / "out" / "journal.jsonl").read_bytes() == before
    assert not (tmp_path / "out" / "results.json").exists()


def test_a_model_folder_whose_files_were_changed_makes_another_run(
    site: Path, tmp_path: Path, marker: dict[str, str]
) -> None:
    folder = tmp_path / "mine"
    zenith_site.write_model(folder)
    model = ("--model", f"colours={folder}")
    assert run(site, tmp_path, *model, CONFORMANCE_CACHE=str(tmp_path / "cache")).code == 5  # no reference here
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes())
    done = run(site, tmp_path, *model, "--resume", CONFORMANCE_CACHE=str(tmp_path / "cache"))
    assert done.code == 4 and "model mine: files in its folder have been changed" in done.process.stderr, done.said


def test_a_case_that_was_in_flight_at_two_deaths_is_a_crash_and_is_not_started_again(
    site: Path, tmp_path: Path
) -> None:
    text = misdeeds(classify="hang")
    for arguments in ((), ("--resume",)):
        with started(site, tmp_path, text, *arguments) as process:
            assert eventually(lambda: launches_are(tmp_path, 1 + bool(arguments)))  # noqa: B023
            process.kill()
            process.wait(10)
    done = resume(site, tmp_path)
    case = done.cases[KINDS]
    assert (done.code, case["verdict"], case["attempts"]) == (1, "CRASH", 2), done.said
    assert case["reason"] == "the run died twice while it ran"
    assert launches(tmp_path, KINDS) == 2
    assert sum(verdict == "PASS" for verdict in done.verdicts.values()) == 4
    assert len(done.document["run"]["resumed"]) == 2


def launches_are(folder: Path, count: int) -> bool:
    return (folder / "out" / "journal.jsonl").is_file() and launches(folder, KINDS) == count


def test_a_case_that_took_the_host_down_is_a_crash_and_is_not_started_again(
    site: Path, tmp_path: Path, marker: dict[str, str]
) -> None:
    end(site, tmp_path, misdeeds(classify="hang_once"), signal.SIGKILL, marker)
    here = read_journal(tmp_path / "out").header.boot_id
    path = tmp_path / "out" / "journal.jsonl"
    path.write_text(path.read_text().replace(f'"boot_id": "{here}"', '"boot_id": "another-boot"'))
    done = resume(site, tmp_path, **marker)
    case = done.cases[KINDS]
    assert here and (done.code, case["verdict"]) == (1, "CRASH"), done.said
    assert case["reason"].startswith("the host went down while it ran, so it is not started again")
    assert "another-boot" in case["reason"] and here in case["reason"]
    assert launches(tmp_path, KINDS) == 1
    assert sum(verdict == "PASS" for verdict in done.verdicts.values()) == 4


def test_what_could_not_run_is_run_again(site: Path, tmp_path: Path, marker: dict[str, str]) -> None:
    done = run(site, tmp_path, text=misdeeds(load="unavailable_once"), **marker)
    assert (done.code, set(done.verdicts.values())) == (5, {"ENVIRONMENT"}), done.said
    again = resume(site, tmp_path, **marker)
    assert (again.code, set(again.verdicts.values())) == (0, {"PASS"}), again.said


def test_what_a_budget_left_is_run_with_another_budget(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, "--budget", "0.0001")
    assert (done.code, set(done.verdicts.values())) == (5, {"NOT_RUN"}), done.said
    again = run(site, tmp_path, "--resume", "--budget", "5")
    assert (again.code, set(again.verdicts.values())) == (0, {"PASS"}), again.said
    assert "exceeds the budget" not in again.process.stdout
    assert "`--resume` goes on: " in done.process.stdout and "`--resume` goes on" not in again.process.stdout


def test_a_resumed_run_says_its_own_budget_and_the_estimate_of_what_is_left(
    site: Path, tmp_path: Path, marker: dict[str, str]
) -> None:
    text = misdeeds(load="unavailable_once") + "\n[estimates.embedded]\ncolours = 3000\n"
    marker["CONFORMANCE_CACHE"] = str(tmp_path / "cache")
    done = zenith_site.run(site, tmp_path, "--budget", "200", text=text, **marker)
    assert "estimate: 1 h 40 min (declared, for want of earlier runs); budget: 3 h 20 min\n" in done.process.stdout
    again = zenith_site.run(site, tmp_path, "--resume", "--budget", "300", text=text, **marker)
    assert (again.code, set(again.verdicts.values())) == (0, {"PASS"}), again.said
    assert "; budget: 5 h\n" in again.process.stdout and "estimate: 50 min" in again.process.stdout, again.said
    assert again.document["run"]["budget_minutes"] == 200
    third = zenith_site.run(site, tmp_path, "--resume", text=text, **marker)
    assert "estimate: nothing to run\n" in third.process.stdout


def test_a_target_that_was_given_up_stays_so(site: Path, tmp_path: Path, marker: dict[str, str]) -> None:
    crashes = quirk('attention = "plain"', 'options = { misdeeds = { score_pairs = "segfault" } }', "one")
    hangs = quirk('attention = "quick"', 'options = { misdeeds = { classify = "hang_once" } }', "two")
    text = profile(add=crashes + hangs)
    (tmp_path / "profile.toml").write_text(text)
    end(site, tmp_path, text, signal.SIGKILL, marker, "--attention", "quick")
    done = resume(site, tmp_path, "--attention", "quick", **marker)
    plain = [verdict for name, verdict in done.verdicts.items() if name.startswith("plain")]
    assert plain == ["CRASH", "CRASH", "NOT_RUN", "NOT_RUN", "NOT_RUN"], done.said
    assert all(verdict == "PASS" for name, verdict in done.verdicts.items() if name.startswith("quick"))
    assert sum("zenith/plain" in line.get("id", "") for line in journal_lines(tmp_path)) == 2
    assert done.cases["plain.test_hues_are_complete"]["reason"] == "the target was given up after 2 crashes"


def test_an_unfinished_run_is_put_aside_by_a_new_one_and_can_still_be_resumed(
    site: Path, tmp_path: Path, marker: dict[str, str]
) -> None:
    text = misdeeds(classify="hang_once")
    end(site, tmp_path, text, signal.SIGTERM, marker)
    done = run(site, tmp_path, text=text, **marker)
    assert (done.code, set(done.verdicts.values())) == (0, {"PASS"}), done.said
    (aside,) = done.output.glob("unfinished-*")
    assert "held an unfinished run, with verdicts for 2 of 5 cases" in done.process.stdout
    assert f"--resume --output {aside}" in done.process.stdout
    profile_file = tmp_path / "profile.toml"
    more = ("--profile", profile_file, "--suite", "colours", *PLAIN, "--resume", "--output", aside)
    again = zenith_site.conformance(site, *more, **marker)
    assert again.returncode == 0, again.stderr
    assert [case["verdict"] for case in read_document(aside / "results.json")["cases"]] == ["PASS"] * 5


def test_an_unfinished_run_of_another_plan_is_put_aside_too(site: Path, tmp_path: Path, marker: dict[str, str]) -> None:
    end(site, tmp_path, misdeeds(classify="hang_once"), signal.SIGKILL, marker)
    done = zenith_site.conformance(
        site, "--backend", "zenith", "-k", KINDS, "--suite", "colours", "--output", tmp_path / "out"
    )
    assert done.returncode == 0, done.stderr
    (aside,) = (tmp_path / "out").glob("unfinished-*")
    assert len(read_journal(aside).results) == 2 and "it is kept in" in done.stdout


def test_a_resume_into_a_folder_that_is_in_use_is_refused(site: Path, tmp_path: Path) -> None:
    with started(site, tmp_path, misdeeds(classify="hang")) as process:
        assert eventually(lambda: in_flight(tmp_path, KINDS))
        before = (tmp_path / "out" / "journal.jsonl").read_bytes()
        second = resume(site, tmp_path)
        assert second.code == 4, second.said
        assert f"another run (process {process.pid}) is writing there" in second.process.stderr
        assert (tmp_path / "out" / "journal.jsonl").read_bytes() == before


def test_an_interrupt_of_a_resume_keeps_what_both_had_ended(site: Path, tmp_path: Path, marker: dict[str, str]) -> None:
    text = misdeeds(classify="hang_once", generate="hang")
    end(site, tmp_path, text, signal.SIGKILL, marker)
    with started(site, tmp_path, text, "--resume", **marker) as process:
        assert eventually(lambda: in_flight(tmp_path, "test_names_are_complete"))
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=20)
    assert process.returncode == 2, said
    done = Ran(subprocess.CompletedProcess([], 2, said, ""), tmp_path / "out")
    assert list(done.verdicts.values()) == ["PASS"] * 3
    assert done.document["run"]["interrupted"] and len(done.document["run"]["resumed"]) == 1
