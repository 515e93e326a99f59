"""`models`: which models there are and where, and how they get here: fetched, verified, exported, imported."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.cli import FAILURES, INCOMPLETE, OK, say
from conformance.cli.arguments import add_backend, profile_path
from conformance.names import UsageError, printable, unknown

if TYPE_CHECKING:
    from conformance.catalogue import Catalogue, Model
    from conformance.models.lock import Entry
    from conformance.models.places import Place

ACTIONS = {
    "list": "all models of the catalogue: tier, roles, size, where they are, pinned or not (the default)",
    "fetch": "fetch full-size models from the hub, its cache or a folder, and record commit and sha256 of every file",
    "verify": "hash every file again and compare with what was recorded",
    "export": "write models, records and stored references to one tar file, for a site without a network",
    "import": "read such a file",
}

DESCRIPTION = "\n".join(f"  {name:8}{meaning}" for name, meaning in ACTIONS.items())
EXAMPLES = """examples:
  python -m conformance models
  python -m conformance models fetch Qwen3-Embedding-0.6B
  python -m conformance models fetch --run nightly --backend cuda
  python -m conformance models fetch --from /mnt/models Qwen3-0.6B
  python -m conformance models export models.tar Qwen3-0.6B; python -m conformance models import models.tar

CONFORMANCE_MODELS is the folder of records and imported models; HF_HOME moves the hub's cache, HF_HUB_OFFLINE=1 keeps
off the network.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = f"{parser.description}\n\n{DESCRIPTION}"
    parser.epilog = EXAMPLES
    parser.add_argument("action", nargs="?", default="list", metavar="ACTION", help="; ".join(ACTIONS))
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="models; for export and import, the tar file comes first"
    )
    parser.add_argument("--all", action="store_true", help="every full-size model of the catalogue")
    parser.add_argument("--run", metavar="NAME", help="the models that a profile's named run needs; with --backend")
    add_backend(parser)
    parser.add_argument("--from", dest="source", metavar="FOLDER", type=Path, help="fetch: models on disk, left there")
    parser.add_argument(
        "--write-pins", metavar="FILE", type=Path, help="fetch: write the commits into this models.toml"
    )
    parser.add_argument("--json", action="store_true", help="list: print JSON")


def main(options: argparse.Namespace) -> int:
    """Do what was asked; 6 where a model could not be had, 1 where one is not what it was."""
    from conformance.catalogue import load_catalogue
    from conformance.registry import discover

    if options.action not in ACTIONS:
        raise UsageError(unknown("action", options.action, ACTIONS))
    for option, given in (("--from", options.source), ("--write-pins", options.write_pins)):
        if given is not None and options.action != "fetch":
            raise UsageError(f"{option} belongs to `models fetch`, not to `models {options.action}`")
    registry = discover()
    catalogue = load_catalogue(registry.catalogue_paths())
    action = {"list": _list, "fetch": _fetch, "verify": _verify, "export": _export, "import": _import}[options.action]
    return action(options, catalogue)


def _list(options: argparse.Namespace, catalogue: Catalogue) -> int:
    from conformance.models.lock import read_lock
    from conformance.models.places import locate

    lock = read_lock()
    chosen = _chosen(options, catalogue) if _selects(options) else list(catalogue.models)
    rows = [_row(model, locate(model, lock)) for model in chosen]
    if options.json:
        print(json.dumps(rows, indent=2))
        return OK
    lines = [("MODEL", "TIER", "ROLES", "ARCHITECTURE", "PARAMETERS", "DISK", "WHERE", "COMMIT")]
    lines += [
        (
            row["name"],
            row["tier"],
            ", ".join(row["roles"]),
            row["architecture"],
            "?" if row["parameters"] is None else _short(row["parameters"]),
            "?" if row["bytes"] is None else _size(row["bytes"]),
            row["where"],
            row["revision"][:12] if row["revision"] else "-" if row["tier"] == "embedded" else "not pinned",
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        print(printable("  ".join(f"{text:{width}}" for text, width in zip(line, widths, strict=True)).rstrip()))
    problems = [row["problem"] for row in rows if row["where"] == "incomplete"]
    for problem in problems:
        print(printable(problem))
    missing = sum(row["where"] == "missing" for row in rows)
    if missing:
        print(f"{missing} missing: python -m conformance models fetch NAME ..., or --all")
    return OK


def _fetch(options: argparse.Namespace, catalogue: Catalogue) -> int:
    from conformance.models import fetch, pins
    from conformance.models.lock import read_lock, record
    from conformance.models.places import locate

    chosen = _chosen(options, catalogue)
    lock = read_lock()
    fetched: dict[str, Entry] = {}
    code = OK
    for model in chosen:
        try:
            if options.source is not None:
                entry = fetch.from_folder(model, options.source, alone=len(chosen) == 1)
            else:
                entry = fetch.from_hub(model, locate(model, lock).revision, say)
            _require_same(model, lock.get(model.name), entry)
        except fetch.FetchError as error:
            for line in str(error).splitlines():
                say(printable(line))
            code = INCOMPLETE
            continue
        record({model.name: entry})
        fetched[model.name] = entry
        place = locate(model, read_lock())
        size = sum(file.size for file in entry.files.values())
        at = f"commit {entry.revision}" if entry.revision else "of an unknown commit, so not pinned"
        print(printable(f"{model.name}: {len(entry.files)} files, {_size(size)}, {at}: {place.folder}"))
        for fault in fetch.other_sizes(model, place.folder):
            say(printable(fault))
    if options.write_pins is not None:
        known = {name: entry.revision for name, entry in fetched.items() if entry.revision}
        for name in pins.write_pins(options.write_pins, known):
            print(printable(f"{options.write_pins}: {name} is pinned to {known[name]}"))
    return code


def _require_same(model: Model, before: Entry | None, now: Entry) -> None:
    """A commit does not change: other files at the same one were altered here or there."""
    from conformance.models.fetch import FetchError

    if before is None or not now.revision or (before.hub, before.revision) != (now.hub, now.revision):
        return
    other = sorted(name for name in before.files.keys() & now.files.keys() if before.files[name] != now.files[name])
    if other:
        raise FetchError(
            f"{model.name}: {', '.join(other)} at commit {now.revision} had another sha256 when it was fetched before; "
            f"delete the altered file and fetch again (`models verify {model.name}` says which it is)"
        )


def _verify(options: argparse.Namespace, catalogue: Catalogue) -> int:
    from conformance.models.lock import read_lock
    from conformance.models.places import locate
    from conformance.models.verify import faults

    lock = read_lock()
    chosen = _chosen(options, catalogue) if _selects(options) else _full(catalogue, lambda model: model.name in lock)
    if not chosen:
        print("nothing was fetched, so there is nothing to verify")
        return OK
    code = OK
    for model in chosen:
        found = faults(model, locate(model, lock))
        for fault in found:
            print(printable(fault))
        if found:
            code = FAILURES
        else:
            entry = lock[model.name]
            print(printable(f"{model.name}: {len(entry.files)} files are what was fetched"))
    return code


def _export(options: argparse.Namespace, catalogue: Catalogue) -> int:
    from conformance.models.contents import ArchiveError
    from conformance.models.exporting import export
    from conformance.models.lock import read_lock
    from conformance.models.places import locate
    from conformance.models.verify import faults
    from conformance.reference.store import references_folder

    path = _archive(options)
    chosen = _chosen(options, catalogue)
    lock = read_lock()
    places: dict[str, Place] = {model.name: locate(model, lock) for model in chosen}
    found = [fault for model in chosen for fault in faults(model, places[model.name])]
    if found:
        for fault in found:
            say(printable(fault))
        say("nothing was exported")
        return INCOMPLETE
    try:
        contents = export(path, places, references_folder())
    except ArchiveError as error:
        raise UsageError(str(error)) from error
    size = sum(file.size for file in contents.files().values())
    print(
        printable(
            f"{path}: {', '.join(contents.models)}, {len(contents.references)} stored sets of references, "
            f"{_size(size)}; there: python -m conformance models import {path.name}"
        )
    )
    return OK


def _import(options: argparse.Namespace, catalogue: Catalogue) -> int:
    from conformance.models.contents import ArchiveError
    from conformance.models.importing import import_archive
    from conformance.models.lock import read_lock
    from conformance.reference.store import references_folder

    path = _archive(options)
    if options.names or options.run or options.all:
        raise UsageError("`models import` takes the archive alone, and all that is in it")
    full = {model.name: model for model in _full(catalogue)}
    try:
        contents = import_archive(path, full, read_lock(), references_folder())
    except ArchiveError as error:
        raise UsageError(*str(error).splitlines()) from error
    for name, entry in contents.models.items():
        print(printable(f"{name}: {len(entry.files)} files, commit {entry.revision or 'unknown, so not pinned'}"))
    print(f"{len(contents.references)} stored sets of references")
    return OK


def _archive(options: argparse.Namespace) -> Path:
    """The tar file, which stands before the models' names."""
    if not options.names:
        raise UsageError(
            f"`models {options.action}` needs a file: python -m conformance models {options.action} FILE.tar"
        )
    return Path(options.names.pop(0))


def _selects(options: argparse.Namespace) -> bool:
    return bool(options.names or options.run or options.all)


def _chosen(options: argparse.Namespace, catalogue: Catalogue) -> list[Model]:
    """The full-size models that were named, or that a named run needs. Raises UsageError with every fault."""
    full = _full(catalogue)
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
    found = [model for model in _full(catalogue) if any(matrix.plays(model, role) for role in roles)]
    if not found:
        raise UsageError(f"the run {options.run!r} of {profile.path} needs no fetched model: the embedded ones do")
    return found


def _full(catalogue: Catalogue, also: Any = lambda model: True) -> list[Model]:
    return [model for model in catalogue.models if model.tier == "full" and also(model)]


def _row(model: Model, place: Place) -> dict[str, Any]:
    from dataclasses import replace

    from conformance.engines.shape import BYTES, parameters, read_shape

    shape = read_shape(replace(model, folder=place.folder).config_file)
    published = "generation" if model.architecture.endswith("ForCausalLM") else model.roles[0]
    count = None if shape is None else parameters(shape, published)
    size = sum(file.size for file in place.entry.files.values()) if place.entry is not None else None
    if size is None and shape is not None and count is not None:
        size = count * BYTES.get(shape.stored, 2)
    return {
        "name": model.name,
        "tier": model.tier,
        "roles": list(model.roles),
        "architecture": model.architecture,
        "hub": model.hub,
        "parameters": count,
        "bytes": size,
        "where": place.where,
        "folder": str(place.folder),
        "revision": place.revision,
        "pinned_by": "catalogue" if model.revision else "lock" if place.revision else None,
        "problem": place.problem,
    }


def _size(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**27 else f"{count / 2**20:.1f} MiB"


def _short(count: int) -> str:
    return f"{count / 1e9:.2f} G" if count >= 1e8 else f"{count / 1e6:.1f} M"
