"""`--tier full` from the command line: models that are not there, altered, or fetched and measured."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import hub_site
import pytest
import vendor
from hub_site import NAME, Site

from conformance.results.validation import read_document

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return hub_site.install(tmp_path)


def outcomes(site: Site, *arguments: str) -> tuple[int, set[tuple[str, str]]]:
    """The exit code, and verdict and reason of every case of the full-size model."""
    ran = site.run(*arguments)
    cases = [case for case in ran.document["cases"] if case["model"] == NAME]
    assert cases, ran.said
    return ran.code, {(case["verdict"], case["reason"]) for case in cases}


def test_a_model_that_is_not_there_leaves_the_run_incomplete(site: Site) -> None:
    code, found = outcomes(site)
    assert code == 6
    ((verdict, reason),) = found
    assert verdict == "ENVIRONMENT"
    assert reason.endswith("it was not fetched yet; python -m conformance models fetch big-colours")


def test_without_the_tier_it_is_not_even_planned(site: Site, tmp_path: Path) -> None:
    ran = zenith_run(site)
    assert {case["model"] for case in ran.document["cases"]} == {"tiny-colours"}


def zenith_run(site: Site) -> hub_site.zenith_site.Ran:
    return hub_site.zenith_site.run_plain(site.package, site.root / "run", **site.environment())


def test_a_model_with_a_missing_file_is_an_environment(site: Site) -> None:
    pytest.importorskip("huggingface_hub")
    snapshot = hub_site.fill_cache(site)
    assert site.models("fetch", NAME).returncode == 0
    (snapshot / "tokenizer.json").unlink()
    code, found = outcomes(site)
    assert (code, {verdict for verdict, _ in found}) == (6, {"ENVIRONMENT"})
    assert "is not whole" in found.pop()[1]


def test_a_model_that_was_altered_is_not_measured(site: Site) -> None:
    pytest.importorskip("huggingface_hub")
    snapshot = hub_site.fill_cache(site)
    assert site.models("fetch", NAME).returncode == 0
    content = bytearray((snapshot / "model.safetensors").read_bytes())
    content[-1] ^= 1
    hub_site.rewrite(snapshot / "model.safetensors", bytes(content))
    code, found = outcomes(site)
    assert (code, {verdict for verdict, _ in found}) == (1, {"ERROR"})
    assert "is not the model that was fetched; `python -m conformance models verify big-colours`" in found.pop()[1]


def test_the_doctor_says_how_to_get_it(site: Site) -> None:
    done = hub_site.zenith_site.conformance(
        site.package, "doctor", "--backend", "zenith", "--tier", "full", "--suite", "colours", **site.environment()
    )
    assert "python -m conformance models fetch big-colours, or select others (--model)" in done.stdout, done.stderr


@pytest.mark.torch
def test_a_fetched_model_is_measured_like_an_embedded_one(tmp_path: Path) -> None:
    """An embedded checkpoint in the hub's cache plays a full-size model, whose reference is computed and stored."""
    package = vendor.install(tmp_path / "site")
    source = ROOT / "suites" / "checkpoints" / "rerank-xlmr"
    (package / "acme_suites" / "models.toml").write_text(
        vendor.MODELS.replace("tiny", "acme")
        + '\n[models.big-ranks]\nroles = ["rerank.cross_encoder"]\ntier = "full"\nhub = "acme/big-ranks"\n'
        'architecture = "XLMRobertaForSequenceClassification"\nparameters = { max_tokens = 1280 }\n'
    )
    snapshot = tmp_path / "hf" / "hub" / "models--acme--big-ranks" / "snapshots" / hub_site.COMMIT
    shutil.copytree(source, snapshot, ignore=shutil.ignore_patterns("references", "*.md"))
    (snapshot.parent.parent / "refs").mkdir()
    (snapshot.parent.parent / "refs" / "main").write_text(hub_site.COMMIT)
    environment = {
        **os.environ,
        "PYTHONPATH": str(package),
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_OFFLINE": "1",
        "CONFORMANCE_MODELS": str(tmp_path / "models"),
        "CONFORMANCE_CACHE": str(tmp_path / "store"),
        "OMP_WAIT_POLICY": "PASSIVE",
    }

    def conformance(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "conformance", *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
        )

    assert conformance("models", "fetch", "big-ranks").returncode == 0
    select = ("--backend", "cpu", "--model", "rerank.cross_encoder=big-ranks", "--dtype", "bfloat16")
    done = conformance("run", *select, "--suite", "rerank", "--attention", "sdpa", "--output", str(tmp_path / "out"))
    assert done.returncode == 0, done.stdout + done.stderr
    document = read_document(tmp_path / "out" / "results.json")
    measured = {case["id"]: case["verdict"] for case in document["cases"] if case["model"] == "big-ranks"}
    assert len(measured) == 9 and set(measured.values()) == {"PASS"}
    assert document["run"]["counters"]["references_computed"] == 2
    listed = json.loads(conformance("list", *select, "--json").stdout)["cases"]
    estimate = next(case["estimate"] for case in listed if case["model"]["name"] == "big-ranks")
    assert estimate["reference"] == "float64" and estimate["device_bytes"] > 2**30
    assert conformance("models", "export", str(tmp_path / "a.tar"), "big-ranks").returncode == 0
    environment.update(CONFORMANCE_MODELS=str(tmp_path / "there"), CONFORMANCE_CACHE=str(tmp_path / "there-store"))
    environment["HF_HOME"] = str(tmp_path / "nothing")
    assert conformance("models", "import", str(tmp_path / "a.tar")).returncode == 0
    done = conformance("run", *select, "--suite", "rerank", "--attention", "sdpa", "--output", str(tmp_path / "out2"))
    assert done.returncode == 0, done.stdout + done.stderr
    document = read_document(tmp_path / "out2" / "results.json")
    assert document["run"]["counters"]["references_computed"] == 0, "the stored references travelled along"
