"""Runs against a server that hangs, dies or serves another model: every case has a verdict, none waits for ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import openai_server as toy
import pytest
from openai_server import Small, serving

pytest.importorskip("openai", reason="the client of servers is not installed: pip install 'conformance[openai]'")

ROOT = Path(__file__).resolve().parent.parent
KEY = "swordfish-0815-in-no-file"


def run(small: Small, folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code and results.json of a run that asks for `embedding-qwen3`; the key is told nowhere."""
    command = [sys.executable, "-m", "conformance", "--backend", "cpu", "--engine", "openai", "--url", small.url]
    command += ["--dtype", "float32", "--model", "embedding.last", "--suite", "embedding"]
    command += ["--output", str(folder), *arguments]
    own = {"CONFORMANCE_CACHE": str(folder.parent / "cache"), "OPENAI_API_KEY": KEY}
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **own}, capture_output=True, text=True, check=False, timeout=120
    )
    said = done.stdout + done.stderr
    written = "".join(file.read_text("utf-8", "replace") for file in folder.rglob("*") if file.is_file())
    assert KEY not in said + written
    return done.returncode, json.loads((folder / "results.json").read_text())


def verdicts(document: dict[str, Any]) -> list[str]:
    return [case["verdict"] for case in document["cases"]]


@pytest.mark.torch
def test_an_answer_that_never_ends_is_a_timeout(tmp_path: Path) -> None:
    with serving(Small(model="org/embedding-qwen3", max_model_len=2000)) as small:
        small.misdeeds["/v1/embeddings"] = toy.trickling
        pattern = "test_prompt_tokens_agree"
        code, document = run(small, tmp_path / "out", "--deadline", "3", "-k", pattern)
    assert code == 1 and verdicts(document) == ["TIMEOUT"]


@pytest.mark.torch
def test_a_server_that_dies_costs_the_case_in_flight_and_the_rest_is_the_environments(tmp_path: Path) -> None:
    with serving(Small(model="org/embedding-qwen3", max_model_len=2000)) as small:

        def dying(*_: Any) -> toy.Answer:
            small.misdeeds.update(dict.fromkeys(("/v1/models", "/v1/embeddings"), toy.vanishing))
            return toy.vanishing(*_)

        small.misdeeds["/v1/embeddings"] = dying
        code, document = run(small, tmp_path / "out")
    assert code == 1 and verdicts(document) == ["CRASH"] + ["ENVIRONMENT"] * (len(document["cases"]) - 1)
    assert "the engine is gone" in document["cases"][0]["reason"] and "/v1/models" in document["cases"][1]["reason"]


@pytest.mark.torch
def test_another_model_is_the_environments_with_both_names_before_anything_is_judged(tmp_path: Path) -> None:
    with serving(Small(model="org/other", max_model_len=2000)) as small:
        code, document = run(small, tmp_path / "out")
    assert code == 5 and set(verdicts(document)) == {"ENVIRONMENT"}
    assert "serves org/other, not embedding-qwen3" in document["cases"][0]["reason"]
    assert {path for path, _ in small.asked} == {"/v1/models", "/openapi.json"}
