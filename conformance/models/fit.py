"""Does a model fit this machine, and how long will its reference take? Decided before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from conformance.catalogue import Model
from conformance.engines import memory
from conformance.engines.memory import EAGER, FUSED, IDEAL, Way
from conformance.engines.shape import BYTES, Shape, largest_product, parameters, read_shape
from conformance.workload import Workload

FACTOR, RESERVE = 1.1, 1 << 30
"""What an allocator wastes, and what libraries, a device's context and the suite's own process hold."""

FLOPS_A_CORE = {"float64": 12e9, "float32": 20e9, "bfloat16": 20e9, "float16": 2e9}
"""Half of what one core of an AMD EPYC did in a matrix product of 500 x 1024 x 3072 (float16 has no units there)."""

BYTES_A_SECOND = 6e9
"""Half of what two such cores read of weights in decoding, where every token reads them all."""

PATIENCE = 4.0
"""A computation may take so many times its estimate before it counts as hung."""


@dataclass(frozen=True)
class Fit:
    """Bytes on the device and on the host, the reference's dtype, and seconds on the host: estimates, all of them.

    `reference_s` is for reference and yardstick, computed once; `engine_s` for the engine where it runs on the host,
    else None. `refusal` says why the case cannot be run on this machine, or is empty.
    """

    device_bytes: int
    host_bytes: int
    reference: str
    reference_s: float
    engine_s: float | None
    refusal: str = ""


def fit(
    model: Model,
    role: str,
    workload: Workload | None,
    *,
    dtype: str,
    precision: str,
    device: str,
    facts: Mapping[str, Any],
    budget_minutes: float | None = None,
) -> Fit | None:
    """The estimate for a suite on a model that is not embedded; None where shape or workload is not known."""
    shape = read_shape(model.config_file) if model.tier != "embedded" else None
    if shape is None or workload is None or dtype not in BYTES:
        return None
    host_gib, cores = _host(facts, device)
    available = None if host_gib is None else int(host_gib * 2**30)
    limit = model.parameters.get("max_tokens")
    found, engine, wide = _estimated(shape, role, workload, limit, dtype, precision, device == "cpu", available, cores)
    refusal = (
        _device_refusal(model, dtype, engine, found, device, facts)
        or _host_refusal(model, dtype, found, wide, available)
        or _time_refusal(model, found, budget_minutes)
    )
    return replace(found, refusal=refusal)


@cache
def _estimated(
    shape: Shape,
    role: str,
    workload: Workload,
    limit: int | None,
    dtype: str,
    precision: str,
    on_host: bool,
    available: int | None,
    cores: int,
) -> tuple[Fit, memory.Need, int]:
    """The estimate without a refusal, what the engine needs, and bytes on the host for a reference in fp64."""

    def takes(way: Way) -> memory.Need:
        return memory.planned_need(shape, role, way, workload, limit)

    is_fused = precision == "fused"
    engine = takes(Way(dtype, FUSED if is_fused else EAGER, on_host))
    host = takes(Way(dtype, IDEAL if is_fused else EAGER, True)).total
    if on_host:
        host = max(host, engine.total)
    wide = _padded(takes(Way("float64", EAGER, True, batch_size=1)).total)
    narrow = _padded(takes(Way("float32", EAGER, True, batch_size=1)).total + 8 * largest_product(shape, role))
    reference = "float64" if available is None or wide <= available else "float32"
    found = Fit(
        _padded(engine.total),
        max(_padded(host), wide if reference == "float64" else narrow),
        reference,
        _reference_seconds(shape, role, workload, dtype, reference, cores),
        _seconds(shape, role, workload, dtype, cores) if on_host else None,
    )
    return found, engine, wide


def _device_refusal(
    model: Model, dtype: str, need: memory.Need, found: Fit, device: str, facts: Mapping[str, Any]
) -> str:
    about = facts.get("device", {})
    gib = about.get("memory_gib") if about.get("type", device) == device else None
    if device == "cpu" or gib is None or found.device_bytes <= gib * 2**30:
        return ""
    parts = (
        ("weights", need.weights),
        ("activations", need.activations),
        ("cache", need.cache),
        ("logits", need.logits),
    )
    shares = ", ".join(f"{name} {_gib(value)}" for name, value in parts if value)
    return (
        f"{model.name} in {dtype} needs about {_gib(found.device_bytes)} GiB of device memory ({shares} GiB, the rest "
        f"is spare), but the device has {gib:g} GiB"
    )


def _host_refusal(model: Model, dtype: str, found: Fit, wide: int, available: int | None) -> str:
    if available is None:
        return ""
    if found.host_bytes > available:
        return (
            f"{model.name} in {dtype} needs about {_gib(found.host_bytes)} GiB of host memory for its reference and "
            f"yardstick, but this host has {_gib(available)} GiB"
        )
    if found.reference == "float32" and dtype == "float32":
        return (
            f"{model.name} in float32 needs a reference in fp64, about {_gib(wide)} GiB of host memory, "
            f"but this host has {_gib(available)} GiB; one in float32 cannot judge float32; give --dtype bfloat16"
        )
    return ""


def _time_refusal(model: Model, found: Fit, budget_minutes: float | None) -> str:
    minutes = (found.reference_s + (found.engine_s or 0.0)) / 60
    if budget_minutes is None or minutes <= budget_minutes:
        return ""
    return (
        f"{model.name} would take about {minutes:.0f} min on this host, reference included, and the run's budget is "
        f"{budget_minutes:g} min"
    )


def _reference_seconds(shape: Shape, role: str, workload: Workload, dtype: str, reference: str, cores: int) -> float:
    """The reference, with its free text, and the yardstick's two variants (four in float32), which have none."""
    forced = replace(workload, new_tokens=0)
    variants = 4 if dtype == "float32" else 2
    forced_s = _seconds(shape, role, forced, reference, cores) if workload.new_tokens else 0.0
    return (
        _seconds(shape, role, workload, reference, cores)
        + forced_s
        + variants * _seconds(shape, role, forced, dtype, cores)
    )


def _seconds(shape: Shape, role: str, workload: Workload, dtype: str, cores: int) -> float:
    """Two operations a weight and token, and the attention's products; decoding reads every weight for each token."""
    weights = parameters(shape, role) - shape.vocabulary * shape.hidden
    attention = 4 * shape.layers * shape.heads * shape.head_size * workload.longest
    rate = FLOPS_A_CORE[dtype] * cores
    prefill = workload.passes * workload.tokens * (2 * weights + attention) / rate
    if shape.vision is not None:
        prefill += workload.patches * 24 * shape.vision.layers * shape.vision.hidden**2 / rate
    decoded = workload.prompts * workload.new_tokens
    return prefill + decoded * max(2 * weights / rate, weights * BYTES[dtype] / BYTES_A_SECOND)


def _host(facts: Mapping[str, Any], device: str) -> tuple[float | None, int]:
    """Memory in GiB, None where unknown, and cores; a CPU that is the device is the host."""
    host = facts.get("host", {})
    about = facts.get("device", {})
    known = host.get("memory_gib") or (about.get("memory_gib") if device == about.get("type") == "cpu" else None)
    return known, int(host.get("cores") or 1)


def _padded(value: int) -> int:
    return int(value * FACTOR) + RESERVE


def _gib(value: float) -> str:
    return f"{value / 2**30:.1f}"
