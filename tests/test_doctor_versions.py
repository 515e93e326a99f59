"""Versions that do not agree: each way has a distribution that provokes it. Nothing is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import zenith_site

from conformance.doctor import versions
from conformance.doctor.finding import Finding, Status
from conformance.doctor.versions import Installed
from conformance.extras import own_requirements

OWN = {"": ("numpy", "packaging>=20"), "transformers": ("torch>=2.6", "transformers>=4.56")}
FINE = (
    Installed("numpy", "2.0", "/site", ()),
    Installed("packaging", "24.1", "/site", ()),
    Installed("torch", "2.13.0+cpu", "/site", ("numpy", "filelock")),
    Installed("transformers", "5.0.0rc1", "/site", ("torch>=2.2; extra == 'torch'", "tokenizers")),
)


def check(*more: Installed, without: str = "", engines: Any = ("transformers",)) -> dict[Status, list[Finding]]:
    kept = [each for each in FINE if each.name != without]
    found = list(versions.check([*kept, *more], OWN, engines))
    return {status: [each for each in found if each.status is status] for status in Status}


def test_versions_that_agree_are_named() -> None:
    (found,) = check()[Status.OK]
    assert "torch 2.13.0+cpu" in found.found and "transformers 5.0.0rc1" in found.found


def test_a_missing_requirement_of_the_plans_engine_is_a_problem_with_the_command() -> None:
    (found,) = check(without="torch")[Status.PROBLEM]
    assert "conformance[transformers] needs torch>=2.6, which is not installed" in found.found
    assert found.advice == "pip install 'torch>=2.6'"


def test_an_engine_that_is_not_in_the_plan_may_be_missing() -> None:
    assert not check(without="torch", engines=["vllm"])[Status.PROBLEM]


def test_a_version_that_is_too_old_is_a_problem() -> None:
    old = Installed("torch", "2.5.1", "/site", ())
    (found,) = check(old, without="torch")[Status.PROBLEM]
    assert "needs torch>=2.6; 2.5.1 is installed" in found.found
    (found,) = check(old, without="torch", engines=[])[Status.WARNING]


def test_a_torchvision_of_another_torch_is_a_warning() -> None:
    (found,) = check(Installed("torchvision", "0.24.0", "/site", ("torch==2.9.0", "numpy")))[Status.WARNING]
    assert "torchvision 0.24.0 needs torch==2.9.0; 2.13.0+cpu is installed" in found.found


def test_a_requirement_that_an_extra_asks_for_or_that_nobody_can_read_is_left_alone() -> None:
    strange = Installed("strange", "1", "/site", ("torch==1.0; extra == 'old'", "not a requirement"))
    assert not check(strange)[Status.WARNING]


def test_a_companion_that_names_no_torch_must_have_its_version() -> None:
    (found,) = check(Installed("intel-extension-for-pytorch", "2.8.10+xpu", "/site", ()))[Status.PROBLEM]
    assert "was made for torch 2.8; 2.13.0+cpu is installed" in found.found
    assert not check(Installed("intel-extension-for-pytorch", "2.13.10", "/site", ()))[Status.PROBLEM]


def test_two_versions_of_one_distribution_are_a_warning_with_both_places() -> None:
    (found,) = check(Installed("torch", "2.12.0", "/other", ()))[Status.WARNING]
    assert "2.13.0+cpu in /site, 2.12.0 in /other" in found.found


def test_the_search_path_is_read_as_python_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, version in (("a", "1.0"), ("b", "2.0")):
        (tmp_path / folder).mkdir()
        zenith_site.write_metadata(tmp_path / folder, "Two_Versions", "", version)
        monkeypatch.syspath_prepend(str(tmp_path / folder))
    (tmp_path / "a" / "broken-1.0.dist-info").mkdir()
    found = [each for each in versions.installed() if each.name == "two-versions"]
    assert [(each.version, each.folder) for each in found] == [
        ("2.0", str(tmp_path / "b")),
        ("1.0", str(tmp_path / "a")),
    ]
    (twice,) = [each for each in versions.check(versions.installed(), {}, []) if "two-versions" in each.found]
    assert twice.status is Status.WARNING


def test_this_packages_requirements_come_from_the_checkout_or_the_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = own_requirements()
    assert "torch>=2.6" in checkout["transformers"] and "numpy" in checkout[""]
    info = tmp_path / "conformance-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: conformance\nVersion: 0\nProvides-Extra: transformers\n"
        'Requires-Dist: numpy\nRequires-Dist: torch>=2.6; extra == "transformers"\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert own_requirements(tmp_path / "none") == {"": ("numpy",), "transformers": ("torch>=2.6",)}
