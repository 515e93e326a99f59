"""All faults by id: those of this package, and those that other packages declare in the group `conformance.faults`.

An entry point's value is a module with `FAULTS`, a sequence of `Fault`. Nothing here imports torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from conformance.faults import (
    answers,
    intermittent,
    kv_cache,
    layers,
    masks,
    pictures,
    pooling,
    positions,
    precision,
    rope,
    scores,
    text,
)
from conformance.faults.fault import Fault, is_id
from conformance.names import UsageError, unknown
from conformance.registry import Registry, discover

FAULTS: tuple[Fault, ...] = (
    *masks.FAULTS,
    *scores.FAULTS,
    *rope.FAULTS,
    *positions.FAULTS,
    *pooling.FAULTS,
    *layers.FAULTS,
    *precision.FAULTS,
    *kv_cache.FAULTS,
    *pictures.FAULTS,
    *text.FAULTS,
    *answers.FAULTS,
    *intermittent.FAULTS,
)
"""Those of this package, in the order of docs/faults.md."""


def collect(registry: Registry) -> Mapping[str, Fault]:
    """The faults of everything that `registry` lists, by id.

    UsageError where a module cannot be imported, has no `FAULTS`, or an id is there twice.
    """
    found: dict[str, Fault] = {}
    problems = []
    for entry in registry.faults.values():
        declared = f"faults of {entry.source} ({entry.value})"
        try:
            several = tuple(importlib.import_module(entry.value).FAULTS)
        except (ImportError, AttributeError, TypeError) as error:
            problems.append(f"{declared}: {error}; the value must be a module with FAULTS, a sequence of faults")
            continue
        for one in several:
            if not isinstance(one, Fault):
                problems.append(f"{declared}: FAULTS holds {one!r}, which is no conformance.faults.fault.Fault")
            elif not is_id(one.id):
                problems.append(f"{declared}: {one.id!r} is no id; it must look like 'acme.lane-stuck'")
            elif found.setdefault(one.id, one) is not one:
                problems.append(f"{declared}: the id {one.id!r} is taken; start it with your own name")
    if problems:
        raise UsageError(*problems)
    return MappingProxyType(found)


@cache
def faults() -> Mapping[str, Fault]:
    """Every installed fault by id; errors as in `collect`."""
    return collect(discover())


def fault(identifier: str) -> Fault:
    """The fault of that id; UsageError, with the nearest, where there is none."""
    if identifier not in faults():
        raise UsageError(unknown("fault", identifier, faults()))
    return faults()[identifier]


def table() -> str:
    """The faults of this package as the Markdown table of docs/faults.md."""
    heads = ("fault", "family", "what the engine does", "layers", "where it happened", "suite", "dtype", "structural")
    rows = [heads, ("---",) * len(heads)]
    for one in FAULTS:
        often = f" (rate {one.rate:g})" if one.rate != 1 else ""
        layers = "all or the middle one" if "middle" in one.scopes else ""
        where, structural = f"{one.suite} ({one.model})", "yes" if one.structural else ""
        rows.append(
            (f"`{one.id}`{often}", one.family, one.description, layers, one.reference, where, one.dtype, structural)
        )
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
