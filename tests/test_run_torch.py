"""Whole runs of the real engine: honest ones pass, broken ones fail in the suite whose promise they break."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zenith_site
from zenith_site import Ran, quirk

pytestmark = pytest.mark.torch

TESTS = Path(__file__).parent
ROOT = TESTS.parent
SDPA_16 = ("--attention", "sdpa", "--dtype", "bfloat16")

FAULTY_PROFILE = """
[backend]
name = "faulty"
description = "transformers on the CPU, with a planted fault"
device = "cpu"
default_engines = ["faulty"]

[dtypes]
default = ["bfloat16"]
supported = ["bfloat16"]

[engines.faulty.attention.sdpa]
precision = { bfloat16 = "fused" }
kernels = ["aten::_scaled_dot_product_flash_attention_for_cpu"]
"""
FAULTS = {
    "embedding": "scaled_by_two",
    "rerank": "two_documents_swapped",
    "classification": "class_labels_permuted",
    "reward": "two_documents_swapped",
    "generation": "values_swapped_between_tokens",
}


def run(output: Path, *arguments: Any, **environment: str) -> Ran:
    process = subprocess.run(
        [sys.executable, "-m", "conformance", "run", "--output", str(output), *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return Ran(process, output)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One suite on the real engine, with a store that nothing may be put into."""
    output = tmp_path_factory.mktemp("honest")
    return run(output, "--backend", "cpu", "--suite", "reward", CONFORMANCE_CACHE=str(output / "cache"))


def test_an_honest_engine_passes(honest: Ran) -> None:
    assert honest.code == 0, honest.said
    assert honest.document["summary"]["verdicts"] == {"PASS": 40}  # ten promises, two kernels, two dtypes
    assert honest.junit == {"testcase": 40, "failure": 0, "error": 0, "skipped": 0}


def test_what_ran_is_recorded_with_every_verdict(honest: Ran) -> None:
    for case in honest.document["cases"]:
        kernel = {"eager": "aten::_softmax", "sdpa": "aten::_scaled_dot_product_flash_attention_for_cpu"}
        ran = case["effective"]
        assert ran["attention"] == case["target"]["attention"] and ran["dtype"] == case["target"]["dtype"]
        assert ran["kernels"] == {kernel[ran["attention"]]: ran["layers"] * ran["forwards"]}
        assert any(figure["limit"] is not None for judged in case["judgements"] for figure in judged["figures"])


def test_embedded_models_need_no_reference_computed(honest: Ran) -> None:
    assert honest.document["run"]["counters"]["references_computed"] == 0
    assert not (honest.output / "cache" / "references").exists()


def test_a_run_says_that_the_yardstick_itself_is_no_evidence(honest: Ran) -> None:
    assert any(
        "transformers/eager/bfloat16" in sentence and "no evidence" in sentence
        for sentence in honest.document["not_covered"]
    )


@pytest.mark.parametrize("backend", ["cuda", "xpu"])
def test_a_backend_without_its_device_is_environment_throughout(tmp_path: Path, backend: str) -> None:
    import torch

    if getattr(torch, backend).is_available():
        pytest.skip(f"this machine has a {backend} device")
    done = run(tmp_path, "--backend", backend, "--suite", "reward")
    assert done.code == 5, done.said
    assert set(done.document["summary"]["verdicts"]) == {"ENVIRONMENT"}
    assert all(f"sees no {backend} device" in case["reason"] for case in done.document["cases"])
    assert done.junit["skipped"] == done.junit["testcase"] == len(done.document["cases"]) > 0


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """All suites, one fault for each, chosen by an option that a quirk of the profile sets."""
    site = tmp_path_factory.mktemp("faulty")
    zenith_site.write_metadata(site, "faulty-engine", "[conformance.engines]\nfaulty = faulty_engine:FaultyRunner\n")
    shutil.copy(TESTS / "faulty_engine.py", site)
    shutil.copy(TESTS / "broken_outputs.py", site)
    quirks = [
        quirk(f'suite = "{suite}"', f'options = {{ fault = "{fault}" }}', id=f"fault-{suite}")
        for suite, fault in FAULTS.items()
    ]
    (site / "profile.toml").write_text(FAULTY_PROFILE + "".join(quirks))
    return run(site / "out", "--profile", site / "profile.toml", PYTHONPATH=str(site))


@pytest.mark.parametrize("suite", sorted(FAULTS))
def test_a_fault_in_the_engine_turns_its_suite_red(faulty: Ran, suite: str) -> None:
    assert faulty.code == 1, faulty.said
    # What an attention backend does not claim (a softcap) is not run, and shows no fault.
    cases = [case for case in faulty.document["cases"] if case["suite"] == suite and case["verdict"] != "NOT_SUPPORTED"]
    for model in {case["model"] for case in cases}:
        verdicts = {case["test"]: case["verdict"] for case in cases if case["model"] == model}
        assert "FAIL" in verdicts.values(), (model, verdicts)
        assert set(verdicts.values()) <= {"PASS", "FAIL", "UNDERPOWERED"}, (model, verdicts)


def test_a_suite_runs_under_plain_unittest() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "unittest", "suites.reward"],
        cwd=ROOT,
        env={**os.environ, "CONFORMANCE_BACKEND": "cpu", "CONFORMANCE_ARGUMENTS": " ".join(SDPA_16)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "Ran 10 tests" in done.stderr and done.stderr.rstrip().endswith("OK")


def test_the_reference_of_a_users_model_is_computed_once_and_found_again(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "my-encoder"
    embedded = ROOT / "suites" / "checkpoints" / "embedding-xlmr"
    shutil.copytree(embedded, folder, ignore=shutil.ignore_patterns("references"))
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in sorted(tensors) if name.endswith("output.dense.weight"))
    tensors[name] = tensors[name] * 1.0625
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    arguments = ("--backend", "cpu", "--model", f"embedding.encoder={folder}", "-k", "test_vectors_agree", *SDPA_16)
    first, second = (
        run(tmp_path / name, *arguments, CONFORMANCE_CACHE=str(tmp_path / "cache")) for name in ("first", "second")
    )
    assert first.code == second.code == 0, first.said + second.said
    counts = [done.document["run"]["counters"]["references_computed"] for done in (first, second)]
    assert counts == [2, 0]  # the reference and one yardstick
    assert "computing the reference of my-encoder on the CPU, once" in first.said
    figures = [done.document["cases"][0]["judgements"] for done in (first, second)]
    assert figures[0] == figures[1]


def test_what_the_cpu_profile_disclaims_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path / "out", "--backend", "cpu", "--probe-disclaimed", "-k", "disclaimed.")
    assert done.code == 0, done.said
    (case,) = done.document["cases"]
    assert case["id"] == "disclaimed.test_is_refused[transformers/flash_attention_2/float32][generation-qwen3]"
    assert (case["verdict"], case["reason"][:9]) == ("PASS", "refused: ")
    assert "XPASS" not in done.said
