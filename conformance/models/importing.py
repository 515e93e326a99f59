"""Importing models from an archive that nothing but its own list vouches for.

Names come from that list, each checked to stay in its folder; a member that is no plain file, is not listed or has
another size or hash ends the import with nothing put in place.
"""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from conformance import checkpoint
from conformance.catalogue import Model
from conformance.models.contents import CONTENTS, ArchiveError, Checked, Contents, read_contents
from conformance.models.fetch import SPARE, wanted
from conformance.models.lock import Entry, models_folder, record
from conformance.names import printable, unknown


def import_archive(path: Path, models: Mapping[str, Model], lock: Mapping[str, Entry], references: Path) -> Contents:
    """Put an archive's models into the models folder and its references into the store.

    Everything is unpacked beside its place and hashed first; then each model appears whole, and is recorded. Raises
    ArchiveError where the archive is damaged, hostile, of a model that the catalogue does not name, of another
    commit than the catalogue pins, or too large for the disk.
    """
    try:
        with tarfile.open(path, mode="r|") as archive:
            contents = read_contents(archive, path)
            refusals = [
                each for name, entry in contents.models.items() for each in _refusals(name, entry, models, lock)
            ]
            if refusals:
                raise ArchiveError("\n".join(f"{path}: {refusal}" for refusal in refusals))
            home = models_folder()
            home.mkdir(parents=True, exist_ok=True)
            references.mkdir(parents=True, exist_ok=True)
            _require_space(path, contents, home)
            with tempfile.TemporaryDirectory(dir=home, prefix=".import-") as scratch:
                _unpack(archive, path, contents, Path(scratch))
                _check_models(path, contents, Path(scratch))
                _check_references(path, contents, Path(scratch))
                _put_in_place(contents, Path(scratch), home, references)
    except (tarfile.TarError, ValueError) as error:  # numbers in a header that are none are a ValueError
        raise ArchiveError(f"{path}: no tar archive, or damaged: {error}") from error
    except (OSError, EOFError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ArchiveError(f"{path}: cannot be imported: {reason}") from error
    record(contents.models)
    return contents


def _refusals(name: str, entry: Entry, models: Mapping[str, Model], lock: Mapping[str, Entry]) -> Iterator[str]:
    model = models.get(name)
    if model is None:
        yield f"{unknown('model', name, models)} (the catalogue here and there must name the same models)"
        return
    if entry.hub != model.hub:
        yield f"{name} is {printable(entry.hub)} there, but {model.hub} in the catalogue here"
    if model.revision and entry.revision != model.revision:
        yield f"{name} is at commit {entry.revision or 'unknown'}, but the catalogue pins it to {model.revision}"
    mine = lock.get(name)
    if mine is not None and mine.revision and mine.revision == entry.revision and mine.files != entry.files:
        yield f"{name} has other files than were fetched here at the same commit {mine.revision}; one side is altered"
    more = sorted(entry.files.keys() - set(wanted(model, entry.files)))
    if more:
        yield f"{name} brings {', '.join(more)}, which no run may load (pickles never, Python only where it is pinned)"


def _require_space(path: Path, contents: Contents, home: Path) -> None:
    needed = sum(file.size for file in contents.files().values())
    free = shutil.disk_usage(home).free
    if needed + SPARE > free:
        raise ArchiveError(
            f"{path}: holds {needed / 2**30:.1f} GiB, but the disk of {home} has {free / 2**30:.1f} GiB free (1 GiB "
            "stays free); free space, or set CONFORMANCE_MODELS to a folder on another disk"
        )


def _unpack(archive: tarfile.TarFile, path: Path, contents: Contents, scratch: Path) -> None:
    """Unpack the listed files, and only those, below `scratch`, where every name was checked to stay."""
    expected = contents.files()
    seen: set[str] = set()
    while (member := archive.next()) is not None:
        name = member.name
        if name not in expected or name in seen:
            again = "twice" if name in seen else f"but {CONTENTS} does not list it"
            raise ArchiveError(f"{path}: holds {printable(name)!r}, {again}; nothing was imported")
        seen.add(name)
        if not member.isreg() or member.size != expected[name].size:
            raise ArchiveError(f"{path}: {name} is no plain file of {expected[name].size} bytes; nothing was imported")
        source = archive.extractfile(member)
        target = scratch / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            checked = Checked(source, expected[name])
            shutil.copyfileobj(checked, file, 1 << 20)
            checked.finish(f"{path}: {name}")
            os.fsync(file.fileno())
    missing = sorted(expected.keys() - seen)
    if missing:
        raise ArchiveError(
            f"{path}: {missing[0]} is listed, but not there; the archive is cut short; nothing was imported"
        )


def _check_models(path: Path, contents: Contents, scratch: Path) -> None:
    """A model must be one that can be loaded safely, and the one that its record describes."""
    for name, entry in contents.models.items():
        folder = scratch / "models" / name
        try:
            checkpoint.check(folder)
        except checkpoint.CheckpointError as error:
            raise ArchiveError(f"{path}: {str(error).replace(str(scratch), '')}; nothing was imported") from error
        if checkpoint.digest(folder) != entry.digest:
            raise ArchiveError(f"{path}: {name} is not the model of its record; nothing was imported")


def _check_references(path: Path, contents: Contents, scratch: Path) -> None:
    """A stored reference must be what its key says, and of a model in the archive."""
    from conformance.reference.store import MANIFEST, Identity

    digests = {entry.digest for entry in contents.models.values()}
    for key in contents.references:
        try:
            manifest = json.loads((scratch / "references" / key / MANIFEST).read_text("utf-8"))
            identity = Identity(**manifest["identity"])
            fits = identity.key == key and identity.weights in digests
        except (OSError, ValueError, KeyError, TypeError):
            fits = False
        if not fits:
            raise ArchiveError(f"{path}: references/{key} is of none of the archive's models; nothing was imported")


def _put_in_place(contents: Contents, scratch: Path, home: Path, references: Path) -> None:
    for name in contents.models:
        old = scratch / f"old-{name}"
        if (home / name).exists():
            (home / name).rename(old)
        (scratch / "models" / name).rename(home / name)
    for key in contents.references:
        if not (references / key).exists():
            shutil.move(scratch / "references" / key, references / key)
