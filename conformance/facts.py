"""What can be known of a machine without importing an engine: facts, as a JSON mapping.

    {"device": {"type", "name", "memory_gib", "available", "reason"}, "versions": {distribution: version or null},
     "engines": [...], "python", "platform", "isa_flags": [...], "host": {"memory_gib", "cores"},
     "stack": {...}}  # as conformance.stack describes it

A key that is missing, or null under "device", is not known; a null under "versions" is known not to be installed.
A worker, which may touch the device, completes them.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from conformance import checkpoint
from conformance.environments import environment_faults
from conformance.names import UsageError, unknown
from conformance.stack import local_stack
from conformance.structure import not_finite

KEYS = ("device", "versions", "engines", "environments", "python", "platform", "isa_flags", "host", "stack")
DEVICE_KEYS = ("type", "name", "memory_gib", "available", "reason", "count", "major", "minor")

_ISA = re.compile(r"amx|avx|sse4|f16c|fma$|asimd|fphp|sve|sme|bf16|i8mm|rv\d|neon|vsx")


def local_facts(device: str, distributions: Iterable[str], engines: Iterable[str]) -> dict[str, Any]:
    """The facts of this machine for a backend on the torch device type `device`.

    `distributions` are those whose versions are of interest, `engines` the adapters that are installed. Whether an
    accelerator is there is left open: only its runtime can say.
    """
    facts: dict[str, Any] = {
        "device": {"type": device},
        "versions": {name: installed_version(name) for name in sorted(set(distributions))},
        "engines": sorted(engines),
        "python": platform.python_version(),
        "platform": f"{platform.system()}-{platform.machine()}".lower(),
    }
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(encoding="utf-8", errors="replace") if cpuinfo.is_file() else ""
    isa = isa_flags(text)
    if isa:
        facts["isa_flags"] = isa
    memory = _memory_gib()
    facts["host"] = {"memory_gib": memory, "cores": _cores()}
    facts["stack"] = local_stack()
    if device == "cpu":
        facts["device"].update(available=True, name=cpu_name(text), memory_gib=memory)
    return facts


def installed_version(distribution: str) -> str | None:
    """The version of an installed distribution, or None; nothing is imported."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def isa_flags(cpuinfo: str) -> list[str]:
    """The instruction-set flags that numerics depend on, from the text of /proc/cpuinfo (x86, Arm, RISC-V)."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features", "isa"):
            return sorted({flag for flag in value.split() if _ISA.match(flag)})
    return []


def cpu_name(cpuinfo: str) -> str:
    """The processor's model name, or the machine type where /proc/cpuinfo gives none."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    return platform.processor() or platform.machine()


def read_facts(path: Path) -> dict[str, Any]:
    """Facts of another machine from a JSON file. Raises UsageError with every fault."""
    try:
        facts = checkpoint.read_json(path)
    except OSError as error:
        raise UsageError(
            f"facts {path}: cannot be read: {error.strerror}; a JSON file belongs there, like what `list --json` "
            'prints under "facts"'
        ) from error
    except ValueError as error:
        raise UsageError(f"facts {path}: {error}") from error
    if not isinstance(facts, dict):
        raise UsageError(f"facts {path}: should be one JSON object with {', '.join(KEYS)}")
    faults = [
        f"facts {path}: {key} should be {meaning}"
        for key, kind, meaning in (
            ("device", dict, "an object"),
            ("versions", dict, "an object of distribution and version"),
            ("engines", list, "a list of engine names"),
            ("environments", dict, "an object of engine and what is known of its own interpreter"),
            ("isa_flags", list, "a list of flags"),
            ("host", dict, "an object with memory_gib and cores"),
            ("stack", dict, "an object of what was read of the stack"),
        )
        if key in facts and not isinstance(facts[key], kind)
    ]
    if not faults:
        device = facts.get("device", {})
        faults += [f"facts {path}: {unknown('key', key, KEYS)}" for key in _misspelt(facts, KEYS)]
        faults += [
            f"facts {path}: device: {unknown('key', key, DEVICE_KEYS)}" for key in _misspelt(device, DEVICE_KEYS)
        ]
        faults += [
            f"facts {path}: device.{key} is {device[key]!r}, but should be {meaning} or null"
            for key, kind, meaning in (
                ("type", str, "text"),
                ("name", str, "text"),
                ("reason", str, "text"),
                ("available", bool, "true, false"),
                ("memory_gib", (int, float), "a number"),
                ("count", int, "a whole number"),
                ("major", int, "a whole number"),
                ("minor", int, "a whole number"),
            )
            if not (device.get(key) is None or isinstance(device[key], kind))
        ]
        faults += [
            f"facts {path}: host.{key} is {value!r}, but should be a number or null"
            for key, value in facts.get("host", {}).items()
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)))
        ]
        faults += [f"facts {path}: {fault}" for fault in not_finite(facts)]
        faults += [f"facts {path}: {fault}" for fault in environment_faults(facts.get("environments", {}))]
        faults += [
            f"facts {path}: versions.{name} is {version!r}, but should be text, or null for not installed"
            for name, version in facts.get("versions", {}).items()
            if not (version is None or isinstance(version, str))
        ]
    if faults:
        raise UsageError(*faults)
    return facts


def _misspelt(table: Mapping[str, Any], known: tuple[str, ...]) -> list[str]:
    """Keys that are nearly a known one; others may be there, since a worker knows more than a plan can use."""
    import difflib

    return [key for key in table if key not in known and difflib.get_close_matches(key, known, cutoff=0.7)]


def _memory_gib() -> float | None:
    """The machine's memory, or the limit of the container that this process is in."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            whole = min(whole, int(Path(limit).read_text("ascii")))
        except (OSError, ValueError):  # no such limit, or "max"
            continue
    return round(whole / 2**30, 1)


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
