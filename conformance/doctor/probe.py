"""What is asked in a worker: does the device answer, and what does it compute? The only module here with torch."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from conformance.engines.device import is_known, missing, set_precision_switches
from conformance.engines.stack import runtime


def adapter(engine_class: str) -> dict[str, Any]:
    """Import an engine's adapter, "module:Class". Raises ImportError as the import does."""
    module, _, name = engine_class.partition(":")
    getattr(importlib.import_module(module), name)
    return {}


def device(kind: str, builds: Sequence[str]) -> dict[str, Any]:
    """What torch says of the device, as far as it gets: `failed` names the call that raised, and how.

    `known` says whether it has such devices at all, and `build` has the value of each attribute of torch.version that
    `builds` names.
    """
    found: dict[str, Any] = {
        "torch": str(torch.__version__),
        "known": is_known(kind),
        "build": {name: getattr(torch.version, name, None) for name in builds},
        "isa": torch.backends.cpu.get_cpu_capability(),
    }
    with warnings.catch_warnings(record=True) as raised:  # torch says in warnings why a device cannot be had
        warnings.simplefilter("always")
        _take(found, "missing", lambda: missing(kind))
        if found.get("missing", "?") is None and kind != "cpu":
            _accelerator(found, torch.get_device_module(kind))
        elif kind == "cpu":
            found["threads"] = torch.get_num_threads()
    found["warnings"] = [str(each.message) for each in raised]
    return found


def stack(kind: str) -> dict[str, Any]:
    """What torch and this interpreter tell of the stack; torch can use a device of this kind."""
    return runtime(kind)


def matmul(kind: str, dtype: str, left: Any, right: Any) -> dict[str, Any]:
    """The product of two float32 arrays that are exact in `dtype`, computed in it; float64."""
    set_precision_switches()
    return {"value": _back(torch.matmul(_there(kind, dtype, left), _there(kind, dtype, right)))}


def attention(kind: str, dtype: str, query: Any, key: Any, value: Any, mask: Any, causal: bool) -> dict[str, Any]:
    """torch's scaled dot product attention of arrays [batch, heads, length, size]; `mask` is None or boolean."""
    set_precision_switches()
    visible = None if mask is None else torch.from_numpy(mask).to(kind)
    q, k, v = (_there(kind, dtype, each) for each in (query, key, value))
    output = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=visible, is_causal=causal)
    return {"value": _back(output)}


def _accelerator(found: dict[str, Any], module: Any) -> None:
    if not _take(found, "count", module.device_count):
        return
    if not _take(found, "name", lambda: str(module.get_device_properties(0).name)):
        return
    if not hasattr(module, "mem_get_info"):
        _take(found, "total", lambda: int(module.get_device_properties(0).total_memory))
    elif _take(found, "memory", lambda: [int(size) for size in module.mem_get_info(0)]):
        found["free"], found["total"] = found.pop("memory")


def _take(found: dict[str, Any], name: str, ask: Callable[[], Any]) -> bool:
    try:
        found[name] = ask()
    except Exception as error:  # whatever a driver raises is the finding
        found["failed"] = {"asked": name, "error": f"{type(error).__name__}: {error}"[:1000]}
        return False
    return True


def _there(kind: str, dtype: str, array: Any) -> torch.Tensor:
    return torch.from_numpy(array).to(kind, getattr(torch, dtype))


def _back(tensor: torch.Tensor) -> Any:
    return tensor.cpu().to(torch.float64).numpy()  # on the CPU: some devices have no float64
