"""Run the full-size models' shapes, filled with seeded random weights, and hold their memory against the estimate.

    python tools/real_shapes.py [--device cuda] [--only NAME ...] [--output FILE.json]

No network is needed: configurations come from the catalogue, weights from a seed, prompts from the suites' inputs, and
tokenizers from the embedded checkpoint that plays the same role. Each model is written as sharded safetensors to a
scratch folder, loaded by the transformers runner as in a run, and answers those observations of its suite that are
compared by numbers (forced text stands on free text, which is generated first). For each, the peak of memory above what
the process held before is printed beside the estimate for the batches that were really formed and beside the one that
the plan makes without a tokenizer. Exit code 1 where a model did not complete, a result is not finite, or the peak is
above the plan's estimate or further from that of the real batches than `--tolerance` allows. On a CPU only too much is
a fault: weights are read where they lie, and rows of an embedding that no prompt uses never are.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
import numpy as np
import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from shapes.filling import borrow_tokenizer, write_model
from shapes.peak import peak_of

from conformance.catalogue import Catalogue, Model, load_catalogue
from conformance.engines import memory
from conformance.engines.shape import BYTES, read_shape
from conformance.engines.shape import parameters as count
from conformance.engines.transformers import TransformersRunner
from conformance.execution.group import parameters
from conformance.inventory import Suite, load_suites, of_roles, resolve
from conformance.registry import discover
from conformance.runner import LoadRequest
from conformance.suite import Answers, Ask
from conformance.tokenization import Tokenizer


def main() -> int:
    """Run every model that was asked for, and print what came of it."""
    options = _options()
    registry = discover()
    catalogue = load_catalogue(registry.catalogue_paths())
    suites = of_roles(load_suites(registry))
    found: list[dict[str, Any]] = []
    for model in catalogue.models:
        if model.tier == "full" and (not options.only or model.name in options.only):
            for attention in options.attention:
                found.append(_try(model, attention, catalogue, suites, options))
                print(json.dumps(found[-1]), flush=True)
                _write(found, options)  # after each, so that a run that is cut short has shown something
    bad = [each for each in found if each["faults"]]
    for each in bad:
        print(f"{each['model']} {each['attention']}: {'; '.join(each['faults'])}", file=sys.stderr)
    print(f"{len(found) - len(bad)} of {len(found)} completed within the estimate")
    return 1 if bad or not found else 0


def _write(found: list[dict[str, Any]], options: argparse.Namespace) -> None:
    if options.output:
        document = {
            "device": _device_name(options.device),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "prompts": options.prompts,
            "results": found,
        }
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(document, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--attention", action="append", help="as transformers spells it (default: sdpa)")
    parser.add_argument("--only", metavar="NAME", action="append", help="this model only; may be given several times")
    parser.add_argument(
        "--prompts",
        metavar="N",
        type=int,
        help="only the N shortest prompts, for machines that are slow (default: all)",
    )
    parser.add_argument("--tolerance", metavar="SHARE", type=float, default=0.25)
    parser.add_argument("--scratch", metavar="DIR", type=Path, help="where weights are written, 2 bytes a parameter")
    parser.add_argument("--output", metavar="FILE", type=Path)
    options = parser.parse_args()
    options.attention = options.attention or ["sdpa"]
    return options


def _try(
    model: Model, attention: str, catalogue: Catalogue, suites: dict[str, Suite], options: argparse.Namespace
) -> dict[str, Any]:
    role = model.roles[0]
    record: dict[str, Any] = {"model": model.name, "role": role, "attention": attention, "dtype": options.dtype}
    record["faults"] = []
    try:
        with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
            clock = time.monotonic()
            folder = Path(scratch) / model.name
            record["parameters"] = write_model(model, role, folder, options.device)
            borrow_tokenizer(role, catalogue, folder)
            record["written_s"] = round(time.monotonic() - clock, 1)
            record.update(_run(model, role, folder, attention, suites.get(role), options, record["faults"]))
    except Exception as error:
        record["faults"].append(f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}")
    return record


def _run(
    model: Model,
    role: str,
    folder: Path,
    attention: str,
    suite: Suite | None,
    options: argparse.Namespace,
    faults: list[str],
) -> dict[str, Any]:
    if suite is None:
        raise LookupError(f"no suite plays the role {role!r}")
    request = LoadRequest(model.name, str(folder), role, options.device, attention, options.dtype, parameters(model))
    kind = resolve(suite.path)
    lengths: list[list[int]] = []
    clock = time.monotonic()
    with peak_of(options.device) as peak, TransformersRunner(request) as runner:
        loaded = time.monotonic() - clock
        asked = _asked(runner, kind, folder, options.prompts)
        for name in [name for name, wants in kind.observations().items() if wants.yardstick]:
            found = getattr(asked, name)
            if found.prompt_token_ids:
                lengths.append([len(ids) for ids in found.prompt_token_ids])
            if not np.isfinite(found.values[~np.isnan(found.values)]).all() or np.isnan(found.values).all():
                faults.append(f"{name} is not finite")
    seconds = time.monotonic() - clock - loaded
    assert suite.workload is not None
    shape = read_shape(folder / "config.json")
    assert shape is not None
    way = memory.Way(options.dtype, memory.EAGER if attention == "eager" else memory.FUSED, options.device == "cpu")
    new = suite.workload.new_tokens
    pictures = {"patches": suite.workload.patches, "largest_picture": suite.workload.largest_picture}
    formed = [batch for each in lengths for batch in memory.batches_of(each, way, new)]
    real = memory.need(shape, role, way, [replace(batch, **pictures) for batch in formed])
    plan = memory.need(
        shape, role, way, memory.planned_batches(shape, suite.workload, way, model.parameters.get("max_tokens"))
    )
    ratio = peak["bytes"] / real.total
    if ratio > 1 + options.tolerance or (options.device != "cpu" and ratio < 1 - options.tolerance):
        faults.append(f"the peak is {ratio:.2f} times the estimate of the batches that were formed")
    if options.prompts is None and peak["bytes"] > plan.total * (1 + options.tolerance):
        faults.append(f"the peak is {peak['bytes'] / plan.total:.2f} times what the plan allows for")
    return {
        "peak_gib": _gib(peak["bytes"]),
        "reserved_gib": _gib(peak["reserved"]),
        "estimate_gib": _gib(real.total),
        "estimate": {name: _gib(value) for name, value in asdict(real).items()},
        "planned_gib": _gib(plan.total),
        "peak_over_estimate": round(ratio, 3),
        "peak_over_planned": round(peak["bytes"] / plan.total, 3),
        "weights_gib": _gib(BYTES[options.dtype] * count(shape, role)),
        "loaded_s": round(loaded, 1),
        "answered_s": round(seconds, 1),
    }


def _asked(runner: TransformersRunner, kind: Any, folder: Path, prompts: int | None) -> Answers:
    """The suite's observations from the runner, which is its own reference here."""
    inputs = kind.inputs()
    if prompts is not None:
        inputs = _shortest(inputs, prompts)

    def ask(name: str) -> Any:
        question = Ask(runner, inputs, runner.request.parameters, {}, Tokenizer(folder), own, own)
        return getattr(kind, name)(question)

    own = Answers(ask)
    return own


def _shortest(inputs: Any, count: int) -> Any:
    """Inputs with only their shortest prompts: every tuple that has one entry a prompt is cut alike."""
    tuples = {field.name: getattr(inputs, field.name) for field in fields(inputs)}
    main = next(name for name in ("prompts", "pairs", "texts", "conversations") if name in tuples)
    order = sorted(range(len(tuples[main])), key=lambda index: len(str(tuples[main][index])))[:count]
    changed = {
        name: tuple(values[index] for index in order)
        for name, values in tuples.items()
        if isinstance(values, tuple) and len(values) == len(tuples[main])
    }
    return replace(inputs, **changed)


def _device_name(device: str) -> str:
    if device == "cpu":
        return f"cpu, {torch.get_num_threads()} threads"
    return str(torch.get_device_module(device).get_device_properties(0).name)


def _gib(value: float) -> float:
    return round(value / 2**30, 3)


if __name__ == "__main__":
    sys.exit(main())
