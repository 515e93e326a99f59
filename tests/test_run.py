"""A whole run, from the command line to the files, on a vendor's engine that needs no torch: every verdict."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import zenith_site
from zenith_site import PLAIN, Ran, misdeeds, profile, quirk
from zenith_site import run_plain as run

from conformance.results.journal import read_journal
from conformance.results.rows import read_rows


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zenith_site.install(tmp_path_factory.mktemp("vendor") / "site")


def test_a_passing_run_exits_0_and_writes_the_record_junit_and_the_journal(site: Path, tmp_path: Path) -> None:
    done = zenith_site.run(site, tmp_path)
    assert (done.code, done.process.stderr) == (0, ""), done.said
    assert set(done.verdicts.values()) == {"PASS"} and len(done.verdicts) == 10
    assert done.junit == {"testcase": 10, "failure": 0, "error": 0, "skipped": 0}
    assert done.document["run"]["counters"]["references_computed"] == 0
    assert done.document["run"]["counters"]["models_loaded"] == 2
    assert done.document["run"]["counters"]["peak_worker_mib"] > 1
    assert done.document["facts"]["isa"] == "TOY"
    journal = read_journal(done.output)
    assert len(journal.results) == 10 and journal.in_flight == () and not journal.torn
    assert journal.synced == ("zenith/plain/bfloat16", "zenith/quick/bfloat16")
    assert {entry.name for entry in done.output.iterdir()} == {"results.json", "junit.xml", "journal.jsonl", ".lock"}
    assert f"written: {done.output / 'results.json'}" in done.process.stdout
    assert "10 PASS" in done.process.stdout and "exit code 0" in done.process.stdout


def test_json_is_the_record_alone_on_standard_output(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, "--json")
    assert json.loads(done.process.stdout) == done.document
    assert "5 PASS" in done.process.stderr


def test_a_run_with_the_same_inputs_has_the_same_plan_and_ids(site: Path, tmp_path: Path) -> None:
    one = run(site, tmp_path).document
    two = run(site, tmp_path).document  # the same folder: a new run replaces the former one
    assert one["run"]["plan_hash"] == two["run"]["plan_hash"]
    assert [case["id"] for case in one["cases"]] == [case["id"] for case in two["cases"]]


def test_the_command_that_a_case_names_runs_that_case_alone(site: Path, tmp_path: Path) -> None:
    done = zenith_site.run(site, tmp_path)
    case = done.cases["quick.test_hues_agree"]
    shown = case["reproduce"].split()
    assert shown[:4] == ["python", "-m", "conformance", "run"]
    again = zenith_site.conformance(site, *(part.strip("'") for part in shown[3:]), "--output", tmp_path / "again")
    assert again.returncode == 0, again.stderr
    assert [each["id"] for each in Ran(again, tmp_path / "again").document["cases"]] == [case["id"]]


def test_wrong_numbers_fail_and_their_rows_are_kept(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, text=misdeeds(score_pairs="off_by_a_third"))
    assert done.code == 1
    assert {test for test, verdict in done.verdicts.items() if verdict == "FAIL"} == {"test_hues_agree"}
    assert done.junit == {"testcase": 5, "failure": 1, "error": 0, "skipped": 0}
    case = done.cases["test_hues_agree"]
    rows = read_rows(done.output / case["rows_file"])
    assert rows.case == case["id"] and rows.total == 160
    x, r, e = (rows.arrays[name] for name in ("x", "r", "e"))
    assert abs(x / r - 1.3).max() < 0.01 and abs(e / r - 1).max() < 0.01
    assert "160 scores" in case["message"] and case["message"] in done.process.stdout.replace("\n    ", "\n")


def test_numbers_that_are_none_fail(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, text=misdeeds(classify="nan"))
    assert (done.code, done.verdicts["test_kinds_are_complete"]) == (1, "FAIL")
    assert "nan" in done.cases["test_kinds_are_complete"]["message"].lower()


@pytest.mark.parametrize(("misdeed", "said"), [("other_kernel", "zenith::slow"), ("other_dtype", "'float32'")])
def test_what_did_not_run_as_requested_fails_whatever_its_numbers(
    site: Path, tmp_path: Path, misdeed: str, said: str
) -> None:
    done = run(site, tmp_path, text=misdeeds(score_pairs=misdeed))
    asked = {"test_hue_tokens_agree", "test_hues_agree", "test_hues_are_complete"}
    assert {test for test, verdict in done.verdicts.items() if verdict == "FAIL"} == asked
    assert all(said in done.cases[test]["message"] for test in asked)


def test_what_the_engine_raises_is_an_error_with_its_trace(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, text=misdeeds(classify="raise"))
    case = done.cases["test_kinds_are_complete"]
    assert (done.code, case["verdict"]) == (1, "ERROR")
    assert case["reason"] == "classify raised ValueError: the engine lost its way"
    assert "Traceback (most recent call last)" in case["message"] and "misdeed" in case["message"]
    assert done.junit == {"testcase": 5, "failure": 0, "error": 1, "skipped": 0}


def test_what_the_engine_refuses_though_the_profile_claims_it_makes_the_run_incomplete(
    site: Path, tmp_path: Path
) -> None:
    done = run(site, tmp_path, text=misdeeds(classify="not_supported"))
    case = done.cases["test_kinds_are_complete"]
    assert (done.code, case["verdict"]) == (6, "NOT_SUPPORTED")
    assert case["reason"] == "this build knows no colours"
    refused = "1 case was refused by the engine although the profile claims it: this build knows no colours."
    assert refused in done.document["not_covered"]
    assert done.junit["skipped"] == 1


def test_an_engine_that_supports_nothing_that_was_asked_executes_nothing(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, text=misdeeds(load="not_supported"))
    assert (done.code, set(done.verdicts.values())) == (5, {"NOT_SUPPORTED"})


def test_without_the_device_every_case_is_environment_and_both_files_are_written(site: Path, tmp_path: Path) -> None:
    done = zenith_site.run(site, tmp_path, text=profile(device="zenith"), ZENITH_DEVICES="0")
    assert done.code == 5, done.said
    assert set(done.verdicts.values()) == {"ENVIRONMENT"}
    assert done.junit == {"testcase": 10, "failure": 0, "error": 0, "skipped": 10}
    assert done.said.count("conformance doctor --profile") == 1 and "profile.toml` says why" in done.said
    reasons = {case["reason"] for case in done.cases.values()}
    assert reasons == {"torch 2.13.0 sees no zenith device on this machine (torch.zenith.is_available() is False)"}


def test_a_device_that_is_there_is_named_and_held_by_one_run_at_a_time(site: Path, tmp_path: Path) -> None:
    done = zenith_site.run(site, tmp_path, text=profile(device="zenith"))
    assert done.code == 0, done.said
    assert "device: Zenith 1000" in done.process.stdout
    assert list((site.parent / "runtime").rglob("zenith*.lock"))


def test_a_torch_that_is_too_old_is_an_environment(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, ZENITH_TORCH="2.5.1")
    assert done.code == 5
    reasons = {case["reason"] for case in done.cases.values()}
    assert reasons == {"torch 2.5.1 is too old; 2.6 or newer is needed"}


def test_a_part_that_cannot_run_here_makes_the_run_incomplete(site: Path, tmp_path: Path) -> None:
    when, effect = 'attention = "quick"', 'options = { misdeeds = { load = "unavailable" } }'
    done = zenith_site.run(site, tmp_path, text=profile(add=quirk(when, effect)))
    assert done.code == 6, done.said
    assert set(done.verdicts.values()) == {"PASS", "ENVIRONMENT"}
    assert done.cases["quick.test_hues_agree"]["reason"] == "this build needs a newer driver"


def test_an_engine_that_cannot_be_imported_is_an_environment(site: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    zenith_site.write_metadata(broken, "nadir-engine", "[conformance.engines]\nnadir = nadir_is_not_installed:Runner\n")
    text = profile().replace("engines.zenith", "engines.nadir").replace('["zenith"]', '["nadir"]')
    done = run(site, tmp_path, text=text, PYTHONPATH=f"{site}{os.pathsep}{broken}")
    assert (done.code, set(done.verdicts.values())) == (5, {"ENVIRONMENT"}), done.said
    assert "No module named 'nadir_is_not_installed'" in done.cases["test_hues_agree"]["reason"]


def test_a_quirk_that_skips_is_named_with_its_reason_and_what_it_takes_away(site: Path, tmp_path: Path) -> None:
    text = profile(device="zenith", add=quirk('suite = "colours", device = "Zenith 1*"', "skip = true"))
    done = run(site, tmp_path, text=text)
    assert (done.code, set(done.verdicts.values())) == (5, {"SKIPPED"})
    case = done.cases["test_hues_agree"]
    assert case["reason"] == "quirk colours-run (until 2027-02-28): the colours run; zenith issue 7"
    assert case["quirks"] == ["colours-run"]
    assert any("what the quirk takes away" in sentence for sentence in done.document["not_covered"])


def test_a_quirk_changes_what_runs_and_not_what_is_certified(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, text=profile(add=quirk('attention = "plain"', 'attention = "quick"')))
    case = done.cases["test_hues_agree"]
    assert done.code == 0, done.said
    assert "[zenith/plain/bfloat16]" in case["id"]
    assert case["effective"]["attention"] == "quick" and set(case["effective"]["kernels"]) == {"zenith::quick"}


@pytest.mark.parametrize(
    ("option", "effect", "without"),
    [("longest_text = 4", "max_tokens = 4", "ERROR"), ("largest_batch = 8", "batch_size = 8", "CRASH")],
)
def test_a_quirk_caps_what_the_engine_is_asked_for(
    site: Path, tmp_path: Path, option: str, effect: str, without: str
) -> None:
    engine = f"options = {{ {option} }}"
    bare = run(site, tmp_path / "bare", text=profile(engine=engine))
    capped = run(site, tmp_path / "capped", text=profile(engine=engine, add=quirk('suite = "colours"', effect)))
    assert bare.code == 1 and without in bare.verdicts.values()
    assert capped.code == 0, capped.said
    assert capped.cases["test_names_are_complete"]["quirks"] == ["colours-run"]


def test_an_expired_quirk_is_not_applied_and_is_reported(site: Path, tmp_path: Path) -> None:
    text = profile(add=quirk('suite = "colours"', "skip = true"))
    done = run(site, tmp_path, "--as-of", "2028-01-01", text=text)
    assert (done.code, set(done.verdicts.values())) == (0, {"PASS"})
    assert "Quirk colours-run has expired and was not applied." in done.document["not_covered"]


def test_secrets_and_the_places_of_this_machine_are_in_no_file(site: Path, tmp_path: Path) -> None:
    secret = "wX9-not-for-anyone-4711"
    home = str(site.parent / "home-of-somebody")
    text = misdeeds(classify="tell_secrets", score_pairs="off_by_a_third")
    done = run(site, tmp_path, text=text, ZENITH_TOKEN=secret, HOME=home, USER="somebody", LOGNAME="somebody")
    assert done.cases["test_kinds_are_complete"]["verdict"] == "ERROR"
    assert "<secret>" in done.cases["test_kinds_are_complete"]["reason"]
    written = [file for file in done.output.rglob("*") if file.is_file()]
    assert {file.name for file in written if file.parent.name != "rows"} == {
        "results.json",
        "junit.xml",
        "journal.jsonl",
        ".lock",
    }
    assert len(written) == 5
    for file in written:
        content = file.read_bytes()
        assert secret.encode() not in content, file
        assert home.encode() not in content, file


def test_what_a_former_run_left_is_never_taken_for_this_one(site: Path, tmp_path: Path) -> None:
    former = run(site, tmp_path, text=misdeeds(score_pairs="off_by_a_third"))
    assert former.code == 1 and (tmp_path / "out" / "rows").is_dir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    done = run(site, tmp_path, text=misdeeds(load="unavailable"))
    assert set(done.verdicts.values()) == {"ENVIRONMENT"} and len(read_journal(done.output).results) == 5
    names = {file.name for file in done.output.iterdir()}
    assert names == {"results.json", "junit.xml", "journal.jsonl", ".lock", "notes.txt"}


@pytest.mark.parametrize("name", ["results.json", "junit.xml", "journal.jsonl", ".lock"])
def test_a_file_of_somebody_elses_is_never_replaced(site: Path, tmp_path: Path, name: str) -> None:
    file = tmp_path / "out" / name
    (tmp_path / "out" / "rows").mkdir(parents=True)
    (tmp_path / "out" / "rows" / "mine.csv").touch()
    file.write_text('{"kind": "mine"}\n')
    done = run(site, tmp_path)
    assert done.code == 4 and f"{file}: the folder holds a file of that name which is not a former" in done.said
    assert file.read_text() == '{"kind": "mine"}\n' and (tmp_path / "out" / "rows" / "mine.csv").is_file()


def test_a_former_runs_rows_are_removed_and_no_other_file_beside_them(site: Path, tmp_path: Path) -> None:
    former = run(site, tmp_path, text=misdeeds(score_pairs="off_by_a_third"))
    assert former.code == 1
    (tmp_path / "out" / "rows" / "mine.safetensors").touch()
    assert run(site, tmp_path).code == 0
    assert [file.name for file in (tmp_path / "out" / "rows").iterdir()] == ["mine.safetensors"]


def test_a_model_folder_of_the_users_is_measured_with_a_reference_of_its_own(site: Path, tmp_path: Path) -> None:
    folder = tmp_path / "their-colours"
    zenith_site.write_model(folder)
    done = run(site, tmp_path, "--model", f"colours={folder}", CONFORMANCE_CACHE=str(tmp_path / "cache"))
    # The stand-in for torch computes no reference: that is no fault of the engine.
    assert (done.code, set(done.verdicts.values())) == (5, {"ENVIRONMENT"}), done.said
    assert "the reference of their-colours cannot be computed here" in done.cases["test_hues_agree"]["reason"]


def altered(site: Path, folder: Path) -> Path:
    """A copy of the site, to be changed."""
    return Path(shutil.copytree(site, folder / "altered"))


def test_a_test_that_judges_nothing_is_no_pass(site: Path, tmp_path: Path) -> None:
    other = altered(site, tmp_path)
    suite = other / "zenith" / "colours.py"
    judging = "self.judge(criteria.observed.is_complete(self.observed.kinds, count=len(self.bench.inputs.prompts)))"
    assert judging in suite.read_text()
    suite.write_text(suite.read_text().replace(judging, "pass"))
    done = run(other, tmp_path)
    assert (done.code, done.verdicts["test_kinds_are_complete"]) == (1, "UNDERPOWERED")
    assert "judged nothing" in done.cases["test_kinds_are_complete"]["reason"]


def test_a_suite_that_cannot_be_made_is_an_error_of_its_cases_and_the_run_goes_on(site: Path, tmp_path: Path) -> None:
    other = altered(site, tmp_path)
    engine = other / "conformance_breaks.py"
    engine.write_text(
        "import conformance.execution.measurement as measurement\n"
        "class Broken(measurement.Session):\n"
        "    def __init__(self, group, *rest):\n"
        "        if group.first.effective_target.attention == 'plain':\n"
        "            raise KeyError('no such thing')\n"
        "        super().__init__(group, *rest)\n"
        "measurement.Session = Broken\n"
        "from conformance.__main__ import main\n"
        "raise SystemExit(main())\n"
    )
    command = [sys.executable, "-m", "conformance_breaks", "--backend", "zenith", "--suite", "colours"]
    process = zenith_site.executed(other, [*command, "--output", str(tmp_path / "out")])
    done = Ran(process, tmp_path / "out")
    assert done.code == 1, done.said
    assert {verdict for name, verdict in done.verdicts.items() if name.startswith("plain")} == {"ERROR"}
    assert {verdict for name, verdict in done.verdicts.items() if name.startswith("quick")} == {"PASS"}
    assert done.cases["plain.test_hues_agree"]["reason"] == "KeyError: 'no such thing'"
    assert done.junit["error"] == 5


@pytest.mark.parametrize("arguments", [(), ("--json",)])
@pytest.mark.parametrize("sink", ["a full disk", "a reader that has gone"])
def test_an_output_that_nobody_can_read_costs_no_results(
    site: Path, tmp_path: Path, sink: str, arguments: tuple[str, ...]
) -> None:
    if sink == "a full disk":
        writing = os.open("/dev/full", os.O_WRONLY)
    else:
        reading, writing = os.pipe()
        os.close(reading)
    (tmp_path / "profile.toml").write_text(misdeeds(score_pairs="off_by_a_third"))
    command = [sys.executable, "-m", "conformance", "--profile", str(tmp_path / "profile.toml"), "--suite", "colours"]
    process = subprocess.run(
        [*command, *PLAIN, "--output", str(tmp_path / "out"), *arguments],
        cwd=zenith_site.ROOT,
        env=zenith_site.environment(site),
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    os.close(writing)
    done = Ran(process, tmp_path / "out")
    assert done.code == done.document["run"]["exit_code"] == 1, process.stderr
    assert len(done.verdicts) == done.junit["testcase"] == 5
    assert "Traceback" not in process.stderr and "Exception ignored" not in process.stderr


def test_a_damaged_reference_is_an_error_that_names_the_file(site: Path, tmp_path: Path) -> None:
    other = altered(site, tmp_path)
    part = other / "zenith" / "checkpoints" / "tiny-colours" / "references" / "reference.safetensors"
    part.write_bytes(part.read_bytes()[:-1] + b"\xff")
    done = run(other, tmp_path)
    assert (done.code, set(done.verdicts.values())) == (1, {"ERROR"})
    reason = done.cases["test_hues_agree"]["reason"]
    assert "reference.safetensors: its sha256 is not the manifest's" in reason and str(part) in reason


def test_every_report_says_what_a_pass_does_not_cover(site: Path, tmp_path: Path) -> None:
    disclaimer = (
        '\n[[disclaimed]]\nengine = "zenith"\nattention = "slow"\nwhat = "slow attention"\nreason = "it is slow"\n'
        '\n[[disclaimed]]\nengine = "sglang"\nwhat = "another engine"\nreason = "it is not asked for"\n'
    )
    vllm = (
        '\n[engines.vllm]\ninstalled_by = "vllm"\n[engines.vllm.attention.PAGED]\n'
        'precision = { bfloat16 = "fused" }\nkernels = ["zenith::paged"]\n[engines.vllm.attention.FLAT]\n'
        'precision = { bfloat16 = "fused" }\nkernels = ["zenith::flat"]\n'
    )
    done = zenith_site.run(site, tmp_path, text=profile(add=vllm + disclaimer))
    said = "\n".join(done.document["not_covered"])
    for part in (
        "Only these models were run: tiny-colours.",
        "zenith/plain/bfloat16: on a CPU this is the yardstick itself",
        "The embedded models are tiny",
        "The profile disclaims slow attention (zenith/slow): it is slow",
        "Claimed, but not installed here and so not run: vllm/PAGED, vllm/FLAT.",
    ):
        assert part in said, said
        assert part in done.process.stdout
    assert "another engine" not in said
