"""`models`: which models there are and where, and how they get here: fetched, verified, exported, imported."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.cli import FAILURES, INCOMPLETE, OK, say
from conformance.cli.arguments import add_backend
from conformance.cli.model_choice import chosen, full_size, selects
from conformance.cli.model_list import list_models
from conformance.names import UsageError, printable, unknown
from conformance.size import in_words

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
    actions = {"list": list_models, "fetch": _fetch, "verify": _verify, "export": _export, "import": _import}
    return actions[options.action](options, catalogue)


def _fetch(options: argparse.Namespace, catalogue: Catalogue) -> int:
    from conformance.models import fetch, pins
    from conformance.models.lock import read_lock, record
    from conformance.models.places import locate

    models = chosen(options, catalogue)
    lock = read_lock()
    fetched: dict[str, Entry] = {}
    code = OK
    for model in models:
        try:
            if options.source is not None:
                entry = fetch.from_folder(model, options.source, alone=len(models) == 1)
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
        print(printable(f"{model.name}: {len(entry.files)} files, {in_words(size)}, {at}: {place.folder}"))
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
    from conformance.models.places import MISSING, locate
    from conformance.models.verify import faults

    lock = read_lock()
    fetched = [model for model in full_size(catalogue) if model.name in lock]
    models = chosen(options, catalogue) if selects(options) else fetched
    if not models:
        print("nothing was fetched, so there is nothing to verify")
        return OK
    code = OK
    for model in models:
        place = locate(model, lock)
        found = faults(model, place)
        for fault in found:
            print(printable(fault))
        if found and place.where != MISSING:
            code = FAILURES
        elif found:
            code = code or INCOMPLETE  # what is altered weighs more than what is not here
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
    models = chosen(options, catalogue)
    lock = read_lock()
    places: dict[str, Place] = {model.name: locate(model, lock) for model in models}
    found = [fault for model in models for fault in faults(model, places[model.name])]
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
            f"{in_words(size)}; there: python -m conformance models import {path.name}"
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
    full = {model.name: model for model in full_size(catalogue)}
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
