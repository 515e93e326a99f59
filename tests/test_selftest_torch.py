"""selftest and planted faults on the real engine: a few seconds' worth of each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from conformance.results.planted import planted_of
from conformance.results.validation import read_document
from conformance.selftest.document import schema

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parent.parent


def conformance(*arguments: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "conformance", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_faults_of_an_encoder_are_found_and_a_correct_kernel_is_not_accused(tmp_path: Path) -> None:
    faults = (
        "--fault",
        "mask.encoder-causal",
        "--fault",
        "activation.gelu-tanh",
        "--fault",
        "mask.encoder-causal@middle",
    )
    done = conformance(
        "selftest",
        "--backend",
        "cpu",
        "--suite",
        "embedding",
        *faults,
        "--null",
        "kernel.splits-3",
        "--output",
        tmp_path,
    )
    made = json.loads((tmp_path / "selftest.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(schema()).validate(made)
    assert done.returncode == 0, done.stdout + done.stderr
    results = {(one["name"], one["model"], one["dtype"]): one for one in made["trials"]}
    assert results["mask.encoder-causal", "embedding-xlmr", "float32"]["result"] == "found"
    assert results["mask.encoder-causal@middle", "embedding-xlmr", "bfloat16"]["result"] == "found"
    subtle = results["activation.gelu-tanh", "embedding-xlmr", "float32"]
    assert subtle["result"] == "found" and not subtle["elsewhere"]["cosine-1e-3"]
    assert subtle["evidence"]["requirement_id"] == "EMB-030"
    assert results["kernel.splits-3", "embedding-qwen3", "bfloat16"]["result"] == "no alarm"
    rules = {one["rule"]: one for one in made["total"]["rules"]}
    assert rules["2x-eager"]["detected"]["total"] > 0  # the eager yardstick was found


def test_a_run_of_the_real_engine_finds_what_is_planted(tmp_path: Path) -> None:
    select = ("--suite", "embedding", "--attention", "sdpa", "--dtype", "bfloat16", "--model", "embedding.encoder")
    done = conformance("run", "--backend", "cpu", "--plant", *select, "--output", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (planted,) = planted_of(read_document(tmp_path / "results.json"))
    assert (planted.fault, planted.fate) == ("mask.encoder-causal", "found")
