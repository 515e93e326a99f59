"""`doctor` as a user meets it, on a vendor's device whose torch is a stand-in with a fault."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import hub_site
import pytest
import stand_in_torch
import world
import zenith_site

from conformance.doctor.examination import Examination, examine
from conformance.doctor.finding import Finding, Status, ok, problem, warning
from conformance.doctor.report import Lines
from conformance.estimate import Estimate


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = zenith_site.install(tmp_path_factory.mktemp("vendor") / "site")
    shutil.copy(stand_in_torch.__file__, site / "torch.py")
    (site / "zenith" / "profile.toml").write_text(zenith_site.profile(device="zenith"))
    return site


def doctor(site: Path, tmp_path: Path, *arguments: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    return zenith_site.conformance(
        site,
        "doctor",
        "--backend",
        "zenith",
        "--suite",
        "colours",
        "--output",
        tmp_path / "out",
        *arguments,
        **environment,
    )


def document(site: Path, tmp_path: Path, *arguments: Any, **environment: str) -> dict[str, Any]:
    done = doctor(site, tmp_path, "--json", *arguments, **environment)
    assert done.stderr == "", done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["exit_code"] == done.returncode
    return found


def problems(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["check"], each["found"]) for each in found["findings"] if each["status"] == "problem"]


def test_a_sound_device_has_nothing_in_its_way(site: Path, tmp_path: Path) -> None:
    done = doctor(site, tmp_path)
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "doctor of backend zenith, 10 cases" in lines[0]
    for check in ("device: zenith:0 of 2, Zenith 1000", "matmul: bfloat16: right", "attention: float32: right"):
        assert any(line.startswith(f"ok       {check}") for line in lines), check
    assert "exit code 0: nothing stands in the way" in lines[-1]
    assert not (tmp_path / "out").exists(), "nothing is written"


def test_the_document_has_the_documented_keys(site: Path, tmp_path: Path) -> None:
    found = document(site, tmp_path)
    assert set(found) == {
        "schema_version", "conformance_version", "backend", "device", "plan_hash", "cases", "duration_s", "exit_code",
        "findings",
    }  # fmt: skip
    keys = {"check", "status", "found", "advice", "wrong_numbers", "figures"}
    assert all(set(each) == keys for each in found["findings"])
    checks = {each["check"] for each in found["findings"]}
    assert checks == {
        "device", "memory", "matmul", "attention", "models", "references", "disk", "versions", "engines", "environment",
        "other runs", "stack", "time",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "check", "words"),
    [
        ("missing", "device", "sees no zenith device"),
        ("too-old", "device", "torch 2.4.0 is too old"),
        ("warns", "device", "torch warns: the driver on your system is too old"),
        (
            "raises",
            "device",
            "asking for its memory raised RuntimeError: Native API failed. UR_RESULT_ERROR_DEVICE_LOST",
        ),
        ("no-count", "device", "counts no device"),
        ("dies", "device", "SIGABRT"),
        ("no-import", "device", "libzenith.so.1"),
        ("full", "memory", "zenith: 1.0 MiB of 16.0 GiB are free"),
        ("refuses", "attention", "no kernel takes this"),
    ],
)
def test_what_keeps_a_run_from_being_complete_exits_with_6(
    site: Path, tmp_path: Path, fault: str, check: str, words: str
) -> None:
    found = document(site, tmp_path, TORCH_FAULT=fault)
    assert found["exit_code"] == 6
    assert any(name == check and words in text for name, text in problems(found)), problems(found)
    assert all(each["advice"] for each in found["findings"] if each["status"] != "ok")
    assert "\x1b" not in json.dumps(found)


@pytest.mark.parametrize(("fault", "check"), [("matmul", "matmul"), ("mask", "attention"), ("tf32", "matmul")])
def test_wrong_numbers_exit_with_1(site: Path, tmp_path: Path, fault: str, check: str) -> None:
    found = document(site, tmp_path, TORCH_FAULT=fault)
    assert found["exit_code"] == 1
    assert {each["check"] for each in found["findings"] if each["wrong_numbers"]} == {check}


def test_a_driver_that_dies_is_told_with_what_it_said(site: Path, tmp_path: Path) -> None:
    found = problems(document(site, tmp_path, TORCH_FAULT="dies"))
    assert any("zenith: fatal: firmware" in text for _, text in found)


def test_a_driver_that_hangs_is_a_finding(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("TORCH_FAULT", "hangs")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    profile = world.profile(world.TOP_LINES.replace('device = "toy"', 'device = "zenith"'))
    plan = world.plan(profile, engines=("transformers",))
    engines = {"transformers": "zenith.engine:ZenithRunner"}
    found = list(examine(Examination(plan, profile, engines, tmp_path / "out", lambda name: Estimate(), seconds=1.0)))
    (hung,) = [each for each in found if each.check == "device"]
    assert hung.status is Status.PROBLEM and "no answer in time: " in hung.found and "its deadline of 1 s" in hung.found


def test_a_missing_weights_file_is_found(site: Path, tmp_path: Path) -> None:
    mended = tmp_path / "site"
    shutil.copytree(site, mended)
    (mended / "zenith" / "checkpoints" / "tiny-colours" / "model.safetensors").unlink()
    found = document(mended, tmp_path)
    assert found["exit_code"] == 6
    assert [name for name, _ in problems(found)] == ["models"] and "no weights" in problems(found)[0][1]


def test_altered_weights_have_no_shipped_references(site: Path, tmp_path: Path) -> None:
    altered = tmp_path / "site"
    shutil.copytree(site, altered)
    file = altered / "zenith" / "checkpoints" / "tiny-colours" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    found = document(altered, tmp_path, CONFORMANCE_CACHE=str(tmp_path / "cache"))
    (references,) = [each for each in found["findings"] if each["check"] == "references"]
    assert "3 to be computed on the CPU" in references["found"]
    assert any("references: " in each["found"] for each in found["findings"] if each["check"] == "disk")


def test_damaged_references_are_found(site: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "site"
    shutil.copytree(site, damaged)
    (damaged / "zenith" / "checkpoints" / "tiny-colours" / "references" / "reference.safetensors").write_bytes(b"x")
    found = problems(document(damaged, tmp_path))
    assert [name for name, _ in found] == ["references"] and "sha256" in found[0][1]


def test_an_engine_that_cannot_be_imported_is_found_and_the_device_is_still_asked(site: Path, tmp_path: Path) -> None:
    broken = tmp_path / "site"
    shutil.copytree(site, broken)
    engine = broken / "zenith" / "engine.py"
    engine.write_text(engine.read_text() + "\nimport zenith_kernels\n")
    found = document(broken, tmp_path)
    assert [name for name, _ in problems(found)] == ["engines"] and "zenith_kernels" in problems(found)[0][1]
    assert any(each["check"] == "matmul" and each["status"] == "ok" for each in found["findings"])


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_start_as_the_profile_says(site: Path, tmp_path: Path, start: str) -> None:
    profile = tmp_path / "profile.toml"
    profile.write_text(zenith_site.profile(device="zenith", engine=f'start = "{start}"'))
    done = zenith_site.conformance(
        site, "doctor", "--profile", profile, "--suite", "colours", "--output", tmp_path / "out", "--attention", "plain"
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_engine_that_is_not_installed_makes_the_run_incomplete(site: Path, tmp_path: Path) -> None:
    profile = tmp_path / "profile.toml"
    profile.write_text(zenith_site.profile(device="zenith", engine='installed_by = "zenith-engine"'))
    done = zenith_site.conformance(site, "doctor", "--profile", profile, "--suite", "colours", "--json")
    found = problems(json.loads(done.stdout))
    assert done.returncode == 6 and "10 of 10 cases cannot run" in found[0][1] and "zenith-engine" in found[0][1]


def test_models_that_are_yet_to_be_fetched_are_one_finding_with_one_command(tmp_path: Path) -> None:
    vendor = hub_site.install(tmp_path)
    _, _, big = hub_site.MODELS.partition("[models.big-colours]")
    vendor.catalogue.write_text(hub_site.MODELS + "\n[models.huge-colours]" + big.replace("big", "huge"))
    arguments = ("doctor", "--backend", "zenith", "--tier", "full", "--suite", "colours", "--attention", "plain")
    done = zenith_site.conformance(
        vendor.package, *arguments, "--json", "--output", tmp_path / "o", **vendor.environment()
    )
    found = json.loads(done.stdout)["findings"]
    (missing,) = [each for each in found if each["check"] == "models" and each["status"] == "problem"]
    assert done.returncode == 6
    assert "10 of 15 cases cannot run: 2 models are not here: big-colours, huge-colours" in missing["found"]
    assert missing["advice"].startswith("python -m conformance models fetch big-colours huge-colours, or ")


def test_the_time_is_held_against_the_budget_that_the_run_would_be_given(site: Path, tmp_path: Path) -> None:
    profile = tmp_path / "profile.toml"
    profile.write_text(zenith_site.profile(device="zenith", add="\n[estimates.embedded]\ncolours = 8\n"))
    arguments = ("doctor", "--profile", profile, "--suite", "colours", "--output", tmp_path / "out", "--budget")
    done = zenith_site.conformance(site, *arguments, "0.01")
    assert done.returncode == 0 and "warning  time: the estimate of" in done.stdout, done.stdout
    assert "ok       time: the run" in zenith_site.conformance(site, *arguments, "60").stdout
    assert zenith_site.conformance(site, *arguments, "none").returncode == 4


@pytest.mark.parametrize(
    ("count", "words"), [(1, "1 ok, 1 warning, 1 problem in"), (3, "3 ok, 3 warnings, 3 problems in")]
)
def test_findings_are_counted_in_english(count: int, words: str) -> None:
    stream = io.StringIO()
    Lines(stream).finished([ok("a", "b"), warning("a", "b", "c"), problem("a", "b", "c")] * count, 1.0)
    assert stream.getvalue().startswith(words)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--backend", "zenit"), 4, "did you mean 'zenith'?"),
        ((), 4, "name a backend"),
        (("--backend", "zenith", "--dtype", "float8"), 4, "unknown dtype 'float8'"),
        (("--backend", "zenith", "-k", "nothing"), 5, "the selection leaves no case"),
        (("--backend", "zenith", "--output", ""), 4, "an empty path is no folder"),
        (("--backend", "zenith", "--jsn"), 4, "did you mean '--json'?"),
    ],
)
def test_what_cannot_be_examined_is_said(site: Path, arguments: tuple[str, ...], code: int, words: str) -> None:
    done = zenith_site.conformance(site, "doctor", *arguments)
    assert (done.returncode, done.stdout) == (code, "") and words in done.stderr


def test_findings_are_shown_as_they_come(site: Path, tmp_path: Path) -> None:
    plan = world.plan(engines=("vllm",), facts={"engines": []})
    found = examine(Examination(plan, world.profile(), {}, tmp_path / "out", lambda name: Estimate()))
    first = next(found)
    assert isinstance(first, Finding) and "temporary files" in first.found
    found.close()
