"""`python -m unittest SUITE` runs the cases that `python -m conformance` runs, with the same outcomes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import zenith_site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zenith_site.install(tmp_path_factory.mktemp("vendor") / "site")


def unittest(site: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "unittest", "-v", *arguments, "zenith.colours"],
        cwd=zenith_site.ROOT,
        env=zenith_site.environment(site, **environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def ids(text: str) -> list[str]:
    return re.findall(r"^(colours\.\S+)$", text, re.M)


def with_misdeeds(site: Path, folder: Path, misdeeds: str) -> Path:
    """The site with a backend of its own, whose engine does these."""
    other = folder / "nadir_site"
    (other / "nadir").mkdir(parents=True)
    (other / "nadir" / "__init__.py").touch()
    text = zenith_site.profile(engine=f"options = {{ misdeeds = {{ {misdeeds} }} }}")
    (other / "nadir" / "profile.toml").write_text(text)
    zenith_site.write_metadata(other, "nadir-conformance", "[conformance.backends]\nnadir = nadir\n")
    return other


def test_the_cases_of_a_module_are_those_of_the_plan(site: Path, tmp_path: Path) -> None:
    done = unittest(site, CONFORMANCE_BACKEND="zenith")
    assert done.returncode == 0, done.stderr
    assert "Ran 10 tests" in done.stderr and done.stderr.rstrip().endswith("OK")
    planned = zenith_site.run(site, tmp_path).document["cases"]
    assert ids(done.stderr) == [case["id"] for case in planned]


def test_arguments_select_as_on_the_command_line(site: Path) -> None:
    done = unittest(site, CONFORMANCE_BACKEND="zenith", CONFORMANCE_ARGUMENTS="--attention quick -k hues")
    assert done.returncode == 0, done.stderr
    assert "Ran 2 tests" in done.stderr and {"[zenith/quick/bfloat16]" in each for each in ids(done.stderr)} == {True}


def test_unittests_own_selection_holds_too(site: Path) -> None:
    done = unittest(site, "-k", "kinds", CONFORMANCE_BACKEND="zenith")
    assert "Ran 2 tests" in done.stderr, done.stderr


def test_without_a_backend_the_error_says_what_to_set(site: Path) -> None:
    done = unittest(site)
    assert done.returncode == 1
    assert "set CONFORMANCE_BACKEND to the backend under test, e.g. CONFORMANCE_BACKEND=cpu" in done.stderr


def test_an_unknown_backend_is_answered_as_on_the_command_line(site: Path) -> None:
    done = unittest(site, CONFORMANCE_BACKEND="zenit")
    assert done.returncode == 1 and "unknown backend 'zenit'; did you mean 'zenith'?" in done.stderr


def test_a_model_folder_that_cannot_be_used_is_said(site: Path, tmp_path: Path) -> None:
    zenith_site.write_model(tmp_path / "mine")
    (tmp_path / "mine" / "config.json").write_text("{")
    arguments = f"--model colours={tmp_path / 'mine'}"
    done = unittest(site, CONFORMANCE_BACKEND="zenith", CONFORMANCE_ARGUMENTS=arguments)
    assert done.returncode == 1 and "config.json: not JSON" in done.stderr


def test_outcomes_are_those_of_a_run(site: Path, tmp_path: Path) -> None:
    misdeeds = 'score_pairs = "off_by_a_third", classify = "not_supported", generate = "segfault"'
    other = with_misdeeds(site, tmp_path, misdeeds)
    done = unittest(
        site,
        PYTHONPATH=f"{site}:{other}",
        CONFORMANCE_BACKEND="nadir",
        CONFORMANCE_ARGUMENTS="--attention plain",
    )
    assert done.returncode == 1
    assert "FAILED (failures=1, errors=1, skipped=1)" in done.stderr, done.stderr
    assert "FAIL: 160 scores" in done.stderr.replace("AssertionError: ", "")
    assert "CaseError: CRASH: the worker was killed by SIGSEGV while running generate" in done.stderr
    assert "skipped 'NOT_SUPPORTED: this build knows no colours'" in done.stderr


def test_after_two_crashes_the_rest_is_not_run(site: Path, tmp_path: Path) -> None:
    other = with_misdeeds(site, tmp_path, 'score_pairs = "segfault"')
    done = unittest(
        site,
        PYTHONPATH=f"{site}:{other}",
        CONFORMANCE_BACKEND="nadir",
        CONFORMANCE_ARGUMENTS="--attention plain",
    )
    assert done.stderr.count("CaseError: CRASH: ") == 2
    assert done.stderr.count("CaseError: NOT_RUN: the target was given up after 2 crashes") == 3, done.stderr


def test_a_device_that_is_not_there_skips_every_case_with_the_reason(site: Path) -> None:
    done = unittest(site, CONFORMANCE_BACKEND="zenith", ZENITH_TORCH="2.0")
    assert done.stderr.count("skipped 'ENVIRONMENT: torch 2.0 is too old") == 10, done.stderr


def test_a_case_outside_its_suite_says_that_it_cannot_run() -> None:
    from unittest import TestResult

    from world import plan

    from conformance.discovery import PlannedCase

    result = TestResult()
    PlannedCase(plan().cases[0]).run(result)
    assert "runs only in the suite that planned it" in result.errors[0][1]
