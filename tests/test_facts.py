from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.facts import cpu_name, installed_version, isa_flags, local_facts, read_facts
from conformance.names import UsageError

X86 = "processor\t: 0\nmodel name\t: A Xeon\nflags\t\t: fpu sse4_2 avx2 fma avx512_bf16 amx_bf16 rdrand\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd bf16 sve2 crc32\n"


def test_only_flags_that_numerics_depend_on_are_kept() -> None:
    assert isa_flags(X86) == ["amx_bf16", "avx2", "avx512_bf16", "fma", "sse4_2"]
    assert isa_flags(ARM) == ["asimd", "bf16", "sve2"]
    assert isa_flags("") == []


def test_the_processor_is_named() -> None:
    assert cpu_name(X86) == "A Xeon"


def test_versions_come_without_import_and_what_is_missing_is_null() -> None:
    assert installed_version("pytest") == pytest.__version__
    assert local_facts("cpu", ["pytest", "no-such-thing"], ["b", "a"])["versions"] == {
        "pytest": pytest.__version__,
        "no-such-thing": None,
    }


def test_whether_an_accelerator_is_there_is_left_open() -> None:
    assert local_facts("xpu", [], [])["device"] == {"type": "xpu"}
    assert local_facts("cpu", [], [])["device"]["available"] is True


def test_facts_are_json() -> None:
    facts = local_facts("cpu", ["pytest"], [])
    assert json.loads(json.dumps(facts)) == facts


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ([], "should be one JSON object"),
        ({"device": "xpu"}, "device should be an object"),
        ({"device": {"avialable": False}}, "unknown key 'avialable'; did you mean 'available'"),
        ({"device": {"available": "no"}}, "device.available is 'no'"),
        ({"device": {"memory_gib": "16"}}, "device.memory_gib is '16'"),
        ({"device": {"memory_gib": float("inf")}}, "device.memory_gib: inf is no number that can be reckoned with"),
        ({"versions": {"torch": 2.13}}, "versions.torch is 2.13"),
        ({"verions": {}}, "unknown key 'verions'; did you mean 'versions'"),
        ({"isa_flags": "avx2"}, "isa_flags should be a list"),
    ],
)
def test_wrong_facts_are_rejected(tmp_path: Path, facts: Any, message: str) -> None:
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(facts))
    with pytest.raises(UsageError, match=message):
        read_facts(path)


def test_a_file_without_json_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    for text in ("{", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(UsageError, match=r"facts\.json"):
            read_facts(path)
    with pytest.raises(UsageError, match=r'none\.json: cannot be read: No such file or directory; .*under "facts"'):
        read_facts(tmp_path / "none.json")


def test_facts_may_hold_more_than_a_plan_uses(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    facts = {"device": {"type": "xpu", "name": "B580", "driver_version": "1", "threads": 2}, "precision_switches": {}}
    path.write_text(json.dumps(facts))
    assert read_facts(path) == facts
