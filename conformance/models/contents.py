"""The list at the head of an archive of models, and the stream that holds every file against it."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from conformance.models.lock import Entry, FileRecord, entry_from_json, safe_name
from conformance.names import printable

CONTENTS = "contents.json"
FORMAT = "conformance models 1"
LARGEST_CONTENTS = 16 << 20
KEY = re.compile(r"[0-9a-f]{64}")


class ArchiveError(Exception):
    """An archive cannot be written or is not to be trusted; the message says what is wrong with it."""


@dataclass(frozen=True)
class Contents:
    """What an archive holds: entries by model, and files by the key of the stored reference that they belong to."""

    models: Mapping[str, Entry]
    references: Mapping[str, Mapping[str, FileRecord]]

    def files(self) -> dict[str, FileRecord]:
        """Every file by its name in the archive."""
        found = {
            f"models/{name}/{file}": size for name, each in self.models.items() for file, size in each.files.items()
        }
        found |= {
            f"references/{key}/{file}": size for key, each in self.references.items() for file, size in each.items()
        }
        return found


def read_contents(archive: tarfile.TarFile, path: Path) -> Contents:
    """The list at the head of an open archive. Raises ArchiveError where it is not one that can be trusted."""
    head = archive.next()
    if head is None or head.name != CONTENTS or not head.isreg():
        raise ArchiveError(f"{path}: does not begin with {CONTENTS}; give a file that `models export` wrote")
    if head.size > LARGEST_CONTENTS:
        raise ArchiveError(f"{path}: {CONTENTS} has {head.size} bytes, more than the {LARGEST_CONTENTS} that are read")
    stream = archive.extractfile(head)
    try:
        found = json.loads(stream.read(LARGEST_CONTENTS) if stream else b"")
        return from_json(found)
    except (ValueError, RecursionError) as error:
        raise ArchiveError(f"{path}: {CONTENTS}: {printable(str(error))}") from None


class Checked(io.RawIOBase):
    """A stream that hashes what is read from it; `finish` holds it against what should have come."""

    def __init__(self, source: Any, expected: FileRecord) -> None:
        self._source, self._expected = source, expected
        self._hash, self._size = hashlib.sha256(), 0

    def read(self, size: int = -1) -> bytes:
        chunk: bytes = self._source.read(size)
        self._hash.update(chunk)
        self._size += len(chunk)
        return chunk

    def finish(self, name: str) -> None:
        """Raise ArchiveError unless exactly the expected bytes were read."""
        if (self._size, self._hash.hexdigest()) != (self._expected.size, self._expected.sha256):
            raise ArchiveError(
                f"{name}: is altered: {self._size} bytes with sha256 {self._hash.hexdigest()}, but should be "
                f"{self._expected.size} with {self._expected.sha256}"
            )


def to_json(contents: Contents) -> dict[str, Any]:
    """The list as it stands in the archive."""
    return {
        "format": FORMAT,
        "models": {name: entry.to_json() for name, entry in contents.models.items()},
        "references": {
            key: {name: {"size": file.size, "sha256": file.sha256} for name, file in files.items()}
            for key, files in contents.references.items()
        },
    }


def from_json(found: Any) -> Contents:
    """A list that nobody vouches for. Raises ValueError that says what is wrong."""
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"its format should be {FORMAT!r}")
    models, references = found.get("models"), found.get("references")
    if not isinstance(models, dict) or not isinstance(references, dict):
        raise ValueError("it should have tables of models and references")
    entries = {}
    for name, entry in models.items():
        if not safe_name(name):
            raise ValueError(f"{name!r} is no model's name")
        entries[name] = replace(entry_from_json(entry), folder="")
    sets = {}
    for key, files in references.items():
        if not KEY.fullmatch(key):
            raise ValueError(f"{key!r} is no reference's key")
        sets[key] = entry_from_json({"hub": "", "revision": "", "folder": "", "digest": key, "files": files}).files
    return Contents(entries, sets)
