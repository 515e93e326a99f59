"""The torch device: is it there, what is it, and are torch's precision switches where the suite wants them."""

from __future__ import annotations

from typing import Any

import torch
from packaging.version import Version

from conformance.engines.stack import runtime
from conformance.runner import Unavailable

OLDEST_TORCH = "2.6"


def require(kind: str) -> None:
    """Raise `Unavailable` unless torch can use a device of this kind."""
    reason = missing(kind)
    if reason:
        raise Unavailable(reason)


def missing(kind: str) -> str | None:
    """Why torch cannot use a device of this kind here, or None where it can."""
    if Version(torch.__version__) < Version(OLDEST_TORCH):
        return f"torch {torch.__version__} is too old; {OLDEST_TORCH} or newer is needed"
    if kind == "cpu":
        return None
    if not is_known(kind):
        return f"torch {torch.__version__} knows no device {kind!r}"
    if not getattr(torch, kind).is_available():
        return f"torch {torch.__version__} sees no {kind} device on this machine (torch.{kind}.is_available() is False)"
    return None


def is_known(kind: str) -> bool:
    """Whether this torch, with the extensions that were imported, has a name for such devices at all."""
    return kind == "cpu" or hasattr(getattr(torch, kind, None), "is_available")


def set_precision_switches(matmul: str = "ieee", convolution: str = "ieee") -> None:
    """What is claimed of float32 products, "ieee" or "tf32", whatever the process had set before.

    Sums of 16-bit products are never reduced.
    """
    torch.set_float32_matmul_precision("high" if matmul == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = convolution == "tf32"
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def precision_switches() -> dict[str, Any]:
    """Torch's switches that change numbers, as they are now."""
    return {
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn.allow_tf32": torch.backends.cudnn.allow_tf32,
        "cuda.matmul.allow_fp16_reduced_precision_reduction": (
            torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction
        ),
        "cuda.matmul.allow_bf16_reduced_precision_reduction": (
            torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
        ),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
    }


def release(device: torch.device) -> None:
    """Give cached memory of the device back to its driver."""
    if device.type != "cpu":
        torch.get_device_module(device).empty_cache()


def facts(kind: str, matmul: str = "ieee", convolution: str = "ieee") -> dict[str, Any]:
    """What this process's torch knows of the device and of itself; asked for in a worker, before anything runs.

    `matmul` and `convolution` are what is claimed of float32 products; the switches are set so, and both are told.

    A CPU's name and memory are not here: `conformance.facts` knows them without torch.
    """
    set_precision_switches(matmul, convolution)
    reason = missing(kind)
    device: dict[str, Any] = {"type": kind, "available": reason is None}
    if reason:
        device["reason"] = reason
    elif kind == "cpu":
        device["threads"] = torch.get_num_threads()
    else:
        device.update(_accelerator(kind))
    return {
        "device": device,
        "isa": torch.backends.cpu.get_cpu_capability(),
        "precision_claims": {"matmul": matmul, "convolution": convolution},
        "precision_switches": precision_switches(),
        "torch_build": {"version": torch.__version__, "cuda": torch.version.cuda, "debug": torch.version.debug},
        "stack": {"runtime": runtime("cpu" if reason else kind)},
    }


def _accelerator(kind: str) -> dict[str, Any]:
    properties = torch.get_device_module(kind).get_device_properties(0)
    found: dict[str, Any] = {"name": properties.name, "memory_gib": round(properties.total_memory / 2**30, 1)}
    for key in ("major", "minor", "driver_version", "platform_name", "device_id", "multi_processor_count"):
        if hasattr(properties, key):
            found[key] = getattr(properties, key)
    return found
