"""Are the plan's models there and whole, and what of their references is still to be computed?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from conformance import checkpoint
from conformance.catalogue import Model
from conformance.doctor.finding import Finding, ok, problem
from conformance.plan import Case
from conformance.size import in_words

if TYPE_CHECKING:
    from conformance.reference.store import PartSet

HASHED_AT_MOST = 4 * 2**30
"""Weights above this are not hashed here, which would take longer than a few seconds."""

_REMEDIES = {
    "embedded": "install the package again: its own files are damaged",
    "local": "mend the folder, or give --model another one",
}
_FETCH = "fetch the model again"


@dataclass(frozen=True)
class References:
    """How many sets (suite, model) the plan compares with, and which of them are not there for every target."""

    sets: int
    to_compute: tuple[tuple[str, Model], ...]  # what is to be computed, and of which model
    unknown: tuple[str, ...]  # models too large to be hashed here
    damaged: tuple[str, ...]
    without_yardstick: tuple[str, ...]


def check(cases: tuple[Case, ...]) -> Iterator[Finding]:
    """A finding for every fault of a model's folder, or one that says that all are whole."""
    models = {case.model.name: case.model for case in cases}
    sound = size = 0
    for model in models.values():
        try:
            checkpoint.check(model.folder, vision=model.has_vision)
        except checkpoint.CheckpointError as error:
            for fault in str(error).splitlines():
                yield problem("models", f"{model.name}: {fault}", _REMEDIES.get(model.tier, _FETCH))
        else:
            sound += 1
            size += _bytes(model.folder)
    if sound:
        yield ok("models", f"{sound} of {len(models)} are there, their files whole ({in_words(size)})")


def look_up(cases: tuple[Case, ...], isa: str) -> References:
    """Find shipped and stored references as a run does; nothing is computed. Damaged models are left out."""
    from conformance.execution.group import claimed_precision, parameters
    from conformance.inventory import resolve
    from conformance.reference import compute, store

    missing: list[tuple[str, Model]] = []
    large: dict[str, None] = {}
    damaged: list[str] = []
    without: dict[str, None] = {}
    sets = 0

    def group(case: Case) -> tuple[str, str]:
        return (case.suite_path, case.model.name)

    for _, of_set in groupby(sorted(cases, key=group), key=group):
        members = list(of_set)
        case, model = members[0], members[0].model
        try:
            checkpoint.check(model.folder)
        except checkpoint.CheckpointError:
            continue
        suite = resolve(case.suite_path)
        if not any(wants.reference or wants.yardstick for wants in suite.observations().values()):
            continue
        sets += 1
        if _bytes(model.folder) > HASHED_AT_MOST:
            large[model.name] = None
            continue
        computed_in = "float64" if case.fit is None else case.fit.reference
        identity = store.identify(suite, model.folder, parameters(model), isa, computed_in)
        kept = [store.shipped(model.folder, identity)] if model.tier == "embedded" else []
        kept.append(store.cached(identity))
        wanted = {compute.REFERENCE: None}
        for dtype, precision in sorted({(each.effective_target.dtype, claimed_precision(each)) for each in members}):
            try:
                compute.variants(dtype, precision)
                wanted[compute.part_name(dtype, precision)] = None
            except KeyError:
                without[f"{dtype} with the claim {precision!r}"] = None
        try:
            lacking = [part for part in wanted if all(parts.load(part) is None for parts in kept)]
            if any(each.directed for each in members) and not _has_directions(kept):
                lacking.append("directions of known faults")
        except store.StoreError as error:
            damaged.append(str(error))
            continue
        missing += [(f"{part} of {case.suite} on {model.name}", model) for part in lacking]
    return References(sets, tuple(missing), tuple(large), tuple(damaged), tuple(without))


def _has_directions(kept: Sequence[PartSet]) -> bool:
    from conformance.reference import directions

    names = (directions.PART, directions.cached_part())
    return any(parts.directions(name) is not None for parts in kept for name in names)


def check_references(found: References) -> Iterator[Finding]:
    """What is there, what the run will compute on the CPU before it measures, and what it cannot judge."""
    for fault in found.damaged:
        yield problem("references", fault, "do what the message says; the cases would be ERROR")
    for each in found.without_yardstick:
        advice = "leave these cases out (--attention, --dtype), or change the claim in the profile"
        yield problem("references", f"there is no yardstick for {each}, so its cases would be ERROR", advice)
    if found.unknown:
        large = ", ".join(found.unknown)
        yield ok("references", f"not looked up, because hashing the weights takes too long here: {large}")
    if found.to_compute:
        names = [name for name, _ in found.to_compute]
        shown = "; ".join(names[:4]) + (f"; and {len(names) - 4} more" if len(names) > 4 else "")
        text = f"{len(names)} to be computed on the CPU, once, before their cases: {shown}"
        yield ok("references", text, to_compute=len(names))
    elif found.sets and not (found.damaged or found.unknown):
        yield ok("references", f"all are there, for {found.sets} suites and models", to_compute=0)


def head_sizes(cases: tuple[Case, ...]) -> list[int]:
    """The sizes of the attention heads of the plan's models and of their vision towers; 64 where none says."""
    sizes: set[int | None] = set()
    for model in {case.model.name: case.model for case in cases}.values():
        sizes |= {model.head_size, model.vision_head_size}
    return sorted(size for size in sizes if size) or [64]


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))
