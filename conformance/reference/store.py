"""Where references and yardsticks lie: with the package for its embedded models, by content for all others.

A set of parts (the reference, and a yardstick for each dtype and claimed precision) is a folder with a manifest and
one safetensors file a part. Shipped sets lie in the embedded model's folder, in `references/`, and hold for the
weights and inputs that their manifest names, whatever computed them; a test recomputes them. Sets made on a user's
machine are found under a hash that also covers the computing code, the library versions and the instruction set.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from conformance import checkpoint, codec
from conformance.cache import cache_folder
from conformance.facts import installed_version
from conformance.reference.sample import OwnError, values_of
from conformance.runner import Observation
from conformance.suite import ConformanceSuite
from conformance.whole_file import whole_file

MANIFEST = "manifest.json"
Part = dict[str, Observation]


class StoreError(Exception):
    """A stored part is not what its manifest says; the message names the file and what to do."""


@dataclass(frozen=True)
class Identity:
    """What a set of parts was computed for, and how; equal identities have equal contents."""

    weights: str  # sha256 of the model folder
    inputs: str  # sha256 of the suite's inputs, the model's parameters and the names of its observations
    code: str  # sha256 of the code that computes
    versions: Mapping[str, str]
    isa: str  # of the CPU that computes; its kernels round differently
    dtype: str = "float64"  # that the reference is computed in

    @property
    def key(self) -> str:
        """sha256 over all of it."""
        return _sha256(json.dumps(self.to_json(), sort_keys=True))

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def identify(
    suite: type[ConformanceSuite], folder: Path, parameters: Mapping[str, Any], isa: str, dtype: str = "float64"
) -> Identity:
    """The identity of what `suite` wants to know of the model in `folder` on this machine."""
    declared = sorted(suite.observations().items())
    compared = [(name, wants) for name, wants in declared if wants.reference or wants.yardstick]
    inputs = _sha256(repr((suite.inputs(), sorted(parameters.items()), compared)))
    versions = {name: installed_version(name) or "not installed" for name in ("torch", "transformers")}
    return Identity(checkpoint.digest(folder), inputs, _code_digest(suite.__module__), versions, isa, dtype)


@dataclass(frozen=True)
class PartSet:
    """A folder of parts; `identity` is the one wanted, and of a shipped set only weights and inputs must match."""

    folder: Path
    identity: Identity

    def load(self, part: str) -> Part | None:
        """The observations of a part by name, or None where it was never stored for this identity.

        Raises `StoreError` where the file is not the one that the manifest names.
        """
        manifest = self._manifest()
        if manifest is None or part not in manifest["parts"]:
            return None
        return _read(self.folder / f"{part}.safetensors", manifest["parts"][part])

    def yardstick(self, part: str, reference: Part) -> Part | None:
        """A yardstick's observations: what is stored is its error, float32, so the reference gives it back whole."""
        errors = self.load(part)
        if errors is None:
            return None
        return {
            name: replace(reference[name], values=values_of(reference[name]) + values_of(error))  # type: ignore[call-arg]
            for name, error in errors.items()
        }

    def own_errors(self) -> dict[str, OwnError]:
        """The sampled error of a reference in float32, by observation; empty where it is in fp64."""
        manifest = self._manifest() or {}
        return {
            name: OwnError(tuple(each["rows"]), each["rms"]) for name, each in manifest.get("own_errors", {}).items()
        }

    def save(self, part: str, observations: Part, errors: Mapping[str, OwnError] | None = None) -> None:
        """Store a part, and the reference's own `errors` where it has any.

        A reader sees the old manifest or the new one, never half of either.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        content = _serialise(observations)
        manifest = self._manifest() or {"identity": self.identity.to_json(), "parts": {}}
        manifest["parts"] = {**manifest["parts"], part: hashlib.sha256(content).hexdigest()}
        if errors:
            manifest["own_errors"] = {name: error.to_json() for name, error in errors.items()}
        _write(self.folder / f"{part}.safetensors", content)
        _write(self.folder / MANIFEST, (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode())

    def save_yardstick(self, part: str, observations: Part, reference: Part) -> None:
        """Store a yardstick as its error against the reference, float32: as exact as needed and half the size."""
        self.save(
            part,
            {
                name: replace(
                    found,
                    prompt_token_ids=(),
                    values=(values_of(found) - values_of(reference[name])).astype("float32"),  # type: ignore[call-arg]
                )
                for name, found in observations.items()
            },
        )

    def directions(self, part: str) -> dict[str, Any] | None:
        """The directions of known faults, arrays by injection, or None; errors as of `load`."""
        return cast("dict[str, Any] | None", self.load(part))

    def save_directions(self, part: str, directions: Mapping[str, Any]) -> None:
        """Store the directions of known faults."""
        self.save(part, cast(Part, directions))

    def _manifest(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads((self.folder / MANIFEST).read_text("utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise StoreError(f"{self.folder / MANIFEST}: not JSON ({error}); delete {self.folder}") from None
        mine = self.identity
        same = found["identity"]["weights"] == mine.weights and found["identity"]["inputs"] == mine.inputs
        return found if same else None


def shipped(model_folder: Path, identity: Identity) -> PartSet:
    """The set that an embedded model's folder brings along."""
    return PartSet(model_folder / "references", identity)


def cached(identity: Identity) -> PartSet:
    """The set in the content-addressed store."""
    return PartSet(references_folder() / identity.key, identity)


def references_folder() -> Path:
    """The content-addressed store: in CONFORMANCE_CACHE, or in the user's cache folder."""
    return cache_folder() / "references"


def _serialise(observations: Part) -> bytes:
    from safetensors.numpy import save

    tree, arrays = codec.pack(observations)
    content: bytes = save(
        {f"a{index}": array for index, array in enumerate(arrays)}, metadata={"tree": json.dumps(tree)}
    )
    return content


def _read(file: Path, digest: str) -> Part:
    from safetensors.numpy import load

    try:
        content = file.read_bytes()
    except OSError as error:
        raise StoreError(f"{file}: cannot be read ({error.strerror}); delete {file.parent} or install again") from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise StoreError(f"{file}: its sha256 is not the manifest's; delete {file.parent} or install again")
    length = int.from_bytes(content[:8], "little")
    tree = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["tree"])
    arrays = load(content)
    found: Part = codec.unpack(tree, [arrays[f"a{index}"] for index in range(len(arrays))])
    return found


def _write(path: Path, content: bytes) -> None:
    with whole_file(path) as file:
        file.write(content)


@functools.cache
def _code_digest(suite_module: str) -> str:
    """Of the engines, of the reference, and of the suite's module with its siblings, which it may ask questions by."""
    from conformance import engines, reference

    module = sys.modules[suite_module]
    own = Path(inspect.getfile(module))
    computing = [Path(str(package.__file__)).parent for package in (engines, reference)]
    computing += [own.parent] if module.__package__ else []
    sources = {file for folder in computing for file in folder.glob("*.py")} | {own}
    return _sha256("\0".join(file.read_text("utf-8") for file in sorted(sources)))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
