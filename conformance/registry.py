"""What is installed: backends, suites and engines, found through entry points and never by name.

An entry point's value is, for `conformance.backends`, an importable package whose folder holds profile.toml; for
`conformance.suites`, a module of suite classes, in a package whose folder may hold a catalogue (models.toml); for
`conformance.engines`, "module:Class" of a runner, which only a worker ever imports; for `conformance.faults`, a module
with `FAULTS`, a sequence of faults that selftest injects.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from conformance.names import UsageError, unknown

GROUPS = ("backends", "suites", "engines", "faults")


@dataclass(frozen=True)
class Entry:
    """One entry point: `name` is what people type, `value` what Python imports, `source` who declares it."""

    name: str
    value: str
    source: str


@dataclass(frozen=True)
class Registry:
    """All entries by name, in alphabetical order."""

    backends: Mapping[str, Entry]
    suites: Mapping[str, Entry]
    engines: Mapping[str, Entry]
    faults: Mapping[str, Entry] = field(default_factory=dict)

    def profile_path(self, backend: str) -> Path:
        """The profile.toml of a backend.

        Raises UsageError where no package declares that backend or its package has no profile.
        """
        if backend not in self.backends:
            raise UsageError(unknown("backend", backend, self.backends))
        entry = self.backends[backend]
        path = module_folder(entry) / "profile.toml"
        if not path.is_file():
            raise UsageError(
                f"backend {backend!r}: {entry.source} points to {entry.value}, whose folder has no profile.toml"
            )
        return path

    def catalogue_paths(self) -> tuple[Path, ...]:
        """Every models.toml that lies beside an installed suite."""
        paths = {module_folder(entry) / "models.toml": None for entry in self.suites.values()}
        return tuple(path for path in paths if path.is_file())


def discover(checkout: Path | None = None) -> Registry:
    """Read the entry points of everything installed.

    A checkout (the folder above this package, unless another is given) speaks through its setup.cfg, whether or
    not it is installed as well: an editable install's metadata may be older than the file.

    Raises UsageError, with every conflict, where two distributions declare one name.
    """
    root = Path(__file__).resolve().parent.parent if checkout is None else checkout
    own_name, own = _declared_in_checkout(root / "setup.cfg")
    found: list[tuple[str, Entry]] = list(own)
    installed = importlib.metadata.entry_points()  # once: it reads the metadata of everything installed
    for group in GROUPS:
        for point in installed.select(group=f"conformance.{group}"):
            source = _normalised(point.dist.name) if point.dist is not None else "an unnamed distribution"
            if source != own_name:
                found.append((group, Entry(point.name, point.value, source)))
    return _index(found)


def module_folder(entry: Entry) -> Path:
    """The folder of the entry's package, or that of the package around its module; the module is not executed."""
    module = entry.value.partition(":")[0]
    try:
        spec = importlib.util.find_spec(module)
    except ImportError as error:
        raise UsageError(f"{entry.name!r}: {entry.source} points to {entry.value}, but: {error}") from error
    if spec is not None and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    if spec is not None and spec.origin:
        return Path(spec.origin).parent
    raise UsageError(f"{entry.name!r}: {entry.source} points to {entry.value}, which cannot be imported")


def _declared_in_checkout(setup_cfg: Path) -> tuple[str | None, list[tuple[str, Entry]]]:
    """The distribution's name and its entries, or nothing where there is no checkout around this package."""
    if not setup_cfg.is_file():
        return None, []
    import configparser

    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    parser.read_string(setup_cfg.read_text(encoding="utf-8"))
    name = _normalised(parser.get("metadata", "name", fallback="conformance"))
    entries = []
    for group in GROUPS:
        for line in parser.get("options.entry_points", f"conformance.{group}", fallback="").splitlines():
            left, equals, right = line.partition("=")
            if equals and not left.lstrip().startswith("#"):
                entries.append((group, Entry(left.strip(), right.strip(), name)))
    return name, entries


def _index(found: Iterable[tuple[str, Entry]]) -> Registry:
    tables: dict[str, dict[str, Entry]] = {group: {} for group in GROUPS}
    conflicts = []
    for group, entry in found:
        other = tables[group].setdefault(entry.name, entry)
        if other != entry:
            conflicts.append(
                f"{entry.name!r} in conformance.{group} is declared by {other.source} ({other.value}) and by "
                f"{entry.source} ({entry.value}); uninstall one of them"
            )
    if conflicts:
        raise UsageError(*conflicts)
    return Registry(**{group: MappingProxyType(dict(sorted(table.items()))) for group, table in tables.items()})


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
