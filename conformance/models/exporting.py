"""Exporting models for a site without a network: one tar file with weights, their records, and stored references.

It begins with `contents.json`, which lists every file with its size and sha256.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from conformance.models.contents import CONTENTS, KEY, ArchiveError, Checked, Contents, to_json
from conformance.models.lock import FileRecord, safe_name, sha256_of
from conformance.models.places import Place
from conformance.whole_file import whole_file


def export(path: Path, places: Mapping[str, Place], references: Path) -> Contents:
    """Write models, each whole and recorded, and those sets of `references` that were computed for them.

    Raises ArchiveError; then there is no archive.
    """
    entries = {name: replace(place.entry, folder="") for name, place in places.items() if place.entry is not None}
    digests = {entry.digest for entry in entries.values()}
    sets = dict(_sets_of(references, digests))
    contents = Contents(entries, {key: _records(folder) for key, folder in sets.items()})
    sources = {
        f"models/{name}/{file}": places[name].folder / file for name, each in entries.items() for file in each.files
    }
    sources |= {
        f"references/{key}/{file}": sets[key] / file for key, each in contents.references.items() for file in each
    }
    try:
        with whole_file(path) as stream, tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            listed = json.dumps(to_json(contents), indent=1).encode()
            archive.addfile(_member(CONTENTS, len(listed)), io.BytesIO(listed))
            for name, file in contents.files().items():
                with sources[name].open("rb") as source:
                    checked = Checked(source, file)
                    archive.addfile(_member(name, file.size), checked)
                    checked.finish(str(sources[name]))
    except OSError as error:
        raise ArchiveError(f"{path}: cannot be written: {error.strerror or error}") from error
    return contents


def _member(name: str, size: int) -> tarfile.TarInfo:
    """A member that says nothing of this machine: no owner, no time."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    return member


def _sets_of(references: Path, digests: set[str]) -> Iterator[tuple[str, Path]]:
    """The stored sets that were computed for weights with these digests, by key."""
    for manifest in sorted(references.glob("*/manifest.json")):
        try:
            weights = json.loads(manifest.read_text("utf-8"))["identity"]["weights"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if weights in digests and KEY.fullmatch(manifest.parent.name):
            yield manifest.parent.name, manifest.parent


def _records(folder: Path) -> dict[str, FileRecord]:
    files: Sequence[Path] = sorted(file for file in folder.iterdir() if file.is_file() and safe_name(file.name))
    return {file.name: FileRecord(file.stat().st_size, sha256_of(file)) for file in files}
