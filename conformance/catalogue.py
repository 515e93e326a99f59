"""The catalogue: which models there are, which roles they play, and which of them come with known answers.

A models.toml lies beside the suites that it serves:

    [models.NAME]
    roles = ["embedding.last"]
    tier = "embedded"
    folder = "checkpoints/NAME"     # relative to models.toml
    architecture = "Qwen3Model"
    answers = true                  # the right answers are known
    parameters = { pooling = "last" }
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from conformance import checkpoint
from conformance.names import UsageError, unknown

TIERS = ("embedded", "full", "local")
"""Where the weights are: in the package, to be fetched, or in a folder that the command line named."""


@dataclass(frozen=True)
class Model:
    """One model. `folder` holds config, tokenizer and safetensors; `answers` says that right answers are known."""

    name: str
    roles: tuple[str, ...]
    tier: str
    folder: Path
    architecture: str = ""
    answers: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def head_size(self) -> int | None:
        """The size of an attention head, as config.json says it; None where that cannot be read."""
        try:
            found = checkpoint.config(self.folder)
            return int(found.get("head_dim") or found["hidden_size"] // found["num_attention_heads"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
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
        for name, entry in document.get("models", {}).items():
            found = _entry_faults(entry)
            faults.extend(f"{path}: models.{name}{fault}" for fault in found)
            if name in models:
                faults.append(f"{path}: models.{name}: another catalogue has a model of this name; rename one")
            if not found:
                models[name] = Model(
                    name,
                    tuple(entry["roles"]),
                    entry["tier"],
                    path.parent / entry["folder"],
                    entry["architecture"],
                    entry.get("answers", False),
                    entry.get("parameters", {}),
                )
    if faults:
        raise UsageError(*faults)
    return Catalogue(tuple(models.values()))


_KEYS: Mapping[str, tuple[type, str]] = {
    "roles": (list, "a list of roles"),
    "tier": (str, f"one of {', '.join(TIERS[:2])}"),
    "folder": (str, "a folder, relative to this file"),
    "architecture": (str, "the model's class, as its config.json spells it"),
    "answers": (bool, "true where the right answers are known, or false"),
    "parameters": (dict, "a table"),
}
_OPTIONAL = {"answers", "parameters"}


def _entry_faults(entry: Any) -> list[str]:
    if not isinstance(entry, dict):
        return [f": {entry!r} is no table of {', '.join(_KEYS)}"]
    found = [f": {unknown('key', key, _KEYS)}" for key in entry if key not in _KEYS]
    for key, (kind, meaning) in _KEYS.items():
        if key not in entry:
            if key not in _OPTIONAL:
                found.append(f": {key!r} is missing; it is {meaning}")
        elif not isinstance(entry[key], kind):
            found.append(f".{key}: {entry[key]!r}, but should be {meaning}")
    if not found:
        if not entry["roles"] or not all(isinstance(role, str) for role in entry["roles"]):
            found.append(f".roles: {entry['roles']!r}, but should be at least one role, each a text")
        if entry["tier"] not in TIERS[:2]:
            found.append(f".tier: {unknown('tier', entry['tier'], TIERS[:2])}")
        if Path(entry["folder"]).is_absolute() or ".." in Path(entry["folder"]).parts:
            found.append(f".folder: {entry['folder']!r} leads out of the catalogue's folder; put the model inside")
    return found
