"""`doctor` with the real torch, on this machine's CPU and for devices that are not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.doctor.arithmetic import check
from conformance.doctor.finding import Finding

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parent.parent
CLAIMS = {"float32": ["ieee"], "bfloat16": ["fused"]}


def doctor(*arguments: Any, **environment: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "conformance", "doctor", "--json", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == found["exit_code"] and done.stderr == ""
    return found


def test_this_cpu_has_nothing_in_its_way(tmp_path: Path) -> None:
    found = doctor("--backend", "cpu", "--output", tmp_path / "out")
    assert [each for each in found["findings"] if each["status"] == "problem"] == []
    computed = [each["found"].split(":")[0] for each in found["findings"] if each["check"] in ("matmul", "attention")]
    assert computed == ["float32", "float32", "bfloat16", "bfloat16"]


@pytest.mark.parametrize("backend", ["cuda", "xpu"])
def test_a_device_that_is_not_there_exits_with_6_and_says_what_to_do(backend: str, tmp_path: Path) -> None:
    import torch

    if getattr(torch, backend).is_available():
        pytest.skip(f"this machine has a {backend} device")
    found = doctor("--backend", backend, "--output", tmp_path / "out")
    device = [each for each in found["findings"] if each["check"] == "device"]
    assert found["exit_code"] == 6 and f"sees no {backend} device" in device[0]["found"]
    assert all(each["advice"] for each in device)
    if getattr(torch.version, backend) is None:
        assert any(f"a build without {backend}" in each["found"] for each in device)
    assert not any(each["check"] == "matmul" for each in found["findings"])


def in_process(monkeypatch: pytest.MonkeyPatch, fault: Callable[[Any], None] | None = None) -> list[Finding]:
    """The kernels of this process's torch, with a fault injected into it."""
    from conformance.doctor import probe

    if fault is not None:
        fault(monkeypatch)
    return list(check(lambda name, *inputs: getattr(probe, name)(*inputs), "cpu", CLAIMS, [64]))


def _wrong_matmul(patch: pytest.MonkeyPatch) -> None:
    import torch

    right = torch.matmul
    patch.setattr(torch, "matmul", lambda a, b: right(a, b).roll(1, 0))


def _mask_ignored(patch: pytest.MonkeyPatch) -> None:
    import torch.nn.functional as functional

    right = functional.scaled_dot_product_attention
    patch.setattr(
        functional, "scaled_dot_product_attention", lambda q, k, v, attn_mask, is_causal: right(q, k, v, None, 0.0)
    )


def _wrong_scale(patch: pytest.MonkeyPatch) -> None:
    import torch.nn.functional as functional

    right = functional.scaled_dot_product_attention
    patch.setattr(
        functional,
        "scaled_dot_product_attention",
        lambda q, k, v, attn_mask, is_causal: right(q * 1.01, k, v, attn_mask, 0.0, is_causal),
    )


@pytest.mark.parametrize(
    ("fault", "check_name", "dtypes"),
    [
        (None, "", set()),
        (_wrong_matmul, "matmul", {"float32", "bfloat16"}),
        (_mask_ignored, "attention", {"float32", "bfloat16"}),
        (_wrong_scale, "attention", {"float32"}),  # in 16 bit, no more than rounding may do: the suites measure that
    ],
)
def test_faults_of_torch_are_found_and_honest_torch_is_right(
    monkeypatch: pytest.MonkeyPatch, fault: Any, check_name: str, dtypes: set[str]
) -> None:
    wrong = [each for each in in_process(monkeypatch, fault) if each.status.value != "ok"]
    assert {(each.check, each.found.split(",")[0]) for each in wrong} == {(check_name, dtype) for dtype in dtypes}
    assert all(each.wrong_numbers for each in wrong)


def test_answers_come_back_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    from conformance.doctor import probe

    left = np.eye(3, dtype=np.float32)
    assert (probe.matmul("cpu", "bfloat16", left, 2 * left)["value"] == 2 * np.eye(3)).all()
    found = probe.device("cpu", ["cuda", "zenith"])
    assert found["missing"] is None and found["threads"] >= 1 and found["warnings"] == []
    assert found["build"] == {"cuda": __import__("torch").version.cuda, "zenith": None}
    assert probe.device("zenith", [])["missing"].endswith("knows no device 'zenith'")
