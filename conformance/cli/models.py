"""`models`: which models there are and where, and how they get here: fetched, verified, exported, imported."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.cli import FAILURES, INCOMPLETE, NOTHING_EXECUTED, OK, say
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
    parser.add_argument(
        "--replace", action="store_true", help="fetch: record files that differ from those that were recorded before"
    )
    parser.add_argument("--json", action="store_true", help="list: print JSON")


def main(options: argparse.Namespace) -> int:
    """Do what was asked; 6 where a model could not be had, 1 where one is not what it was."""
    from conformance.catalogue import load_catalogue
    from conformance.registry import discover

    if options.action not in ACTIONS:
        raise UsageError(unknown("action", options.action, ACTIONS))
    given_options = (("--from", options.source), ("--write-pins", options.write_pins), ("--replace", options.replace))
    for option, given in given_options:
        if given and options.action != "fetch":
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
    unreachable: dict[tuple[str, str], list[str]] = {}
    said: list[str] = []

    def say_once(text: str) -> None:
        if not said:
            say(text)
            said.append(text)

    for model in models:
        try:
            if options.source is not None:
                entry = fetch.from_folder(model, options.source, alone=len(models) == 1)
            else:
                entry = fetch.from_hub(model, locate(model, lock).revision, say_once)
            if not options.replace:
                _require_same(model, lock.get(model.name), entry)
        except fetch.Unreachable as error:
            unreachable.setdefault((error.why, error.remedy), []).append(error.model)
            code = INCOMPLETE
            continue
        except fetch.FetchError as error:
            for line in str(error).splitlines():
                say(line)
            code = INCOMPLETE
            continue
        record({model.name: entry})
        fetched[model.name] = entry
        place = locate(model, read_lock())
        size = sum(file.size for file in entry.files.values())
        at = f"commit {entry.revision}" if entry.revision else "of an unknown commit, so not pinned"
        print(printable(f"{model.name}: {len(entry.files)} files, {in_words(size)}, {at}: {place.folder}"))
        if fault := fetch.wrong_sizes(model, place.folder):
            say(fault)
    for (why, remedy), names in unreachable.items():
        say(f"{why} {', '.join(names)}; {remedy}")
    if options.write_pins is not None:
        known = {name: entry.revision for name, entry in fetched.items() if entry.revision}
        unknown_commit = sorted(fetched.keys() - known)
        if unknown_commit:
            code = INCOMPLETE
            say(
                f"{options.write_pins}: nothing was written for {', '.join(unknown_commit)}: nobody knows of which "
                "commit the files are; fetch from the hub, or give its cache or a folder that its command line made"
            )
        for name in pins.write_pins(options.write_pins, known):
            print(printable(f"{options.write_pins}: {name} is pinned to {known[name]}"))
    return code


def _require_same(model: Model, before: Entry | None, now: Entry) -> None:
    """A record is not replaced behind anybody's back, unless the catalogue has come to ask for something else."""
    from conformance.models.fetch import FetchError

    if before is None or before.hub != now.hub or model.revision not in ("", before.revision):
        return
    faults = []
    for name in sorted(before.files.keys() | now.files.keys()):
        old, new = before.files.get(name), now.files.get(name)
        if old is None:
            faults.append(f"{name} was not there when the model was fetched before")
        elif new is None:
            faults.append(f"{name} is missing")
        elif old != new:
            faults.append(f"{name} has the sha256 {new.sha256}, but had {old.sha256} when it was fetched before")
    if faults:
        shown = "; ".join(faults[:3]) + (f"; and {len(faults) - 3} more" if len(faults) > 3 else "")
        raise FetchError(
            f"{model.name}: {shown}; the record stays as it is: bring those files back, or, where the new ones are "
            "meant, give --replace"
        )


def _verify(options: argparse.Namespace, catalogue: Catalogue) -> int:
    from conformance.models.lock import read_lock
    from conformance.models.places import MISSING, locate
    from conformance.models.verify import faults

    lock = read_lock()
    fetched = [model for model in full_size(catalogue) if model.name in lock]
    models = chosen(options, catalogue) if selects(options) else fetched
    if not models:
        print("nothing was fetched, so there is nothing to verify: python -m conformance models fetch NAME")
        return NOTHING_EXECUTED
    code = OK
    for model in models:
        place = locate(model, lock)
        found = faults(model, place)
        for fault in found:
            print(printable(fault))
        if found and place.where != MISSING and place.entry is not None:
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
            say(fault)
        say("nothing was exported")
        return INCOMPLETE
    try:
        contents = export(path, places, references_folder())
    except ArchiveError as error:
        raise UsageError(str(error)) from error
    size = sum(file.size for file in contents.files().values())
    print(
        printable(
            f"{path}: {', '.join(contents.models)}, {_sets(len(contents.references))}, "
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
    print(_sets(len(contents.references)))
    return OK


def _sets(count: int) -> str:
    return f"{count} stored set{'s' * (count != 1)} of references"


def _archive(options: argparse.Namespace) -> Path:
    """The tar file, which stands before the models' names."""
    if not options.names:
        raise UsageError(
            f"`models {options.action}` needs a file: python -m conformance models {options.action} FILE.tar"
        )
    return Path(options.names.pop(0))
