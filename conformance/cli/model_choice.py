"""Which models `models` is to act on: those named, those that a named run needs, or all full-size ones."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from conformance.cli.arguments import profile_path
from conformance.names import UsageError, unknown

if TYPE_CHECKING:
    from conformance.catalogue import Catalogue, Model


def selects(options: argparse.Namespace) -> bool:
    """Whether the command line chooses any."""
    return bool(options.names or options.run or options.all)


def chosen(options: argparse.Namespace, catalogue: Catalogue) -> list[Model]:
    """The full-size models that were named, or that a named run needs. Raises UsageError with every fault."""
    full = full_size(catalogue)
    if options.all:
        return full
    if options.run is not None:
        return _of_run(options, catalogue)
    names = [model.name for model in full]
    embedded = {model.name for model in catalogue.models} - set(names)
    faults = [
        f"{name} is embedded: it comes with the package" if name in embedded else unknown("model", name, names)
        for name in options.names
        if name not in names and not (options.action == "list" and name in embedded)
    ]
    if not options.names:
        faults = [f"name models, or --run NAME --backend NAME, or --all; known are {', '.join(names)}"]
    if faults:
        raise UsageError(*faults)
    return [model for model in catalogue.models if model.name in options.names]


def _of_run(options: argparse.Namespace, catalogue: Catalogue) -> list[Model]:
    from conformance.inventory import load_suites
    from conformance.profile import load_profile
    from conformance.registry import discover
    from conformance.selection import Selection, resolve

    registry = discover()
    profile = load_profile(profile_path(options, registry))
    suites = load_suites(registry)
    matrix = resolve(Selection(run=options.run), profile, suites, catalogue)
    roles = {suite.role for suite in suites if suite.name in matrix.suites}
    found = [model for model in full_size(catalogue) if any(matrix.plays(model, role) for role in roles)]
    if not found:
        raise UsageError(f"the run {options.run!r} of {profile.path} needs no fetched model: the embedded ones do")
    return found


def full_size(catalogue: Catalogue) -> list[Model]:
    """The models that are fetched."""
    return [model for model in catalogue.models if model.tier == "full"]
