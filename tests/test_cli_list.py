"""`list` as a newcomer reads it: how much, how long, which runs there are, which promises, and why there is nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import world
import zenith_site
from zenith_site import conformance, profile

from conformance.catalogue import Catalogue
from conformance.cli.arguments import Inputs
from conformance.cli.nothing_selected import reasons
from conformance.selection import Selection
from conformance.timings import Timing, Timings, save

RUNS = """
[estimates.embedded]
colours = 40

[runs.presubmit]
suites = ["colours"]
tier = "embedded"
budget_minutes = 10

[runs.hurried]
suites = ["*"]
tier = "embedded"
budget_minutes = 0.5
"""
TESTS = (
    "test_hue_tokens_agree",
    "test_hues_agree",
    "test_hues_are_complete",
    "test_kinds_are_complete",
    "test_names_are_complete",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zenith_site.install(tmp_path_factory.mktemp("vendor") / "site")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "profile.toml"
    path.write_text(profile(add=RUNS))
    return path


def test_the_plan_ends_with_cases_and_estimate_of_each_suite_and_with_the_named_runs(site: Path, file: Path) -> None:
    done = conformance(site, "list", "--profile", file)
    assert done.returncode == 0, done.stderr
    said = done.stdout
    assert "suite           cases  to run  estimate\n" in said
    assert "colours            10      10  1 min 20 s, declared\n" in said
    assert "zenith: " in said and "; estimate: " in said
    assert (
        "runs that the profile names (--run NAME):\n"
        "  presubmit  colours, embedded models: 10 cases, 10 to run; estimate 1 min 20 s, declared; budget 10 min\n"
        "  hurried    every suite, embedded models: "
    ) in said
    assert said.rstrip().endswith("; over its budget of 30 s")


def test_what_was_learnt_is_told_from_what_is_declared(site: Path, file: Path, tmp_path: Path) -> None:
    learnt = Timing(
        "zenith", "zenith/plain/bfloat16", "tiny-colours", "colours", "", TESTS, 2.0, "2026-11-30T10:00:00Z"
    )
    save(tmp_path / "cache", Timings((learnt,)))
    arguments = ("list", "--profile", file, "--suite", "colours", "--json")
    record = json.loads(conformance(site, *arguments, CONFORMANCE_CACHE=str(tmp_path / "cache")).stdout)
    expected = {"duration_s": 42.0, "learnt_s": 2.0, "cases_without": 0}
    assert record["estimate"] == expected
    assert record["suites"] == [{"suite": "colours", "cases": 10, "to_run": 10, "estimate": expected}]
    first = record["runs"][0]
    assert (first["name"], first["budget_minutes"], first["cases"], first["estimate"]) == (
        "presubmit",
        10,
        10,
        expected,
    )


def test_a_damaged_memory_of_earlier_runs_is_said_and_costs_nothing_else(
    site: Path, file: Path, tmp_path: Path
) -> None:
    (tmp_path / "timings.json").write_text("{")
    done = conformance(site, "list", "--profile", file, CONFORMANCE_CACHE=str(tmp_path))
    assert done.returncode == 0 and "nothing was learnt from earlier runs" in done.stderr


def test_runs_alone_are_shown_whatever_else_is_selected(site: Path, file: Path) -> None:
    done = conformance(site, "list", "--profile", file, "--runs", "-k", "hues")
    assert done.returncode == 0 and done.stdout.startswith("runs that the profile names")
    assert "colours, embedded models: 10 cases" in done.stdout and "test_hues" not in done.stdout
    record = json.loads(conformance(site, "list", "--profile", file, "--runs", "--json").stdout)
    assert [run["name"] for run in record] == ["presubmit", "hurried"]


def test_a_profile_without_runs_says_how_to_name_some(site: Path) -> None:
    done = conformance(site, "list", "--backend", "zenith", "--runs")
    assert (done.returncode, "names no runs; [runs.NAME] in it does" in done.stdout) == (0, True)


def test_requirements_are_listed_with_their_sentence_and_their_cases(site: Path, file: Path) -> None:
    done = conformance(site, "list", "--profile", file, "--requirements", "--suite", "colours", "-k", "hues")
    assert done.returncode == 0, done.stderr
    lines = [line.split("  ") for line in done.stdout.splitlines()]
    assert [line[0] for line in lines[:5]] == ["COL-010", "COL-020", "COL-030", "COL-040", "COL-050"]
    assert lines[1][-1] == "Hues MUST equal the reference's within the rounding of the served dtype."
    assert [" ".join(line[2:-1]).strip() for line in lines[:5]] == [
        "no case",
        "2 cases",
        "no case",
        "no case",
        "2 cases",
    ]
    assert done.stdout.rstrip().endswith("5 requirements; 3 of them without a case in this plan")


def test_requirements_as_json_say_how_many_cases_are_to_run(site: Path, tmp_path: Path) -> None:
    path = tmp_path / "profile.toml"
    path.write_text(profile(add=zenith_site.quirk('attention = "quick"', "skip = true") + RUNS))
    arguments = ("list", "--profile", path, "--requirements", "--run", "presubmit")
    record = json.loads(conformance(site, *arguments, "--json").stdout)
    assert record[0] == {
        "id": "COL-010",
        "suite": "colours",
        "statement": "The engine MUST read the reference's very tokens.",
        "cases": 2,
        "to_run": 1,
    }
    assert "2 cases (1 to run)" in conformance(site, *arguments).stdout


@pytest.mark.parametrize("command", ["list", "run"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("-k", "test_heus_agree"),
            "none of the 10 cases that the rest of the selection leaves; did you mean 'test_hues_",
        ),
        (("--run", "presubmit", "-k", "zzz"), "-k 'zzz' matches the id of none of the 10 cases"),
        (("--model", "reward"), "--model names reward, and the suites selected play colours"),
    ],
)
def test_a_selection_that_leaves_nothing_says_why(
    site: Path, file: Path, command: str, arguments: tuple[str, ...], message: str
) -> None:
    done = conformance(site, command, "--profile", file, "--suite", "colours", *arguments)
    assert (done.returncode, message in done.stdout + done.stderr) == (5, True), done.stdout + done.stderr


def test_a_suite_whose_default_dtypes_nobody_claims_is_explained(site: Path, tmp_path: Path) -> None:
    path = tmp_path / "profile.toml"
    text = profile(plain="").replace('supported = ["bfloat16"]', 'supported = ["bfloat16", "float32"]')
    text = text.replace('{ bfloat16 = "fused" }', '{ bfloat16 = "fused", float32 = "ieee" }')
    path.write_text(text.replace("[engines.zenith]", '[dtypes.suites]\ncolours = ["float32"]\n\n[engines.zenith]'))
    done = conformance(site, "list", "--profile", path, "--suite", "colours", "--attention", "plain")
    assert done.returncode == 5
    assert "colours (colours) runs in float32 unless --dtype says otherwise, which no selected attention" in done.stdout


def test_a_suite_that_no_model_plays_says_so() -> None:
    catalogue = Catalogue(world.CATALOGUE.models[:1])
    inputs = Inputs(world.profile(), world.SUITES, catalogue, {}, Selection(suites=("pairs",)), {})
    assert reasons(inputs.plan(), inputs) == ["no selected model plays the role of the suite pairs (pairs.encoder)"]


@pytest.mark.parametrize("arguments", [("--runs",), ("--requirements",), ()])
def test_listing_imports_neither_torch_nor_numpy(site: Path, file: Path, arguments: tuple[str, ...]) -> None:
    (site / "numpy_guard").mkdir(exist_ok=True)
    for heavy in ("numpy", "torch", "transformers", "safetensors", "rich"):
        (site / "numpy_guard" / f"{heavy}.py").write_text("raise SystemExit('heavy')\n")
    path = f"{site / 'numpy_guard'}:{site}"
    done = conformance(site, "list", "--profile", file, "--suite", "colours", *arguments, PYTHONPATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
