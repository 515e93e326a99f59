"""Compute the reference and the yardsticks of the embedded models, and put them beside the checkpoints.

    python tools/compute_references.py [--only NAME ...]

Run it after the inputs, the checkpoints or the computing code changed; a test compares what it wrote with a fresh
computation. What is shipped says which instruction set and library versions made it.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conformance.catalogue import load_catalogue
from conformance.execution.group import parameters
from conformance.inventory import load_suites, resolve
from conformance.reference import compute, store
from conformance.reference.runner import ReferenceRunner
from conformance.registry import discover
from conformance.runner import LoadRequest
from conformance.tokenization import Tokenizer


def main() -> None:
    """Compute and store, one embedded model after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", action="append", help="this model only; may be given several times")
    only = parser.parse_args().only
    registry = discover()
    suites = load_suites(registry)
    for model in load_catalogue(registry.catalogue_paths()).models:
        if model.tier != "embedded" or (only and model.name not in only):
            continue
        for suite in suites:
            compared = resolve(suite.path).observations().values()
            if suite.role in model.roles and any(each.reference or each.yardstick for each in compared):
                print(f"{model.name} for {suite.path}", flush=True)
                _compute(resolve(suite.path), model.name, model.folder, suite.role, parameters(model))


def _compute(suite: type, name: str, folder: Path, role: str, known: dict[str, object]) -> None:
    shutil.rmtree(folder / "references", ignore_errors=True)
    parts = store.shipped(folder, store.identify(suite, folder, known, torch.backends.cpu.get_cpu_capability()))
    request = LoadRequest(name, str(folder), role, "cpu", "eager", "float64", known)
    subject = compute.Subject(suite, request, Tokenizer(folder))
    clock = time.monotonic()
    reference = compute.compute_reference(subject, ReferenceRunner)
    parts.save(compute.REFERENCE, reference)
    print(f"  {compute.REFERENCE}: {time.monotonic() - clock:.1f} s", flush=True)
    for dtype, precision in compute.YARDSTICKS:
        clock = time.monotonic()
        part = compute.part_name(dtype, precision)
        parts.save_yardstick(
            part, compute.compute_yardstick(subject, reference, dtype, precision, ReferenceRunner), reference
        )
        print(f"  {part}: {time.monotonic() - clock:.1f} s", flush=True)


if __name__ == "__main__":
    main()
