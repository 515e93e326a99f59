"""How the suite's own time grows with cases and with prompts, on an engine that costs next to nothing.

The engine is Zenith's of the tests, which imports no torch; the suite has ten cases a model, and as many models or
prompts as are asked for. A constant share would hide growth in a ratio of whole times, so the figure is the cost of
one more: between the two largest sizes, over that between the two smallest. Linear growth gives 1; quadratic growth
gives 2 where the sizes double twice, and 4 where they double three times. What is timed is the processors' work: the
suite's process and its worker wait for each other, so on an idle machine it is the wall time, and others do not
disturb it much.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from figures import Figure
from programs import ROOT, Measured, NotMeasured, measure

sys.path.insert(0, str(ROOT / "tests"))  # the vendor that the tests make

import growing_suite
import zenith_site
from zenith.engine import ZenithRunner

from conformance.reference import compute, store
from conformance.results.output import RESULTS
from conformance.results.validation import read_document
from conformance.runner import LoadRequest
from conformance.tokenization import Tokenizer

CASES_A_MODEL = 10
LIMIT = 1.5


@dataclass(frozen=True)
class Size:
    """How large a run is."""

    cases: int
    prompts: int


@dataclass(frozen=True)
class Grown:
    """A size, and what each run of it cost."""

    size: Size
    costs: list[Measured] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The least processor time."""
        return min(cost.cpu_s for cost in self.costs)


def install(site: Path, size: Size) -> None:
    """Zenith's package in `site`, with the growing suite and its models, each with the references that it ships."""
    package = site / "growing"
    models = package / "checkpoints"
    names = [f"growing-{index}" for index in range(size.cases // CASES_A_MODEL)]
    prompts = {growing_suite.PROMPTS: str(size.prompts)}
    with redirect_stdout(None), patch.dict(os.environ, prompts):  # the engine says what it loads
        zenith_site.install(site)
        zenith_site.write_model(models / names[0])
        write_references(models / names[0])
    for name in names[1:]:
        shutil.copytree(models / names[0], models / name)
    (package / "models.toml").write_text("".join(map(_entry, names)))
    (package / "__init__.py").touch()
    shutil.copy(growing_suite.__file__, package)
    zenith_site.write_metadata(site, "growing", "[conformance.suites]\ngrowing = growing.growing_suite\n")


def write_references(folder: Path) -> None:
    """What a package ships for the model: the engine is exact in float64, and rounds otherwise."""
    suite = growing_suite.Growing
    parts = store.shipped(folder, store.identify(suite, folder, {}, "any"))
    request = LoadRequest(folder.name, str(folder), suite.role, "cpu", "plain", "float64", {})
    subject = compute.Subject(suite, request, Tokenizer(folder))
    reference = compute.compute_reference(subject, ZenithRunner)
    parts.save(compute.REFERENCE, reference)
    yardstick = compute.compute_yardstick(subject, reference, "bfloat16", "eager", ZenithRunner)
    parts.save_yardstick(compute.part_name("bfloat16", "eager"), yardstick, reference)


def run_once(folder: Path, size: Size) -> Measured:
    """What one run of this size costs, in `folder`, where it is installed on first use."""
    site = folder / "site"
    if not site.exists():
        install(site, size)
    output = folder / "out"
    shutil.rmtree(output, ignore_errors=True)
    arguments = ["-m", "conformance", "--backend", "zenith", "--suite", "growing", "--attention", "plain"]
    variables = zenith_site.environment(site, **{growing_suite.PROMPTS: str(size.prompts)})
    cost = measure([*arguments, "--output", str(output)], variables)
    executed = len(read_document(output / RESULTS)["cases"])
    if executed != size.cases:
        raise NotMeasured(f"{executed} cases ran, but {size.cases} were to be timed")
    return cost


def grow(folder: Path, sizes: Sequence[Size], repeats: int, say: Callable[[str], None]) -> list[Grown]:
    """Every size, all in turns `repeats` times."""
    found = [Grown(size) for size in sizes]
    for _ in range(repeats):
        for one in found:
            name = f"{one.size.cases} cases, {one.size.prompts} prompts"
            one.costs.append(run_once(folder / name, one.size))
            say(f"{name}: {one.costs[-1].cpu_s:.2f} s of the processors")
    return found


def judged(axis: str, sizes: Sequence[int], seconds: Sequence[float]) -> Figure:
    """Whether time grows linearly with `sizes`, ascending, at least three; `axis` names what they count."""
    small = (seconds[1] - seconds[0]) / (sizes[1] - sizes[0])
    large = (seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2])
    times = ", ".join(f"{size}: {second:.2f} s" for size, second in zip(sizes, seconds, strict=True))
    return Figure(
        f"processor time of one more {axis} among many, over that of one more among few",
        large / small if small > 0 else math.inf,
        LIMIT,
        note=f"{times}; time grows as the number to the power {exponent(sizes, seconds):.2f}",
    )


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """The power law's exponent, fitted to the logarithms by least squares."""
    x, y = [math.log(size) for size in sizes], [math.log(second) for second in seconds]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((one - mean_x) ** 2 for one in x)
    return sum((one - mean_x) * (two - mean_y) for one, two in zip(x, y, strict=True)) / spread


def raw(grown: Sequence[Grown]) -> list[Mapping[str, Any]]:
    """What was measured, as data."""
    return [asdict(one) for one in grown]


def _entry(name: str) -> str:
    return (
        f'[models.{name}]\nroles = ["growing"]\ntier = "embedded"\nfolder = "checkpoints/{name}"\n'
        'architecture = "ToyGrowing"\n\n'
    )
