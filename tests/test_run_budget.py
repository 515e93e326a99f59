"""Named runs, budgets and estimates of a whole run, on a vendor's engine that needs no torch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import zenith_site
from zenith_site import misdeeds, profile
from zenith_site import run_plain as run

from conformance.timings import FILE, load

RUNS = """
[runs.presubmit]
suites = ["colours"]
tier = "embedded"
budget_minutes = 10

[runs.hurried]
suites = ["colours"]
tier = "embedded"
budget_minutes = 0.0001
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zenith_site.install(tmp_path_factory.mktemp("vendor") / "site")


def test_a_run_without_a_budget_has_none_and_says_its_estimate(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, CONFORMANCE_CACHE=str(tmp_path / "cache"))
    assert done.document["run"]["budget_minutes"] is None
    assert done.document["run"]["estimate"] == {"duration_s": 0.0, "learnt_s": 0.0, "cases_without": 5}
    assert "estimate: 5 cases have no estimate\n" in done.process.stdout


def test_a_run_teaches_the_next_one(site: Path, tmp_path: Path) -> None:
    cache = {"CONFORMANCE_CACHE": str(tmp_path / "cache")}
    first = run(site, tmp_path, **cache)
    assert first.code == 0, first.said
    learnt = load(tmp_path / "cache").entries
    assert [(one.backend, one.target, one.model, one.suite) for one in learnt] == [
        ("zenith", "zenith/plain/bfloat16", "tiny-colours", "colours")
    ]
    second = run(site, tmp_path, **cache)
    assert "(learnt from earlier runs)" in second.process.stdout
    estimate = second.document["run"]["estimate"]
    assert estimate["cases_without"] == 0 and 0 < estimate["learnt_s"] == estimate["duration_s"] < 60
    assert len(load(tmp_path / "cache").entries) == 2


def test_a_run_whose_engine_breaks_down_teaches_nothing(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, text=misdeeds(classify="raise"), CONFORMANCE_CACHE=str(tmp_path / "cache"))
    assert done.code == 1 and not (tmp_path / "cache" / FILE).exists()


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir])
def test_a_cache_that_cannot_be_used_is_said_and_costs_nothing_else(site: Path, tmp_path: Path, make: object) -> None:
    blocked = tmp_path / "cache"
    if make is Path.touch:
        blocked.touch()  # a file where the folder should be
    else:
        (blocked / FILE).mkdir(parents=True)  # a folder where the file should be
    done = run(site, tmp_path, CONFORMANCE_CACHE=str(blocked))
    assert (done.code, set(done.verdicts.values())) == (0, {"PASS"}), done.said
    assert f"how long the suites took could not be kept in {blocked}" in done.process.stdout
    assert "internal error" not in done.said


def test_a_spent_budget_starts_no_further_case_and_keeps_the_verdicts(site: Path, tmp_path: Path) -> None:
    # The third test sleeps past the budget: the first two have their verdicts, and it gets its own.
    text = profile(engine='options = { misdeeds = { classify = "dawdle" } }')
    done = run(site, tmp_path, "--budget", "0.1", text=text)
    assert done.code == 6, done.said
    assert list(done.verdicts.values()) == ["PASS", "PASS", "PASS", "NOT_RUN", "NOT_RUN"]
    case = done.cases["test_hues_are_complete"]
    assert case["reason"] == ("the budget of 6 s was spent before the case could start; --budget MINUTES gives more")
    assert (case["attempts"], case["started"]) == (0, "")
    assert done.junit == {"testcase": 5, "failure": 0, "error": 2, "skipped": 0}
    assert done.document["run"]["budget_minutes"] == 0.1
    journal = (done.output / "journal.jsonl").read_text().splitlines()
    assert json.loads(journal[0])["budget_minutes"] == 0.1
    assert sum('"started", "id"' in line for line in journal) == 3


def test_a_named_run_has_its_budget_and_the_option_overrides_it(site: Path, tmp_path: Path) -> None:
    text = profile(add=RUNS)
    hurried = run(site, tmp_path, "--run", "hurried", text=text)
    assert (hurried.code, set(hurried.verdicts.values())) == (5, {"NOT_RUN"})
    assert hurried.document["run"]["budget_minutes"] == 0.0001
    longer = run(site, tmp_path, "--run", "hurried", "--budget", "5", text=text)
    assert (longer.code, longer.document["run"]["budget_minutes"]) == (0, 5.0), longer.said
    assert longer.document["run"]["plan_hash"] == hurried.document["run"]["plan_hash"]
    named = run(site, tmp_path, "--run", "presubmit", "-k", "hues_agree", text=text)
    assert (named.code, list(named.verdicts), named.document["run"]["budget_minutes"]) == (0, ["test_hues_agree"], 10.0)
    assert "; budget: 10 min\n" in named.process.stdout


def test_an_estimate_beyond_the_budget_is_said_before_the_first_case(site: Path, tmp_path: Path) -> None:
    text = profile(add="\n[estimates.embedded]\ncolours = 3000\n")
    done = run(site, tmp_path, "--budget", "5", text=text, CONFORMANCE_CACHE=str(tmp_path / "cache"))
    assert done.code == 0, done.said
    said = done.process.stdout
    assert "estimate: 50 min (declared, for want of earlier runs); budget: 5 min\n" in said
    warning = "the estimate of 50 min exceeds the budget of 5 min: what has not started by then will be NOT_RUN"
    assert 0 < said.index(warning) < said.index("[5/5]")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--budget", "0"), "'0' is no number of minutes above 0"),
        (("--budget", "-3"), "'-3' is no number of minutes above 0"),
        (("--budget", "soon"), "'soon' is no number of minutes above 0"),
        (("--budget", "nan"), "'nan' is no number of minutes above 0"),
        (("--run", "presumbit"), "unknown run 'presumbit'; did you mean 'presubmit'?"),
        (
            ("--run", "presubmit", "--suite", "reward"),
            "suite 'reward' is not in the run 'presubmit'; known are colours",
        ),
    ],
)
def test_a_wrong_budget_or_run_is_a_usage_error(
    site: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = run(site, tmp_path, *arguments, text=profile(add=RUNS))
    assert (done.code, message in done.process.stderr) == (4, True), done.said
    assert not done.output.exists()
