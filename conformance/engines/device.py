"""The torch device: is it there, what is it, and are torch's precision switches where the suite wants them."""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import torch

from conformance.engines.stack import runtime
from conformance.runner import Unavailable

OLDEST_TORCH = (2, 6)
_PAUSE = 0.2  # seconds between two looks at memory


def require(kind: str) -> None:
    """Raise `Unavailable` unless torch can use a device of this kind."""
    reason = missing(kind)
    if reason:
        raise Unavailable(reason)


def missing(kind: str) -> str | None:
    """Why torch cannot use a device of this kind here, or None where it can."""
    release = tuple(int(number) for number in re.findall(r"\d+", torch.__version__)[:2])
    if release < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        return f"torch {torch.__version__} is too old; {oldest} or newer is needed"
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


def health(kind: str, free_before: int | None = None, settle_seconds: float = 0.0) -> dict[str, Any]:
    """Whether the device is well, asked for in a fresh worker while nobody else of this run holds it.

    `device` as in `facts`; `free` and `total` are bytes of its memory, None where torch does not say. Where less than
    `free_before` is free, it is waited for, `settle_seconds` at most, since drivers give memory back late. `product` is
    empty where a product of matrices is right, and otherwise says how far it is off. Its numbers are small integers,
    which every precision holds exactly, so nothing but the very product will do.
    """
    reason = missing(kind)
    found: dict[str, Any] = {"device": {"type": kind, "available": reason is None}, "free": None, "total": None}
    if reason:
        return {**found, "device": {**found["device"], "reason": reason}, "product": ""}
    if kind != "cpu" and hasattr(torch.get_device_module(kind), "mem_get_info"):
        until = time.monotonic() + settle_seconds
        while True:
            free, total = (int(each) for each in torch.get_device_module(kind).mem_get_info(0))
            if free_before is None or free >= free_before or time.monotonic() >= until:
                break
            time.sleep(_PAUSE)
        found |= {"free": free, "total": total}
    draw = np.random.default_rng(5)
    left, right = (draw.integers(-8, 9, (256, 256)) for _ in range(2))
    one, other = (torch.from_numpy(each.astype(np.float32)).to(kind) for each in (left, right))
    off = np.abs((one @ other).cpu().numpy() - left @ right)
    wrong = int(np.count_nonzero(~(off == 0)))  # NaN as well
    product = f"{wrong} of {off.size} elements are wrong, by {off.max():g} at most" if wrong else ""
    return {**found, "product": product}


def _accelerator(kind: str) -> dict[str, Any]:
    module = torch.get_device_module(kind)
    properties = module.get_device_properties(0)
    found: dict[str, Any] = {"name": properties.name, "memory_gib": round(properties.total_memory / 2**30, 1)}
    if hasattr(module, "device_count"):  # a vendor's module may know only the one
        found["count"] = module.device_count()
    for key in ("major", "minor", "driver_version", "platform_name", "device_id", "multi_processor_count"):
        if hasattr(properties, key):
            found[key] = getattr(properties, key)
    return found
