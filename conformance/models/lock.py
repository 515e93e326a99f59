"""What was fetched, written down: of each model the commit, and the size and sha256 of every file.

The record is `models.lock.json` in the models folder: CONFORMANCE_MODELS, or a folder of the user's.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance import checkpoint
from conformance.names import UsageError
from conformance.whole_file import whole_file

LOCK = "models.lock.json"
VERSION = 1

COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,200}")


@dataclass(frozen=True)
class FileRecord:
    """One file as it was fetched."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Entry:
    """One model as it was fetched. `revision` is empty where nobody knows the commit; `folder` where it lies in the
    hub's cache or in the models folder. `digest` is `checkpoint.digest` of it all."""

    hub: str
    revision: str
    digest: str
    files: Mapping[str, FileRecord]
    folder: str = ""

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        files = {name: {"size": file.size, "sha256": file.sha256} for name, file in sorted(self.files.items())}
        return {
            "hub": self.hub,
            "revision": self.revision,
            "folder": self.folder,
            "digest": self.digest,
            "files": files,
        }


def models_folder() -> Path:
    """Where the lock file and imported models lie; it need not exist yet."""
    import platformdirs

    chosen = os.environ.get("CONFORMANCE_MODELS")
    return Path(chosen) if chosen else platformdirs.user_data_path("conformance", appauthor=False) / "models"


def entry_from_json(found: Any) -> Entry:
    """An entry from JSON that nobody vouches for. Raises ValueError that says what is wrong."""
    if not isinstance(found, dict) or set(found) != {"hub", "revision", "folder", "digest", "files"}:
        raise ValueError("an entry should have hub, revision, folder, digest and files")
    for key, right in (("hub", str), ("revision", str), ("folder", str), ("digest", str), ("files", dict)):
        if not isinstance(found[key], right):
            raise ValueError(f"{key} is {found[key]!r}")
    if found["revision"] and not COMMIT.fullmatch(found["revision"]):
        raise ValueError(f"revision is {found['revision']!r}, but should be 40 hex digits or empty")
    if not _SHA256.fullmatch(found["digest"]):
        raise ValueError(f"digest is {found['digest']!r}, but should be 64 hex digits")
    files = {}
    for name, file in found["files"].items():
        if not safe_name(name):
            raise ValueError(f"{name!r} is no file's name")
        if not isinstance(file, dict) or set(file) != {"size", "sha256"}:
            raise ValueError(f"{name} should have size and sha256")
        size, sha256 = file["size"], file["sha256"]
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**63:
            raise ValueError(f"{name} has the size {size!r}")
        if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            raise ValueError(f"{name} has the sha256 {sha256!r}, but should have 64 hex digits")
        files[name] = FileRecord(size, sha256)
    return Entry(found["hub"], found["revision"], found["digest"], files, found["folder"])


def safe_name(name: str) -> bool:
    """Whether a file or model of this name can only lie in the very folder that it is put into."""
    return bool(_FILE.fullmatch(name)) and not name.endswith(".")


def read_lock(folder: Path | None = None) -> dict[str, Entry]:
    """All entries by model. Raises UsageError for a lock file that is none."""
    path = (folder or models_folder()) / LOCK
    try:
        found = checkpoint.read_json(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read ({error.strerror or error}); set CONFORMANCE_MODELS to a folder that can be used"
        ) from None
    except ValueError as error:
        raise UsageError(f"{path}: cannot be read ({error}); delete it and fetch or import the models again") from None
    if not isinstance(found, dict) or found.get("version") != VERSION or not isinstance(found.get("models"), dict):
        raise UsageError(f"{path}: no lock file of version {VERSION}; delete it and fetch or import the models again")
    try:
        return {name: entry_from_json(entry) for name, entry in found["models"].items()}
    except ValueError as error:
        raise UsageError(f"{path}: {error}; delete it and fetch or import the models again") from None


def record(entries: Mapping[str, Entry]) -> None:
    """Add entries to the lock file, or replace them; two processes that do so at once lose nothing.

    Raises UsageError where it cannot be written.
    """
    try:
        with _held(models_folder()) as folder:
            models = {**read_lock(folder), **entries}
            document = {"version": VERSION, "models": {name: models[name].to_json() for name in sorted(models)}}
            with whole_file(folder / LOCK) as file:
                file.write((json.dumps(document, indent=1) + "\n").encode())
    except OSError as error:
        raise UsageError(
            f"{models_folder() / LOCK}: cannot be written ({error.strerror or error}); free space, or set "
            "CONFORMANCE_MODELS to a folder that can be used"
        ) from error


def sha256_of(file: Path) -> str:
    """The sha256 of a file's content, hex."""
    whole = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            whole.update(chunk)
    return whole.hexdigest()


@contextmanager
def _held(folder: Path) -> Iterator[Path]:
    """The models folder, made where it is missing, with its other writers kept out."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(descriptor)
