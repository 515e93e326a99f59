"""Where each model lies on this machine: in the package, in a folder, in the hub's cache, or nowhere yet.

Looked up without the hub's library and without reading weights, so that `list` stays quick; what is wrong inside a file
is found by `models verify` and before a run's reference is looked up.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from conformance import checkpoint
from conformance.catalogue import Catalogue, Model
from conformance.models.lock import COMMIT, Entry, models_folder, read_lock

EMBEDDED, FOLDER, CACHED, INCOMPLETE, MISSING = "embedded", "folder", "cached", "incomplete", "missing"


@dataclass(frozen=True)
class Place:
    """`where` is one of the constants above; `problem` says why a run cannot use the folder; `entry` is the lock's."""

    where: str
    folder: Path
    revision: str = ""
    problem: str = ""
    entry: Entry | None = None


def hub_cache() -> Path:
    """The hub library's cache, by that library's own rules (huggingface_hub.constants)."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(name):
            return Path(os.path.expandvars(os.environ[name])).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{cache}/huggingface"
    return Path(os.path.expandvars(home)).expanduser() / "hub"


def located(catalogue: Catalogue) -> Catalogue:
    """The catalogue with the folder of every model, and what is missing of it.

    A model that the catalogue leaves unpinned is pinned to the commit that was fetched.
    """
    if not any(model.tier == "full" for model in catalogue.models):
        return catalogue
    lock = read_lock()
    found = []
    for model in catalogue.models:
        if model.tier == "full":
            place = locate(model, lock)
            digest = place.entry.digest if place.entry is not None else ""
            model = replace(model, folder=place.folder, revision=place.revision, absent=place.problem, digest=digest)
        found.append(model)
    return Catalogue(tuple(found))


def locate(model: Model, lock: Mapping[str, Entry]) -> Place:
    """Where a model lies. `revision` is the commit that it is pinned to: the catalogue's, else the fetched one."""
    if model.tier != "full":
        return Place(EMBEDDED if model.tier == "embedded" else FOLDER, model.folder)
    entry = lock.get(model.name)
    if entry is not None and (entry.hub != model.hub or model.revision not in ("", entry.revision)):
        entry = None  # what was fetched is not what the catalogue asks for now
    revision = model.revision or (entry.revision if entry else "")
    get = again(model, entry)
    imported = models_folder() / model.name
    if entry is not None and (entry.folder or imported.is_dir()):
        where, folder = FOLDER, Path(entry.folder) if entry.folder else imported
    else:
        repository = repository_folder(hub_cache(), model.hub)
        commit = revision or main_branch(repository)
        where, folder = CACHED, repository / "snapshots" / commit if commit else imported
    try:
        is_there = folder.is_dir()
        lacking = _lacking(folder, entry) if is_there else ""
    except OSError as error:  # a folder that this user may not look into, or a name that no file can have
        problem = f"the model {model.name} ({model.hub}): {folder}: cannot be read ({error.strerror or error}); {get}"
        return Place(MISSING, folder, revision, problem, entry)
    if not is_there:
        gone = f"{folder} is gone" if entry is not None else "it was not fetched yet"
        return Place(
            MISSING, folder, revision, f"the model {model.name} ({model.hub}) is not here: {gone}; {get}", entry
        )
    if lacking:
        problem = f"the model {model.name} ({model.hub}) is not whole: {folder}: {lacking}; {get}"
        return Place(INCOMPLETE, folder, revision, problem, entry)
    return Place(where, folder, revision, "", entry)


def again(model: Model, entry: Entry | None) -> str:
    """What brings a model here once more, by where it came from. The user's own folder is never fetched over."""
    fetch = f"python -m conformance models fetch {model.name}"
    if entry is not None and entry.folder:
        return f"put its own files back, or {fetch} --from FOLDER (with --replace where other files are meant)"
    if entry is not None and (models_folder() / model.name).is_dir():
        return "import it once more: python -m conformance models import FILE.tar"
    return fetch


def repository_folder(cache: Path, hub: str) -> Path:
    """Where a cache of the hub's library keeps the repository `hub` (owner/name)."""
    return cache / f"models--{hub.replace('/', '--')}"


def main_branch(repository: Path) -> str:
    """The commit that the cache last saw on the main branch, or nothing."""
    try:
        commit = (repository / "refs" / "main").read_text("utf-8").strip()
    except (OSError, ValueError):
        return ""
    return commit if COMMIT.fullmatch(commit) else ""


def _lacking(folder: Path, entry: Entry | None) -> str:
    """What of the model is missing or of another size than when it was fetched; at most three files are named."""
    faults = []
    for name, file in (entry.files if entry is not None else {}).items():
        try:
            size = (folder / name).stat().st_size
        except OSError:
            faults.append(f"{name} is missing")
        else:
            if size != file.size:
                faults.append(f"{name} has {size} bytes, but had {file.size} when it was fetched")
    if entry is None:
        faults += [f"{name} is missing" for name in ("config.json", "tokenizer.json") if not (folder / name).is_file()]
        faults += [f"{name} is missing" for name in _weights(folder) if not (folder / name).is_file()]
    return "; ".join(faults[:3]) + (f"; and {len(faults) - 3} more" if len(faults) > 3 else "")


def _weights(folder: Path) -> list[str]:
    """The files of weights that should be there: those that there are, and those that an index names."""
    names = {file.name for file in folder.glob("*.safetensors")}
    for index in folder.glob("*.safetensors.index.json"):
        try:
            names |= {str(name) for name in checkpoint.read_json(index)["weight_map"].values()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            names.add(f"what {index.name} names")
    return sorted(names) or ["*.safetensors"]
