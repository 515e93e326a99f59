"""Fetching: from the hub, from the hub's cache without a network, or from a folder; then every file is hashed."""

from __future__ import annotations

import errno
import hashlib
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from conformance import checkpoint
from conformance.catalogue import Model
from conformance.engines.shape import Shape, read_shape
from conformance.models.lock import COMMIT, Entry, FileRecord, safe_name, sha256_of
from conformance.models.places import hub_cache, main_branch, repository_folder

INDEX = "*.safetensors.index.json"
SPARE = 1 << 30
"""Bytes that a download or an import leaves free on its disk."""


class FetchError(Exception):
    """A model cannot be had; the message says why and what to do."""


class Unreachable(FetchError):
    """A model cannot be had for a reason that is the same for others, which can so be told once for all of them."""

    def __init__(self, model: str, why: str, remedy: str) -> None:
        super().__init__(f"{why} {model}; {remedy}")
        self.model, self.why, self.remedy = model, why, remedy


def patterns(model: Model) -> list[str]:
    """The files that a model needs: weights, config, tokenizer; Python only where the catalogue pins its code."""
    return [INDEX, *(each for each in checkpoint.HASHED if each != "*.py" or model.trust_remote_code)]


def wanted(model: Model, names: Iterable[str]) -> list[str]:
    """Those of `names` that a model needs. Folders inside and pickles are never wanted."""
    return sorted(
        name
        for name in names
        if safe_name(name)
        and any(fnmatch(name, pattern) for pattern in patterns(model))
        and not any(fnmatch(name, pattern) for pattern in checkpoint.PICKLED)
    )


def from_hub(model: Model, revision: str, unreachable: Callable[[str], None]) -> Entry:
    """Fetch what is missing of a model into the hub library's cache, and describe what is there then.

    `revision` is the commit to fetch, or empty for the main branch's. Without a network, which `unreachable` is told,
    the cache must have it.
    Raises FetchError.
    """
    try:
        import huggingface_hub as hub
        from huggingface_hub import constants
    except ImportError:
        raise Unreachable(
            model.name,
            "huggingface_hub is not installed, and without it nothing can be fetched of",
            "pip install 'conformance[transformers]', or give the folder with --from",
        ) from None
    if constants.HF_HUB_OFFLINE:
        return _from_cache(model, revision, "HF_HUB_OFFLINE is set")
    try:
        commit, sizes = _on_the_hub(hub, model, revision)
    except FetchError:
        raise
    except Exception as error:  # the hub's library raises those of two HTTP libraries, by version
        if _is_answer(error):
            raise FetchError(_answer(model, revision, error)) from error
        unreachable(f"the hub cannot be reached ({_first_line(error)}); looking into its cache")
        return _from_cache(model, revision, "the hub cannot be reached")
    try:
        folder = _download(hub, model, commit, sizes)
    except FetchError:
        raise
    except Exception as error:
        if _errno(error) in (errno.ENOSPC, errno.EDQUOT):
            raise FetchError(f"{model.name}: the disk of {hub_cache()} is full; {_FREE_SPACE}") from error
        raise FetchError(
            f"{model.name}: the transfer broke off ({_first_line(error)}); files that came whole are kept: the same "
            "command goes on with the others"
        ) from error
    return describe(model, folder, commit)


def from_folder(model: Model, source: Path, *, alone: bool) -> Entry:
    """Describe a model that lies in or below `source`, and leave it there; `alone` if `source` may be the model itself.

    Raises FetchError.
    """
    owner, _, repository = model.hub.partition("/")
    cached = [repository_folder(root, model.hub) for root in (source, source / "hub")]
    commits = {each: model.revision or main_branch(each) for each in cached}
    snapshots = [each / "snapshots" / commit for each, commit in commits.items() if commit]
    places = [source / model.name, source / owner / repository, source / repository, *snapshots]
    places = list(dict.fromkeys([*places, source] if alone else places))
    folder = next((place for place in places if (place / "config.json").is_file()), None)
    if folder is None:
        looked = ", ".join(str(place) for place in places)
        raise FetchError(
            f"{model.name}: no config.json in any of {looked}; give the folder that holds it, or a hub's cache"
        )
    commit = folder.name if folder in snapshots else _commit_of_download(folder)
    if model.revision and commit != model.revision:
        known = f"is at commit {commit}" if commit else "does not say of which commit it is"
        raise FetchError(f"{model.name}: the catalogue pins it to {model.revision}, but {folder} {known}")
    return describe(model, folder.resolve(), commit, str(folder.resolve()))


def describe(model: Model, folder: Path, commit: str, remembered: str = "") -> Entry:
    """Check and hash a model's folder. Raises FetchError, with every fault, where it cannot be loaded safely."""
    try:
        checkpoint.check(folder, vision=model.has_vision)
    except checkpoint.CheckpointError as error:
        raise FetchError(f"{model.name}: {error}") from error
    if remembered and other_sizes(model, folder).keys() - {"stored"}:  # the dtype alone: converted weights
        raise FetchError(
            f"{model.name}: {folder} holds another model: {wrong_sizes(model, folder)}; nothing was recorded: give the "
            f"folder that holds {model.hub}, or run this one with --model ROLE={folder}"
        )
    files: dict[str, FileRecord] = {}
    for name in wanted(model, (file.name for file in folder.iterdir() if file.is_file())):
        file = folder / name
        sha256 = sha256_of(file)
        altered = _altered_blob(file, sha256)
        if altered:
            raise FetchError(f"{model.name}: {altered}")
        files[name] = FileRecord(file.stat().st_size, sha256)
    return Entry(model.hub, commit, checkpoint.digest(folder), files, remembered)


def other_sizes(model: Model, folder: Path) -> dict[str, str]:
    """What the folder's config.json and the catalogue's sizes say where they differ, by the size's name."""
    told = None if model.configuration is None else read_shape(model.configuration)
    if told is None:
        return {}
    own = read_shape(folder / "config.json")
    if own is None:
        return {"family": f"none of a known family, but should be {told.family}"}
    here, there = _sizes(own), _sizes(told)
    return {
        name: f"{here.get(name, 'missing')}, but should be {there.get(name, 'missing')}"
        for name in {**there, **here}
        if here.get(name) != there.get(name)
    }


def wrong_sizes(model: Model, folder: Path) -> str:
    """One sentence about all sizes that differ from the catalogue's; empty where none does."""
    found = [f"{name} is {text}" for name, text in other_sizes(model, folder).items()]
    shown = "; ".join(found[:4]) + (f"; and {len(found) - 4} more" if len(found) > 4 else "")
    return f"{folder / 'config.json'}: not the sizes of {model.name} in {model.configuration}: {shown}" if found else ""


def _sizes(shape: Shape) -> dict[str, Any]:
    sizes = asdict(shape)
    vision = sizes.pop("vision") or {}
    return {**sizes, **{f"vision.{name}": size for name, size in vision.items()}}


def _on_the_hub(hub: Any, model: Model, revision: str) -> tuple[str, dict[str, int]]:
    """The commit, and the sizes of the files that are wanted; refuses a model without safetensors."""
    api = hub.HfApi()
    commit = revision or str(api.repo_info(model.hub).sha)
    tree = api.list_repo_tree(model.hub, revision=commit)
    sizes = {str(each.path): int(each.size) for each in tree if getattr(each, "size", None) is not None}
    names = wanted(model, sizes)
    if not any(fnmatch(name, "*.safetensors") for name in names):
        pickled = sorted(name for name in sizes if any(fnmatch(name, pattern) for pattern in checkpoint.PICKLED))
        others = f"only {', '.join(pickled)}, which can run code when loaded" if pickled else "none"
        raise FetchError(
            f"{model.name}: {model.hub} at {commit} has no weights as *.safetensors ({others}); pickles are never "
            "fetched: pin a commit that has safetensors"
        )
    return commit, {name: sizes[name] for name in names}


def _download(hub: Any, model: Model, commit: str, sizes: dict[str, int]) -> Path:
    cache = hub_cache()
    snapshot = repository_folder(cache, model.hub) / "snapshots" / commit
    left = sum(size for name, size in sizes.items() if not (snapshot / name).is_file())
    existing = next(folder for folder in (cache, *cache.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    if left and left + SPARE > free:
        raise FetchError(
            f"{model.name}: {left / 2**30:.1f} GiB are to be fetched to {cache}, whose disk has {free / 2**30:.1f} GiB "
            f"free (1 GiB stays free); {_FREE_SPACE}"
        )
    return Path(
        hub.snapshot_download(
            model.hub, revision=commit, allow_patterns=patterns(model), ignore_patterns=["*/*", *checkpoint.PICKLED]
        )
    )


_FREE_SPACE = "free space, or move the cache with HF_HOME to another disk; what was fetched is kept and gone on with"


def _from_cache(model: Model, revision: str, why: str) -> Entry:
    repository = repository_folder(hub_cache(), model.hub)
    commit = revision or main_branch(repository)
    folder = repository / "snapshots" / commit
    if not commit or not folder.is_dir():
        at = f" at {revision}" if revision else ""
        raise Unreachable(
            f"{model.name} ({model.hub}{at})",
            f"{why}, and the hub's cache {hub_cache()} does not have",
            "fetch where there is a network and bring it with `models export` and `models import`, or give a folder "
            "with --from",
        )
    return describe(model, folder, commit)


def _altered_blob(file: Path, sha256: str) -> str:
    """What is wrong with a file of the hub's cache, whose blobs are named after their hash (git's for small files)."""
    blob = file.resolve()
    if blob.parent.name != "blobs" or blob == file:
        return ""
    content = b"blob %d\0" % blob.stat().st_size
    own = sha256 if len(blob.name) == 64 else hashlib.sha1(content + blob.read_bytes()).hexdigest()
    if len(blob.name) not in (40, 64) or own == blob.name:
        return ""
    return (
        f"{file}: is not what the hub sent: its hash is {own}, but should be {blob.name}; delete {blob} and fetch again"
    )


def _commit_of_download(folder: Path) -> str:
    """The commit of a folder that the hub's command line downloaded into, where all its files are of one."""
    commits = set()
    for note in (folder / ".cache" / "huggingface" / "download").glob("*.metadata"):
        try:
            commits.add(note.read_text("utf-8").splitlines()[0].strip())
        except (OSError, ValueError, IndexError):
            commits.add("")
    only = commits.pop() if len(commits) == 1 else ""
    return only if COMMIT.fullmatch(only) else ""


def _is_answer(error: Exception) -> bool:
    """Whether the hub was reached and said no."""
    return getattr(getattr(error, "response", None), "status_code", 500) < 500


def _answer(model: Model, revision: str, error: Exception) -> str:
    at = f" at {revision}" if revision else ""
    kind = type(error).__name__
    what = {
        "GatedRepoError": "is open only to those who accepted its terms; accept them on the hub and log in",
        "RevisionNotFoundError": "has no such commit; correct `revision` in the catalogue",
        "RepositoryNotFoundError": "is not there, or is private; correct `hub` in the catalogue, or log in",
    }.get(kind, f"cannot be fetched ({_first_line(error)})")
    return f"{model.name}: {model.hub}{at} {what}"


def _errno(error: BaseException | None) -> int | None:
    for _ in range(8):  # a bound, as causes can form a ring
        if error is None:
            return None
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno
        error = error.__cause__ or error.__context__
    return None


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
