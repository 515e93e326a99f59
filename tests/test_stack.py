"""What identifies a stack is read from files that may be missing, hostile or not files at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from conformance.results.printable import printable
from conformance.stack import identified, installed, local_stack, processor, settings, stack_id, stack_lines

CPUINFO = (
    "processor\t: 0\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: A Xeon\nstepping\t: 8\nmicrocode\t: 0x2b000639\n\n"
    "processor\t: 1\nstepping\t: 9\n"
)
CARD = {"class": "0x030000", "vendor": "0x8086", "device": "0xe20b", "revision": "0x05"}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def machine(root: Path, **card: str) -> Path:
    """A machine with two cards of one kind, and a bridge, on a driver called `toy`."""
    for address in ("0000:03:00.0", "0000:04:00.0"):
        folder = root / "sys/bus/pci/devices" / address
        for name, text in {**CARD, "subsystem_vendor": "0x1849", "subsystem_device": "0x6020", **card}.items():
            write(folder / name, f"{text}\n")
        (root / "sys/module/toy").mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(root / "sys/module/toy")
    write(root / "sys/bus/pci/devices/0000:00:00.0/class", "0x060000\n")
    write(root / "sys/module/toy/version", "1.2.3\n")
    write(root / "proc/cpuinfo", CPUINFO)
    write(root / "proc/sys/kernel/ostype", "Linux\n")
    write(root / "proc/sys/kernel/osrelease", "6.12.1\n")
    return root


def test_cards_are_told_by_id_and_stepping_and_counted_without_their_addresses(tmp_path: Path) -> None:
    stack = local_stack({}, machine(tmp_path))
    assert stack["pci"] == [
        {
            "id": "8086:e20b",
            "subsystem": "1849:6020",
            "revision": "0x05",
            "class": "0x030000",
            "driver": "toy",
            "count": 2,
        }
    ]
    assert stack["drivers"] == {"toy": "1.2.3"}
    assert stack["kernel"] == "Linux 6.12.1"
    assert "03:00" not in json.dumps(stack)


def test_a_driver_without_a_version_is_told_by_its_banner_or_build(tmp_path: Path) -> None:
    root = machine(tmp_path)
    (root / "sys/module/toy/version").unlink()
    write(root / "sys/module/toy/srcversion", "ABC123\n")
    assert local_stack({}, root)["drivers"] == {"toy": "ABC123"}
    write(root / "proc/driver/toy/version", "Toy kernel module 550.54\nGCC version 12\n")
    assert local_stack({}, root)["drivers"] == {"toy": "Toy kernel module 550.54"}


def test_firmware_is_found_where_drivers_show_it_and_serial_numbers_are_not(tmp_path: Path) -> None:
    root = machine(tmp_path)
    write(root / "sys/bus/pci/devices/0000:03:00.0/fw_version/smc_fw_version", "0x00684b00\n")
    write(root / "sys/bus/pci/devices/0000:03:00.0/vbios_version", "113-D1\n")
    write(
        root / "proc/driver/toy/gpus/0000:03:00.0/information",
        "Model: Toy\nGPU UUID: GPU-1234\nVideo BIOS: 96.00.5c\nGPU Firmware: 550.54\n",
    )
    stack = local_stack({}, root)
    assert stack["firmware"] == {
        "8086:e20b smc_fw_version": "0x00684b00",
        "8086:e20b vbios_version": "113-D1",
        "8086:e20b Video BIOS": "96.00.5c",
        "8086:e20b GPU Firmware": "550.54",
    }
    assert "UUID" not in json.dumps(stack)


def test_the_processor_is_told_by_stepping_and_microcode() -> None:
    assert processor(CPUINFO) == {"family": "6", "model": "143", "stepping": "8", "microcode": "0x2b000639"}
    arm = "CPU implementer\t: 0x41\nCPU variant\t: 0x1\nCPU part\t: 0xd4f\nCPU revision\t: 0\n"
    assert processor(arm) == {"family": "0x41", "variant": "0x1", "model": "0xd4f", "stepping": "0"}
    assert processor("") == {}


def test_nothing_that_is_missing_or_no_file_stops_the_reading(tmp_path: Path) -> None:
    assert local_stack({}, tmp_path / "nowhere")["pci"] == []
    root = machine(tmp_path)
    (root / "proc/cpuinfo").unlink()
    os.mkfifo(root / "proc/cpuinfo")  # would never end
    (root / "proc/sys/kernel/ostype").unlink()
    (root / "proc/sys/kernel/ostype").mkdir()
    driver = root / "sys/bus/pci/devices/0000:03:00.0/driver"
    driver.unlink()
    driver.symlink_to(driver)  # in a circle
    stack = local_stack({}, root)
    assert (stack["cpu"], stack["kernel"]) == ({}, "6.12.1")
    assert [card.get("driver") for card in stack["pci"]] == ["toy", None]


@pytest.mark.parametrize("hostile", ["\x1b[31mred\x1b[0m", "a\nb", "\u202egnp", "]]><x>", "x" * 100_000])
def test_hostile_text_is_made_safe_and_short(tmp_path: Path, hostile: str) -> None:
    root = machine(tmp_path, revision=hostile)
    write(root / "sys/module/toy/version", hostile)
    stack = local_stack({"OMP_NUM_THREADS": hostile}, root)
    for text in (stack["pci"][0]["revision"], stack["drivers"]["toy"], stack["environment"]["OMP_NUM_THREADS"]):
        assert "\n" not in text
        assert len(text) <= 200
        assert printable(text) == text
    assert all(len(line) <= 500 for line in stack_lines({"stack": stack}))


def test_bytes_that_are_no_text_are_read_all_the_same(tmp_path: Path) -> None:
    root = machine(tmp_path)
    (root / "sys/module/toy/version").write_bytes(b"\xff\xfe1.0")
    assert local_stack({}, root)["drivers"]["toy"].endswith("1.0")


def test_only_variables_that_change_numbers_are_told_and_never_a_secret() -> None:
    environment = {
        "OMP_NUM_THREADS": "4",
        "VLLM_API_KEY": "hunter22",
        "VLLM_USE_TOKEN": "hunter22",
        "ONEDNN_SECRET": "hunter22",
        "HF_TOKEN": "hunter22",
        "HOME": "/home/me",
        "VLLM_ATTENTION_BACKEND": "TORCH_SDPA",
        "SGLANG_USE_CPU_ENGINE": "1",
    }
    assert settings(environment) == {
        "OMP_NUM_THREADS": "4",
        "SGLANG_USE_CPU_ENGINE": "1",
        "VLLM_ATTENTION_BACKEND": "TORCH_SDPA",
    }


@pytest.mark.parametrize(
    ("trace", "environment", "found"),
    [
        (".dockerenv", {}, "docker"),
        ("run/.containerenv", {}, "podman"),
        ("", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ("", {"container": "lxc"}, "lxc"),
        ("proc/1/cgroup", {}, "kubepods"),
        ("", {}, ""),
    ],
)
def test_a_container_is_told_by_its_traces(tmp_path: Path, trace: str, environment: dict[str, str], found: str) -> None:
    if trace:
        write(tmp_path / trace, "0::/kubepods/pod1\n" if "cgroup" in trace else "")
    assert local_stack(environment, tmp_path)["container"] == found


def test_versions_of_what_is_installed_and_no_failure_of_a_broken_one() -> None:
    def version(name: str) -> str:
        if name == "broken":
            raise OSError("a broken installation")
        return "1\n2"

    assert installed(("broken", "whole"), version) == {"whole": "1 2"}
    assert installed(("pytest", "no-such-thing")) == {"pytest": pytest.__version__}


FACTS: dict[str, Any] = {
    "device": {"type": "toy", "name": "A card", "memory_gib": 16.0, "available": True},
    "versions": {"torch": "2.13"},
    "python": "3.11.7",
    "stack": {"kernel": "Linux 6.12.1", "environment": {}, "runtime": {"oneDNN": "3.7"}},
    "host": {"memory_gib": 64.0},
}


def test_two_stacks_have_two_ids_and_one_has_one() -> None:
    first = stack_id(FACTS)
    assert identified(FACTS)["stack"]["id"] == first == stack_id(identified(FACTS))
    assert stack_id({**FACTS, "host": {"memory_gib": 63.0}, "device": {**FACTS["device"], "memory_gib": 15.9}}) == first
    others = [
        {**FACTS, "python": "3.12.0"},
        {**FACTS, "versions": {"torch": "2.14"}},
        {**FACTS, "device": {**FACTS["device"], "name": "Another"}},
        {**FACTS, "stack": {**FACTS["stack"], "runtime": {"oneDNN": "3.8"}}},
        {**FACTS, "stack": {**FACTS["stack"], "environment": {"OMP_NUM_THREADS": "1"}}},
    ]
    assert len({first, *map(stack_id, others)}) == 1 + len(others)


def test_facts_without_a_stack_get_no_id() -> None:
    assert identified({"device": {}}) == {"device": {}}
    assert stack_lines({"device": {}}) == []


def test_the_stack_is_told_in_two_lines(tmp_path: Path) -> None:
    stack = local_stack({"OMP_NUM_THREADS": "4"}, machine(tmp_path))
    lines = stack_lines(identified({"stack": {**stack, "runtime": {"oneDNN": "3.7", "distributions": {}}}}))
    assert len(lines) == 2
    for said in ("8086:e20b rev 0x05 x2", "driver toy 1.2.3", "Linux 6.12.1", "microcode 0x2b000639", "oneDNN 3.7"):
        assert said in lines[0]
    assert lines[1] == "set: OMP_NUM_THREADS=4"
