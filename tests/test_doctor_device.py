"""A device that cannot be had: every cause that can be seen, and what to do about each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from conformance.doctor.asking import NoAnswer
from conformance.doctor.device import System, check, usable
from conformance.doctor.finding import Finding, Status, exit_code
from conformance.profile import Driver, load_profile

ROOT = Path(__file__).resolve().parent.parent
PROFILES = {name: load_profile(ROOT / "backends" / name / "profile.toml") for name in ("cuda", "xpu")}
NODES = {
    "cuda": ["dev/nvidia0", "dev/nvidiactl", "dev/nvidia-uvm"],
    "xpu": ["dev/dri/renderD128", "dev/dri/renderD129"],
}
HERE = {
    "torch": "2.13.0",
    "build": {"cuda": "12.8", "hip": None, "xpu": "20250101"},
    "isa": "AVX512",
    "warnings": [],
    "missing": None,
    "count": 2,
    "name": "Zenith 1000",
    "free": 2**34,
    "total": 2**34,
}
GONE = {**HERE, "missing": "torch 2.13.0 sees no device (is_available() is False)"}


def examine(
    kind: str,
    answer: Any,
    root: Path,
    *,
    nodes: bool = True,
    denied: str = "",
    environment: dict[str, str] | None = None,
) -> list[Finding]:
    for node in NODES[kind] if nodes else ():
        (root / node).parent.mkdir(parents=True, exist_ok=True)
        (root / node).touch()
    system = System(environment or {}, root, lambda path: path.name != denied)
    return list(check(kind, answer, PROFILES[kind].driver, system))


@pytest.mark.parametrize("kind", ["cuda", "xpu"])
def test_a_device_that_is_there_is_named_and_counted(kind: str, tmp_path: Path) -> None:
    (found,) = examine(kind, HERE, tmp_path)
    assert found.status is Status.OK and f"{kind}:0 of 2, Zenith 1000" in found.found
    assert usable(HERE)


@pytest.mark.parametrize("kind", ["cuda", "xpu"])
def test_a_torch_build_without_the_device_is_the_cause(kind: str, tmp_path: Path) -> None:
    first, cause = examine(kind, {**GONE, "build": dict.fromkeys(("cuda", "hip", "xpu"))}, tmp_path)
    assert "see the causes below" in first.advice and not usable(GONE)
    assert f"a build without {kind}: torch.version.{kind} is None" in cause.found
    assert f"install a build of torch for {kind}" in cause.advice
    assert exit_code([cause]) == 6


@pytest.mark.parametrize("kind", ["cuda", "xpu"])
def test_a_missing_driver_node_is_the_cause(kind: str, tmp_path: Path) -> None:
    _, cause = examine(kind, GONE, tmp_path, nodes=False)
    assert cause.found.startswith("no driver node: nothing is called /dev/")
    assert "driver" in cause.advice and "docker run" in cause.advice


@pytest.mark.parametrize("kind", ["cuda", "xpu"])
def test_a_node_that_may_not_be_opened_is_the_cause_and_its_group_is_named(kind: str, tmp_path: Path) -> None:
    import grp

    node = tmp_path / NODES[kind][-1]
    examine(kind, GONE, tmp_path)
    group = next(each for each in grp.getgrall() if each.gr_gid not in (0, os.getgid()))
    if os.getuid() == 0:
        os.chown(node, -1, group.gr_gid)
    name = grp.getgrgid(node.stat().st_gid).gr_name
    _, cause = examine(kind, GONE, tmp_path, denied=node.name)
    assert str(node) in cause.found and f"group {name}" in cause.found
    assert "--group-add" in cause.advice and f"usermod -aG {name}" in cause.advice


@pytest.mark.parametrize(
    ("kind", "mask", "value"),
    [("cuda", "CUDA_VISIBLE_DEVICES", ""), ("xpu", "ZE_AFFINITY_MASK", "7"), ("xpu", "ONEAPI_DEVICE_SELECTOR", "cpu")],
)
def test_a_mask_is_a_possible_cause(kind: str, mask: str, value: str, tmp_path: Path) -> None:
    _, cause = examine(kind, GONE, tmp_path, environment={mask: value})
    assert f"{mask}={value!r}" in cause.found and f"unset {mask}" in cause.advice


def test_without_a_visible_cause_versions_are_named_and_the_command_that_tells_more(tmp_path: Path) -> None:
    (found,) = examine("cuda", GONE, tmp_path)
    assert "their versions differ" in found.advice and "`nvidia-smi`" in found.advice


def test_every_cause_is_told_at_once(tmp_path: Path) -> None:
    answer = {**GONE, "build": {}}
    found = examine(
        "xpu", {**answer, "build": {"xpu": None}}, tmp_path, nodes=False, environment={"ZE_AFFINITY_MASK": "9"}
    )
    assert len(found) == 4 and exit_code(found) == 6


def test_what_torch_warns_of_is_told(tmp_path: Path) -> None:
    gone = examine("cuda", {**GONE, "warnings": ["The NVIDIA driver on your system is too old"]}, tmp_path)
    assert "too old" in gone[0].found
    here = examine("cuda", {**HERE, "warnings": ["compute capability 12.0 is not compatible\x1b[2J"]}, tmp_path)
    assert [each.status for each in here] == [Status.OK, Status.WARNING]
    assert "\x1b" not in here[1].found


def test_a_device_that_says_available_and_then_raises_is_a_problem(tmp_path: Path) -> None:
    answer = {**HERE, "failed": {"asked": "count", "error": "RuntimeError: Native API failed"}}
    (found,) = examine("xpu", answer, tmp_path)
    assert "says that xpu is available, but asking for its count raised RuntimeError" in found.found
    assert not usable(answer) and "`sycl-ls`" in found.advice


def test_a_device_of_which_there_are_none_is_a_problem(tmp_path: Path) -> None:
    found = examine("xpu", {**HERE, "count": 0}, tmp_path)
    assert found[0].status is Status.PROBLEM and not usable({**HERE, "count": 0})


def test_a_driver_that_does_not_answer_is_a_problem(tmp_path: Path) -> None:
    found = examine("xpu", NoAnswer("there was no answer within 60 s"), tmp_path, nodes=False)
    assert "could not be asked: there was no answer within 60 s" in found[0].found
    assert "no driver node" in found[1].found
    assert not usable(NoAnswer("x"))


def test_a_profile_that_says_nothing_of_its_driver_still_gets_advice(tmp_path: Path) -> None:
    (found,) = check("acme", GONE, Driver(), System({}, tmp_path))
    assert found.status is Status.PROBLEM and found.advice


UNKNOWN = {**GONE, "missing": "torch 2.13.0 knows no device 'acme'", "known": False, "build": {"acme": None}}


def test_a_device_that_torch_does_not_know_needs_an_extension_and_not_another_version(tmp_path: Path) -> None:
    (found,) = check("acme", UNKNOWN, Driver(), System({}, tmp_path))
    assert "torch extension, that the vendor offers for acme" in found.advice and "[driver]" in found.advice
    assert "versions differ" not in found.advice


def test_a_device_that_torch_does_not_know_is_answered_with_the_profiles_own_text(tmp_path: Path) -> None:
    driver = Driver(builds=("acme",), torch="pip install torch-acme", nodes=("/dev/acme0",), missing="load acme.ko")
    found, cause = check("acme", UNKNOWN, driver, System({}, tmp_path))
    assert (found.advice, cause.advice) == ("pip install torch-acme", "load acme.ko")
    (_, build) = check("acme", {**UNKNOWN, "known": True}, Driver(builds=("acme",)), System({}, tmp_path))
    assert "that the vendor offers for acme" in build.advice and "PyTorch" not in build.advice


@pytest.mark.parametrize("kind", ["cpu", "cuda", "acme"])
def test_without_torch_the_advice_is_to_install_it(kind: str, tmp_path: Path) -> None:
    driver = PROFILES[kind].driver if kind in PROFILES else Driver()
    answer = NoAnswer("the process server cannot start: ModuleNotFoundError: No module named 'torch'")
    found = next(iter(check(kind, answer, driver, System({}, tmp_path))))
    assert found.advice.startswith("install torch") and "broken" not in found.advice
    assert ("PyTorch's start page" in found.advice) == (kind == "cuda")


def test_the_cpu_is_always_there(tmp_path: Path) -> None:
    answer = {"torch": "2.13.0", "build": {}, "isa": "AVX2", "warnings": [], "missing": None, "threads": 8}
    (found,) = check("cpu", answer, Driver(), System({}, tmp_path))
    assert found.status is Status.OK and "8 threads, AVX2" in found.found and usable(answer)
