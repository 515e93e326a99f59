"""The stack that a result is of: hardware, kernel and driver, wheels, settings, as files tell them. Imports no engine.

    {"kernel", "cpu": {"family", "model", "stepping", "microcode"},
     "pci": [{"id": "VENDOR:DEVICE", "subsystem", "revision", "class", "driver", "count"}],
     "drivers": {name: version}, "firmware": {"VENDOR:DEVICE file": version}, "container",
     "distributions": {name: version}, "environment": {variable: value},
     "runtime": {...}, "id"}

What cannot be read is empty, or left out of its mapping; so is "container" where nothing speaks of one. A worker adds
"runtime" (`conformance.engines.stack`), and a run the "id", by which two stacks are told apart. No address, serial
number or name of a machine is in it, and no variable but those of an allow list.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from conformance.engines.stack_names import DISTRIBUTIONS, VARIABLES
from conformance.results.printable import one_line

_COMPUTES = ("0x03", "0x12", "0x0b40")  # PCI classes: display controller, processing accelerator, co-processor
_SECRET = re.compile(r"TOKEN(?!IZERS)|KEY(?!S$)|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_FIRMWARE = ("fw_version/*", "*fw_version*", "*firmware_version*", "vbios_version")
_IN_CGROUP = re.compile(r"docker|kubepods|containerd|libpod|lxc|machine\.slice")
_READ = 64 * 1024  # bytes of a file
_LONGEST = 200  # characters of a value
_MANY = 64  # entries of one kind: a folder can be anything
_ID_DIGITS = 12
_OF_ID = ("device", "versions", "environments", "python", "platform", "isa", "isa_flags", "torch_build", "stack")
_NOT_OF_ID = {"device": ("memory_gib", "reason", "available"), "stack": ("id",)}


def local_stack(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> dict[str, Any]:
    """What of the stack the files below `root`, the environment and the installed distributions tell."""
    devices = list(_devices(root))
    counted = Counter(json.dumps(each, sort_keys=True) for _, each in devices)
    drivers = sorted({str(each["driver"]) for _, each in devices if "driver" in each})
    found: dict[str, Any] = {
        "kernel": " ".join(filter(None, (_text(root / f"proc/sys/kernel/{name}") for name in ("ostype", "osrelease")))),
        "cpu": processor(_raw(root / "proc/cpuinfo")),
        "pci": [{**json.loads(text), "count": count} for text, count in sorted(counted.items())],
        "drivers": {name: version for name in drivers if (version := _driver_version(root, name))},
        "firmware": dict(list(_firmware(root, devices))[:_MANY]),
        "distributions": installed(DISTRIBUTIONS),
        "environment": settings(environment),
        "container": _container(root, environment),
    }
    return found


def installed(names: Iterable[str], version_of: Callable[[str], str] = importlib.metadata.version) -> dict[str, str]:
    """The versions of those distributions that are installed; nothing is imported."""
    found = {}
    for name in names:
        try:
            found[name] = one_line(str(version_of(name)), _LONGEST)
        except Exception:  # the leftovers of a broken installation raise whatever they like
            continue
    return found


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that change numbers, with their values; those of no pattern and of secrets are not told."""
    return {
        one_line(name, _LONGEST): one_line(value, _LONGEST)
        for name, value in sorted(environment.items())
        if any(fnmatchcase(name, pattern) for pattern in VARIABLES) and not _SECRET.search(name)
    }


def processor(cpuinfo: str) -> dict[str, str]:
    """What tells one revision of a processor from another, from the text of /proc/cpuinfo (x86, Arm)."""
    names = {
        "cpu family": "family",
        "model": "model",
        "stepping": "stepping",
        "microcode": "microcode",
        "CPU implementer": "family",
        "CPU part": "model",
        "CPU variant": "variant",
        "CPU revision": "stepping",
    }
    found: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in names and value.strip():
            found.setdefault(names[key.strip()], one_line(value, _LONGEST))
    return found


def identified(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts with the id of their stack; facts without a stack as they are."""
    if "stack" not in facts:
        return dict(facts)
    return {**facts, "stack": {**facts["stack"], "id": stack_id(facts)}}


def stack_id(facts: Mapping[str, Any]) -> str:
    """Twelve hexadecimal digits that differ where anything differs that identifies the stack.

    The amount of memory, and whether the device answered, do not count: they differ from boot to boot.
    """
    content = {
        name: {key: value for key, value in facts[name].items() if key not in _NOT_OF_ID[name]}
        if name in _NOT_OF_ID
        else facts[name]
        for name in _OF_ID
        if name in facts
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:_ID_DIGITS]


def stack_lines(facts: Mapping[str, Any]) -> list[str]:
    """The stack in at most two lines: what is beneath torch, and what was set; none where nothing is known of it."""
    stack = facts.get("stack")
    if not isinstance(stack, Mapping):
        return []
    pieces = [
        *(f"{each.get('id')} rev {each.get('revision', '?')} x{each.get('count', 1)}" for each in stack.get("pci", [])),
        *(f"driver {name} {version}" for name, version in stack.get("drivers", {}).items()),
        *([f"{stack['kernel']}"] if stack.get("kernel") else []),
        *([f"microcode {stack['cpu']['microcode']}"] if stack.get("cpu", {}).get("microcode") else []),
        *(f"{name} {value}" for name, value in stack.get("runtime", {}).items() if isinstance(value, str)),
        *([f"in a container ({stack['container']})"] if stack.get("container") else []),
    ]
    name = f"stack {stack['id']}" if stack.get("id") else "stack"
    lines = [f"{name}: {', '.join(pieces)}"] if pieces else []
    if stack.get("environment"):
        lines.append(f"set: {', '.join(f'{key}={value}' for key, value in stack['environment'].items())}")
    return [one_line(line, 500) for line in lines]


def _devices(root: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The folder and the identity of each PCI device that could compute."""
    for folder in _sorted(root / "sys/bus/pci/devices", "*"):
        kind = _text(folder / "class")
        if not kind.startswith(_COMPUTES):
            continue
        found: dict[str, Any] = {
            "id": _pair(folder, "vendor", "device"),
            "subsystem": _pair(folder, "subsystem_vendor", "subsystem_device"),
            "revision": _text(folder / "revision"),
            "class": kind,
            "driver": _link(folder / "driver"),
        }
        yield folder, {name: value for name, value in found.items() if value}


def _pair(folder: Path, *names: str) -> str:
    values = [_text(folder / name).removeprefix("0x") for name in names]
    return ":".join(values) if all(values) else ""


def _driver_version(root: Path, name: str) -> str:
    """A driver's own version, or what tells its builds apart; one that is part of the kernel has neither."""
    module = root / "sys/module" / name
    banner = _text(root / "proc/driver" / name / "version")
    return _text(module / "version") or banner or _text(module / "srcversion")


def _firmware(root: Path, devices: Iterable[tuple[Path, Mapping[str, Any]]]) -> Iterator[tuple[str, str]]:
    for folder, device in devices:
        for pattern in _FIRMWARE:
            for file in _sorted(folder, pattern):
                if value := _text(file):
                    yield one_line(f"{device.get('id', '?')} {file.name}", _LONGEST), value
        about = _raw(root / "proc/driver" / str(device.get("driver", "-")) / "gpus" / folder.name / "information")
        for line in about.splitlines():
            key, _, value = line.partition(":")
            if re.search("bios|firmware", key, re.IGNORECASE) and value.strip():
                yield one_line(f"{device.get('id', '?')} {key}", _LONGEST), one_line(value, _LONGEST)


def _container(root: Path, environment: Mapping[str, str]) -> str:
    """What kind of container this process is in, as far as its traces tell; empty where there are none."""
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    if environment.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if named := environment.get("container"):
        return one_line(named, 40)
    found = _IN_CGROUP.search(_raw(root / "proc/1/cgroup"))
    return found.group() if found else ""


def _sorted(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))[:_MANY]
    except OSError:
        return []


def _link(path: Path) -> str:
    try:
        return one_line(path.resolve(strict=True).name, _LONGEST) if path.is_symlink() else ""
    except (OSError, RuntimeError):  # it leads nowhere, or in a circle
        return ""


def _text(path: Path) -> str:
    """The first line of a file, safe to show; empty where it cannot be read."""
    lines = _raw(path).strip().splitlines()
    return one_line(lines[0], _LONGEST) if lines else ""


def _raw(path: Path) -> str:
    try:
        if not path.is_file():  # a pipe or a device would never end
            return ""
        with path.open("rb") as file:
            return file.read(_READ).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
