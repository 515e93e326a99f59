"""`explain CASE`: what a case promises, on what, what is claimed for it, and how to run just that one."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from conformance import timings
from conformance.cache import cache_folder
from conformance.cli import OK
from conformance.cli.arguments import (
    Inputs,
    add_backend,
    add_engine_python,
    add_facts,
    add_probe,
    add_selection,
    command_line,
    read_inputs,
)
from conformance.disclaimed import SUITE
from conformance.duration import in_words
from conformance.names import UsageError, did_you_mean, printable

if TYPE_CHECKING:
    from conformance.plan import Case, Plan


PRECISIONS = {
    "ieee": "as exact as the dtype",
    "tf32": "reduced products",
    "fused": "16 bit in, 32 bit accumulated",
    "eager": "rounded after every operation",
    "fp16-acc": "16 bit accumulated",
}
"""What a profile means by the precision that it claims."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("case", metavar="CASE", help="the id of a case, or a part of it that no other case has")
    add_backend(parser)
    add_selection(parser)
    add_engine_python(parser)
    add_facts(parser)
    add_probe(parser)


def main(options: argparse.Namespace) -> int:
    """Print the explanation."""
    inputs = read_inputs(options)
    plan = inputs.plan()
    case = find(plan, options.case)
    estimate = inputs.estimate(replace(plan, cases=(case,)), timings.load(cache_folder())).record()
    print(printable(explanation(case, inputs, reproduction(case, options, inputs), estimate)))
    return OK


def find(plan: Plan, text: str) -> Case:
    """The case with that id, or the only one whose id contains the text or matches it as a shell pattern.

    Raises UsageError where none or several do.
    """
    from fnmatch import fnmatchcase

    exact = [case for case in plan.cases if case.id == text]
    found = exact or [case for case in plan.cases if text in case.id or fnmatchcase(case.id, text)]
    if len(found) == 1:
        return found[0]
    if not found:
        names = {name for case in plan.cases for name in (case.id, f"{case.suite}.{case.test}", case.test)}
        hint = did_you_mean(text, names) if len(names) else "the selection leaves no case"
        if hint.startswith("known are"):
            hint = "`list` prints them all"
        raise UsageError(f"no case matches {text!r}; {hint}")
    shown = [f"  {case.id}" for case in found[:8]] + ([f"  ... and {len(found) - 8} more"] if len(found) > 8 else [])
    raise UsageError(f"{len(found)} cases match {text!r}; say more of one of them:", *shown)


def reproduction(case: Case, options: argparse.Namespace, inputs: Inputs) -> str:
    """The command that runs exactly this case."""
    parts = [f"python -m conformance run {command_line(options, inputs.profile)}"]
    if case.target.engine not in inputs.profile.default_engines:
        parts.append(f"--engine {shlex.quote(case.target.engine)}")
    url = inputs.selection.url if "url" in inputs.profile.engines[case.target.engine].options else ""
    if url:
        parts.append(f"--url {shlex.quote(url)}")
    if url or case.target.dtype not in inputs.profile.default_dtypes(case.role, case.suite):
        parts.append(f"--dtype {case.target.dtype}")
    claim = inputs.profile.claim(case.target.engine, case.target.attention)
    if claim is not None and claim.opt_in:
        parts.append(f"--attention {shlex.quote(case.target.attention)}")
    for axis, value in case.target.axes:
        given = f"--vision-attention {value}" if axis == "vision" else f"--axis {axis}={value}"
        option, _, named = given.partition(" ")
        parts.append(f"{option} {shlex.quote(named)}")
    if case.model.tier == "local":
        parts.append(f"--model {shlex.quote(f'{case.role}={case.model.folder}')}")
    elif case.model.tier != "embedded":
        parts.append(f"--model {shlex.quote(f'{case.role}={case.model.name}')}")
    if case.suite == SUITE.name:
        parts.append("--probe-disclaimed")
    if case.directed and not case.model.directions:
        parts.append("--directions")
    if getattr(options, "engine_python", None) and case.python:
        parts.append(f"--engine-python {shlex.quote(f'{case.target.engine}={case.python}')}")
    parts.append(f"-k {shlex.quote(case.id)}")
    return " ".join(parts)


def _expected(kernels: Sequence[str], where: str = "") -> str:
    return (
        f"expected{where}: {', '.join(kernels)}, and no other"
        if kernels
        else "unknown: the engine tells nobody what runs"
    )


def explanation(case: Case, inputs: Inputs, command: str, estimate: Mapping[str, Any]) -> str:
    """The text."""
    model, claim = case.model, case.effective_target
    reduced = case.products.reduced(claim.dtype, convolves=case.vision is not None)
    rows = [
        ("case", case.id),
        ("suite", f"{case.suite} ({case.suite_path}), role {case.role}"),
        ("requirement", f"{case.requirement_id}: {case.statement}"),
        ("asks for", f"the runner's {', '.join(case.needs)}" if case.needs else "nothing beyond loading"),
        ("target", case.target.id),
        (
            "model",
            f"{model.name} ({model.architecture or 'architecture not catalogued'}, {model.tier}): {model.folder}",
        ),
        (
            "precision",
            f"{case.precision} ({PRECISIONS[case.precision]}), as claimed for {claim.engine}/{claim.attention}"
            + "".join(f"; {name} {PRECISIONS['tf32']} (tf32)" for name in reduced),
        ),
        ("kernels", _expected(case.kernels)),
    ]
    if case.vision is not None:
        kernels = case.vision.kernels[claim.dtype]
        rows.append(("vision tower", f"{case.vision.attention}; kernels {_expected(kernels, ' of it')}"))
    if case.effective_target != case.target:
        rows.append(("runs as", case.effective_target.id))
    if case.python:
        rows.append(("interpreter", case.python))
    for name, table in (("settings", case.settings), ("options", case.options), ("environment", case.environment)):
        if table:
            rows.append((name, ", ".join(f"{key} = {value}" for key, value in sorted(table.items()))))
    rows += [("undecided", f"{each}: waits for the facts of the device") for each in case.undecided]
    outcome = "to be run" if case.verdict is None else f"{case.verdict}: {case.reason}"
    rows.append(("outcome", outcome))
    if estimate["duration_s"]:
        rows.append(("estimate", f"at most {in_words(estimate)}, loading included"))
    lines = [f"{name:12} {value}" for name, value in rows]
    for quirk in inputs.profile.quirks:
        if quirk.id in case.quirks:
            lines.append(f"{'quirk':12} {quirk.id} ({quirk.kind}): {quirk.reason}")
            lines.append(f"{'':12} see {quirk.link}; {quirk.owner} re-tests it; expires {quirk.expires}")
            if quirk.uncovered:
                lines.append(f"{'':12} not covered because of it: {quirk.uncovered}")
    lines += ["", "run it alone:", f"  {command}"]
    return "\n".join(lines)
