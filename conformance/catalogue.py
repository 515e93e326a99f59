"""The catalogue: which models there are, which roles they play, and which of them come with known answers.

A models.toml lies beside the suites that it serves:

    [models.NAME]
    roles = ["embedding.last"]
    tier = "embedded"
    folder = "checkpoints/NAME"     # relative to models.toml
    architecture = "Qwen3Model"
    answers = true                  # the right answers are known
    directions = true               # the directions of known faults come with its references
    parameters = { pooling = "last" }

    [models.LARGE]
    roles = ["embedding.last"]
    tier = "full"
    hub = "owner/name"              # where `models fetch` finds it
    revision = "..."                # the commit, 40 hex digits; `models fetch --write-pins FILE` writes it
    architecture = "Qwen3Model"
    configuration = "configurations/LARGE.json"   # its config.json's sizes, for estimates before it is fetched
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from conformance import checkpoint
from conformance.names import UsageError, unknown
from conformance.structure import not_finite

Read = TypeVar("Read")

TIERS = ("embedded", "full", "local")
"""Where the weights are: in the package, to be fetched, or in a folder that the command line named."""

NO_MODEL = "none"
"""The name, and the tier, of what stands for a model where a single kernel is measured: it has no files."""


@dataclass(frozen=True)
class Model:
    """One model. `folder` holds config, tokenizer and safetensors; `answers` says that right answers are known, and
    `directions` that the directions of known faults lie beside its references.

    Of one that is fetched, `hub` is its owner/name there, `revision` the commit that it is pinned to (empty: none),
    and `configuration` a file with the sizes of its config.json. `absent` says why its files cannot be used on this
    machine, and `digest` is the folder's when it was fetched; `conformance.models.places` finds out both.
    """

    name: str
    roles: tuple[str, ...]
    tier: str
    folder: Path
    architecture: str = ""
    answers: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)
    hub: str = ""
    revision: str = ""
    trust_remote_code: bool = False
    configuration: Path | None = None
    absent: str = ""
    digest: str = ""
    directions: bool = False

    @property
    def config_file(self) -> Path:
        """The model's own config.json, or the catalogue's where that is not there."""
        own = self.folder / "config.json"
        return self.configuration if self.configuration is not None and not own.is_file() else own

    @property
    def head_size(self) -> int | None:
        """The size of an attention head, as config.json says it; None where that cannot be read."""
        return self._from_config(
            lambda found: int(found.get("head_dim") or found["hidden_size"] // found["num_attention_heads"])
        )

    @cached_property  # a plan asks for each case
    def window(self) -> int | None:
        """The window of its sliding layers in tokens, as config.json says it; None without one, or unread."""
        return self._from_config(checkpoint.window)

    @cached_property
    def softcap(self) -> float | None:
        """The cap of its attention scores, as config.json says it; None without one, or unread."""
        return self._from_config(checkpoint.softcap)

    @property
    def has_vision(self) -> bool:
        """Whether the catalogue says that it has a vision tower."""
        return self.parameters.get("vision") is True

    @property
    def vision_head_size(self) -> int | None:
        """The size of an attention head of the vision tower; None where config.json has no tower that can be read."""

        def size(found: Mapping[str, Any]) -> int:
            tower = found["vision_config"]
            return int(tower.get("embed_dim") or tower["hidden_size"]) // int(tower["num_heads"])

        return self._from_config(size)

    def _from_config(self, read: Callable[[Mapping[str, Any]], Read]) -> Read | None:
        try:
            return read(checkpoint.config(self.config_file.parent, self.config_file.name))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError):
            return None


@dataclass(frozen=True)
class Catalogue:
    """All models, in the order of the files."""

    models: tuple[Model, ...] = ()

    @property
    def roles(self) -> tuple[str, ...]:
        """Every role that some model plays, sorted."""
        return tuple(sorted({role for model in self.models for role in model.roles}))

    def named(self, name: str) -> Model:
        """The model of that name; UsageError for a name that is unknown."""
        for model in self.models:
            if model.name == name:
                return model
        raise UsageError(unknown("model", name, [model.name for model in self.models]))

    def with_folder(self, role: str, folder: Path) -> Catalogue:
        """The catalogue with one more model: a folder of the caller's in `role`, named after the folder.

        It takes over the parameters of the role's first catalogued model (pooling, prompt forms, answer words),
        because a folder does not say them. Raises UsageError for a folder without a model or with a name that is taken.
        """
        if not folder.is_dir():
            raise UsageError(f"model {role}={folder}: there is no such folder")
        if not (folder / "config.json").is_file():
            raise UsageError(f"model {role}={folder}: the folder has no config.json, so it holds no model")
        name = folder.resolve().name
        parameters = next((model.parameters for model in self.models if role in model.roles), {})
        if any(model.name == name for model in self.models if model.tier != "local"):
            raise UsageError(f"model {role}={folder}: the catalogue has a model called {name!r}; rename the folder")
        same = next((model for model in self.models if model.name == name), None)
        if same is not None and same.folder != folder.resolve():
            raise UsageError(f"model {role}={folder}: {same.folder} has the same name; rename one of the folders")
        if same is not None:
            widened = replace(same, roles=(*same.roles, role), parameters={**parameters, **same.parameters})
            return Catalogue(tuple(widened if model is same else model for model in self.models))
        local = Model(name, (role,), "local", folder.resolve(), "", False, parameters)
        return Catalogue((*self.models, local))


def load_catalogue(paths: Iterable[Path]) -> Catalogue:
    """Read several models.toml as one catalogue. Raises UsageError with every fault of every file."""
    import tomli

    faults: list[str] = []
    models: dict[str, Model] = {}
    for path in paths:
        try:
            document = tomli.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            faults.append(f"{path}: {error}")
            continue
        faults.extend(f"{path}: {unknown('key', key, ['models'])}" for key in document if key != "models")
        entries = document.get("models", {})
        if not isinstance(entries, dict):
            faults.append(f"{path}: models: {entries!r}, but should be tables [models.NAME]")
            continue
        for name, entry in entries.items():
            found = [*entry_faults(entry), *(f".{fault}" for fault in not_finite(entry))]
            faults.extend(f"{path}: models.{name}{fault}" for fault in found)
            if name in models:
                faults.append(f"{path}: models.{name}: another catalogue has a model of this name; rename one")
            if not found:
                models[name] = _model(name, entry, path.parent)
    if faults:
        raise UsageError(*faults)
    return Catalogue(tuple(models.values()))


def _model(name: str, entry: Mapping[str, Any], beside: Path) -> Model:
    return Model(
        name=name,
        roles=tuple(entry["roles"]),
        tier=entry["tier"],
        folder=beside / entry.get("folder", name),
        architecture=entry["architecture"],
        answers=entry.get("answers", False),
        directions=entry.get("directions", False),
        parameters=entry.get("parameters", {}),
        hub=entry.get("hub", ""),
        revision=entry.get("revision", ""),
        trust_remote_code=entry.get("trust_remote_code", False),
        configuration=beside / entry["configuration"] if "configuration" in entry else None,
    )


_KEYS: Mapping[str, tuple[type, str]] = {
    "roles": (list, "a list of roles"),
    "tier": (str, f"one of {', '.join(TIERS[:2])}"),
    "folder": (str, "a folder, relative to this file"),
    "hub": (str, "the owner/name under which the hub has the model"),
    "revision": (str, "a commit of the hub's repository, 40 hex digits"),
    "trust_remote_code": (bool, "true where the model needs code that comes with it, or false"),
    "configuration": (str, "a file with the sizes of the model's config.json, relative to this file"),
    "architecture": (str, "the model's class, as its config.json spells it"),
    "answers": (bool, "true where the right answers are known, or false"),
    "directions": (bool, "true where the directions of known faults lie beside the references, or false"),
    "parameters": (dict, "a table"),
}
_OPTIONAL = {"answers", "directions", "parameters", "revision", "trust_remote_code", "configuration"}
_OF_TIER = {"embedded": {"folder", "directions"}, "full": {"hub", "revision", "trust_remote_code", "configuration"}}
_HUB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def entry_faults(entry: Any) -> list[str]:
    """Everything that is wrong with one entry, each as ".KEY: what, but should be ..." or ": what"."""
    if not isinstance(entry, dict):
        return [f": {entry!r} is no table of {', '.join(_KEYS)}"]
    found = [f": {unknown('key', key, _KEYS)}" for key in entry if key not in _KEYS]
    tier = entry.get("tier")
    known_tier = isinstance(tier, str) and tier in _OF_TIER
    for key, (kind, meaning) in _KEYS.items():
        elsewhere = next((other for other, keys in _OF_TIER.items() if key in keys and other != tier), None)
        if key not in entry:
            if key not in _OPTIONAL and elsewhere is None:
                found.append(f": {key!r} is missing; it is {meaning}")
        elif not isinstance(entry[key], kind):
            found.append(f".{key}: {entry[key]!r}, but should be {meaning}")
        elif elsewhere is not None and known_tier:
            found.append(f".{key}: belongs to models of the tier {elsewhere!r}, and this one's is {tier!r}")
        else:
            found.extend(_value_faults(key, entry[key]))
    if entry.get("trust_remote_code") is True and "revision" not in entry:
        found.append(
            ".trust_remote_code: true without a revision, so that anybody who can change the repository could run code "
            "here; pin it with revision = a commit that somebody has read"
        )
    return found


def _value_faults(key: str, value: Any) -> list[str]:
    """What is wrong with a value of the right type."""
    meaning = _KEYS[key][1]
    if key == "roles" and (not value or not all(isinstance(role, str) for role in value)):
        return [f".roles: {value!r}, but should be at least one role, each a text"]
    if key == "tier" and value not in TIERS[:2]:
        return [f".tier: {unknown('tier', value, TIERS[:2])}"]
    if key in ("folder", "configuration") and (Path(value).is_absolute() or ".." in Path(value).parts):
        return [f".{key}: {value!r} leads out of the catalogue's folder; put it inside"]
    if key == "hub" and not (_HUB_NAME.fullmatch(value) and ".." not in value):
        return [f".hub: {value!r}, but should be {meaning}"]
    if key == "revision" and not _COMMIT.fullmatch(value):
        return [
            f".revision: {value!r}, but should be {meaning}: a branch or tag can move; leave it out where none is "
            "known, and `models fetch --write-pins` writes it"
        ]
    return []
