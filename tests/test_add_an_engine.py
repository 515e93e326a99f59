"""docs/add-an-engine.md, followed to the letter: its class, its entry point and its claims make an engine that runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import zenith_site

from conformance.results.output import RESULTS
from conformance.results.validation import read_document

pytestmark = pytest.mark.torch

PAGE = Path(__file__).parent.parent / "docs" / "add-an-engine.md"
BACKEND = """
[backend]
name = "acme"
description = "Acme's engine on a CPU"
device = "cpu"
default_engines = ["acme"]

[dtypes]
default = ["float32"]
supported = ["float32", "bfloat16"]
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.S)


def test_the_engine_of_the_page_runs_as_the_page_says(tmp_path: Path) -> None:
    (runner,) = blocks("python")
    package, claims, variations = blocks("toml")
    site = tmp_path / "site"
    (site / "acme_engine").mkdir(parents=True)
    (site / "acme_engine" / "__init__.py").touch()
    (site / "acme_engine" / "runner.py").write_text(runner)
    (point,) = re.findall(r'^acme = "(.*)"$', package, re.M)
    zenith_site.write_metadata(site, "acme-engine", f"[conformance.engines]\nacme = {point}\n")
    profile = tmp_path / "profile.toml"
    profile.write_text(BACKEND + claims + variations)
    checked = zenith_site.conformance(site, "validate", "--profile", profile)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    only = ("--model", "classification", "--model", "reward", "-k", "*.test_prompt_tokens_agree*")
    done = zenith_site.conformance(site, "run", "--profile", profile, *only, "--output", tmp_path / "out")
    ran = {case["model"]: case["verdict"] for case in read_document(tmp_path / "out" / RESULTS)["cases"]}
    assert ran == {"classification-qwen2": "PASS", "reward-qwen3": "NOT_SUPPORTED"}, done.stdout + done.stderr
    assert done.returncode == 6  # refused by the engine, though the profile claims it
