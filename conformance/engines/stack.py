"""What a worker's torch and interpreter tell of the stack: compilers, libraries, drivers; without raising."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from typing import Any

import torch

from conformance.engines.stack_names import DISTRIBUTIONS
from conformance.stack import installed

_BUILT_WITH = (
    ("compiler", re.compile(r"^\s*- ((?:GCC|clang|Clang|MSVC|Intel)[^\n,]*? ?[\d.]+)\s*$", re.MULTILINE)),
    ("oneDNN", re.compile(r"(?:MKL-DNN|oneDNN) v([\d.]+(?: \(Git Hash [0-9a-f]{7})?)")),
    ("MKL", re.compile(r"Math Kernel Library Version ([\w.]+(?:-Product Build \d+)?)")),
    ("OpenMP", re.compile(r"OpenMP (\d+)")),
    ("CUDA runtime", re.compile(r"CUDA Runtime ([\d.]+)")),
    ("cuDNN built with", re.compile(r"CuDNN ([\d.]+)")),
    ("HIP runtime", re.compile(r"HIP Runtime ([\d.]+)")),
    ("MIOpen", re.compile(r"MIOpen ([\d.]+)")),
)


def runtime(kind: str) -> dict[str, Any]:
    """The part of the stack that only a process with torch knows; `kind` is the device's, and torch can use it.

    Texts by name, those that torch does not tell left out, and under "distributions" what this interpreter has.
    """
    found = built_with(_told(lambda: torch.__config__.show()))
    found |= {
        "torch commit": _told(lambda: torch.version.git_version)[:12],
        "CUDA": _told(lambda: torch.version.cuda),
        "HIP": _told(lambda: torch.version.hip),
        "SYCL compiler": _told(lambda: torch.version.xpu),
        "libc": _told(lambda: " ".join(platform.libc_ver())),
    }
    if kind != "cpu":
        found |= {
            "device driver": _told(lambda: _properties(kind).driver_version),
            "device platform": _told(lambda: _properties(kind).platform_name),
            "CUDA driver": _cuda_version(_told(lambda: torch._C._cuda_getDriverVersion())),  # type: ignore[attr-defined]
            "cuDNN": _told(lambda: torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
            "NCCL": _told(lambda: ".".join(map(str, torch.cuda.nccl.version()))),  # type: ignore[no-untyped-call]
            "architecture": _told(lambda: _properties(kind).gcnArchName),
        }
    return {**{name: text for name, text in found.items() if text}, "distributions": installed(DISTRIBUTIONS)}


def built_with(text: str) -> dict[str, str]:
    """Compiler and libraries in what `torch.__config__.show()` tells."""
    found = {name: pattern.search(text) for name, pattern in _BUILT_WITH}
    return {name: match.group(1).replace(" (Git Hash ", "-") for name, match in found.items() if match}


def _properties(kind: str) -> Any:
    return torch.get_device_module(kind).get_device_properties(0)


def _cuda_version(number: str) -> str:
    """12040 is version 12.4."""
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}" if number.isdecimal() and number != "0" else ""


def _told(ask: Callable[[], Any]) -> str:
    try:
        value = ask()
    except Exception:  # a build without that library has other names, or raises of its own kind
        return ""
    return "" if value is None else str(value).strip()
