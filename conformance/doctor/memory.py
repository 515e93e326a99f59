"""Does the largest model of the plan fit, on the device and on the host?"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

from conformance.doctor.finding import Finding, ok, problem, warning
from conformance.engines.shape import BYTES
from conformance.plan import Case
from conformance.size import in_words

RESERVE = 2**30
"""What a worker takes beside the weights: measured on a CPU, 1.0 GiB; on accelerators a context takes half of that."""
HEADER_LIMIT = 100_000_000  # the format's own
WORKING_SHARE = 0.2
"""Activations and caches, as a share of the weights: assumed, not measured."""


def weight_bytes(folder: Path, dtype: str) -> int:
    """The size of a folder's weights once they are loaded as `dtype`; integers keep theirs.

    Raises OSError, ValueError, KeyError where a safetensors header cannot be read, which `checkpoint.check` explains.
    """
    total = 0
    for file in folder.glob("*.safetensors"):
        with file.open("rb") as stream:
            length = min(int.from_bytes(stream.read(8), "little"), HEADER_LIMIT)
            header = json.loads(stream.read(length))
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                floating = entry["dtype"] in ("F64", "F32", "F16", "BF16")
                total += math.prod(entry["shape"]) * BYTES[dtype] if floating else end - begin
    return total


def needed_bytes(folder: Path, dtype: str) -> int:
    """An estimate of what a worker needs that serves the model: weights, a share of them for work, and a reserve."""
    return int(weight_bytes(folder, dtype) * (1 + WORKING_SHARE)) + RESERVE


def largest(cases: tuple[Case, ...], dtype: str | None = None) -> tuple[int, str]:
    """The largest need of any case and whose it is, in `dtype` instead of the case's own if given; (0, "") for none."""
    needs = [(0, "")]
    for case in cases:
        if case.fit is not None:  # of a full-size model more is known than the size of its weights
            size = case.fit.device_bytes if dtype is None else case.fit.host_bytes
            needs.append((size, f"{case.model.name} in {case.effective_target.dtype}"))
    for folder, name, each in {
        (case.model.folder, case.model.name, dtype or case.effective_target.dtype) for case in cases if case.fit is None
    }:
        try:
            needs.append((needed_bytes(folder, each), f"{name} in {each}"))
        except (OSError, ValueError, KeyError, TypeError, OverflowError):
            continue  # what is wrong with the folder is the models' finding
    return max(needs)


def check_device(kind: str, free: int | None, total: int, need: tuple[int, str]) -> Iterator[Finding]:
    """Free device memory against the need, and whether others use much of it. `free` is None where nobody says."""
    size, whose = need
    about = f"{in_words(size)} for {whose}" if whose else "unknown: no model can be read"
    if size > total:
        advice = "choose smaller models or 16 bit (--model, --dtype), or a larger device"
        yield problem("memory", f"{kind}: {in_words(total)} in all, needed are {about}", advice)
    elif free is None:
        yield ok(
            "memory", f"{kind}: {in_words(total)} in all (what is free the device does not say), needed are {about}"
        )
    elif size > free:
        advice = "end the other processes on the device, or choose smaller models"
        yield problem("memory", f"{kind}: {in_words(free)} of {in_words(total)} are free, needed are {about}", advice)
    else:
        text = f"{kind}: {in_words(free)} of {in_words(total)} are free, needed are {about}"
        yield ok("memory", text, free_bytes=free, total_bytes=total, needed_bytes=size)
    # A tenth: the context of the process that asks, and what a display takes.
    if free is not None and total - free > max(total / 10, 2**30):
        found = f"{kind}: {in_words(total - free)} of {in_words(total)} are in use by others"
        yield warning("memory", found, "end the other processes on the device: they cost time and may take its memory")


def check_host(free: int | None, need: tuple[int, str]) -> Finding:
    """Free host memory against the need."""
    size, whose = need
    about = f"{in_words(size)} for {whose}" if whose else "unknown: no model can be read"
    if free is None:
        return warning("memory", "host: what is free cannot be read here", f"see that it is enough; needed are {about}")
    text = f"host: {in_words(free)} are free, needed are {about}"
    if size > free:
        return problem("memory", text, "free memory on the host, raise the container's limit, or choose smaller models")
    return ok("memory", text, free_bytes=free, needed_bytes=size)


def free_host_bytes(root: Path = Path("/")) -> int | None:
    """What a new process may use: the kernel's estimate, or less where a control group (a container) sets a limit."""
    limits = []
    try:
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(int(line.split()[1]) * 1024)
    except (OSError, ValueError, IndexError):
        return None
    limits += list(_group_limits(root))
    return min(limits, default=None)


def _group_limits(root: Path) -> Iterator[int]:
    """What is left under the limit of the control group and of each above it, versions 2 and 1 of the interface."""
    base = root / "sys/fs/cgroup"
    folders = [(base, "memory.max", "memory.current")]
    folders.append((base / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"))
    try:
        own = (root / "proc/self/cgroup").read_text().splitlines()
        path = next(line[3:] for line in own if line.startswith("0::")).strip("/")
        for each in (Path(path), *Path(path).parents):
            folders.append((base / each, "memory.max", "memory.current"))
    except (OSError, StopIteration):
        pass
    for folder, limit, used in folders:
        try:
            yield max(0, int((folder / limit).read_text()) - int((folder / used).read_text()))
        except (OSError, ValueError):  # no such interface, or "max"
            continue
