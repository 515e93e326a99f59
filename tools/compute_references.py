"""Compute the reference and the yardsticks of the embedded models, and put them beside the checkpoints.

    python tools/compute_references.py [--only NAME ...] [--directions [FAULT ...]]

Run it after the inputs, the checkpoints or the computing code changed; a test compares what it wrote with a fresh
computation. What is shipped says which instruction set and library versions made it.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conformance.catalogue import load_catalogue
from conformance.execution.group import parameters
from conformance.faults.runner import FaultyReference
from conformance.inventory import load_suites, of_roles, resolve
from conformance.reference import compute, directions, store
from conformance.reference.runner import ReferenceRunner
from conformance.registry import discover
from conformance.runner import LoadRequest
from conformance.tokenization import Tokenizer


def main() -> None:
    """Compute and store, one embedded model after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", action="append", help="this model only; may be given several times")
    parser.add_argument(
        "--directions", metavar="FAULT", nargs="*", help="only the directions of known faults: all, or these anew"
    )
    options = parser.parse_args()
    only = options.only
    registry = discover()
    suites = of_roles(load_suites(registry)).values()  # the suites beside them judge by the same references
    for model in load_catalogue(registry.catalogue_paths()).models:
        if model.tier != "embedded" or (only and model.name not in only):
            continue
        for suite in suites:
            found = resolve(suite.path)
            compares = any(wants.reference or wants.yardstick for wants in found.observations().values())
            if suite.role in model.roles and compares:
                print(f"{model.name} for {suite.path}", flush=True)
                known = parameters(model)
                request = LoadRequest(model.name, str(model.folder), suite.role, "cpu", "eager", "float64", known)
                subject = compute.Subject(found, request, Tokenizer(model.folder))
                if options.directions is None:
                    _compute(subject, model.folder)
                if model.directions and any(test.needs_directions for test in suite.tests):
                    _add_directions(subject, model.folder, options.directions or ())


def _parts(subject: compute.Subject, folder: Path) -> store.PartSet:
    isa = torch.backends.cpu.get_cpu_capability()
    return store.shipped(folder, store.identify(subject.suite, folder, subject.request.parameters, isa))


def _compute(subject: compute.Subject, folder: Path) -> None:
    shutil.rmtree(folder / "references", ignore_errors=True)
    parts = _parts(subject, folder)
    clock = time.monotonic()
    reference = compute.compute_reference(subject, ReferenceRunner)
    parts.save(compute.REFERENCE, reference)
    print(f"  {compute.REFERENCE}: {time.monotonic() - clock:.1f} s", flush=True)
    for dtype, precision in compute.SHIPPED:
        clock = time.monotonic()
        part = compute.part_name(dtype, precision)
        parts.save_yardstick(
            part, compute.compute_yardstick(subject, reference, dtype, precision, ReferenceRunner), reference
        )
        print(f"  {part}: {time.monotonic() - clock:.1f} s", flush=True)


def _add_directions(subject: compute.Subject, folder: Path, anew: Sequence[str]) -> None:
    parts = _parts(subject, folder)
    reference = parts.load(compute.REFERENCE)
    if reference is None:
        raise SystemExit(f"{folder} has no reference for these inputs: leave out --directions")
    clock = time.monotonic()
    kept = (parts.directions(directions.PART) or {}) if anew else {}
    only = [each for each in directions.applicable(subject) if not anew or each in anew]
    computed = directions.compute_directions(subject, reference, FaultyReference, only=only)
    found = {each: array for each, array in {**kept, **computed}.items() if each in directions.KNOWN}
    parts.save_directions(directions.PART, found)
    print(f"  {directions.PART}, {len(found)} faults: {time.monotonic() - clock:.1f} s", flush=True)


if __name__ == "__main__":
    main()
