"""Which releases of other packages an engine goes together with."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping

from packaging.specifiers import SpecifierSet
from packaging.version import Version


def mismatch(
    engine: str,
    twin: tuple[str, int],
    others: Mapping[str, str],
    version: Callable[[str], str] = importlib.metadata.version,
) -> str:
    """Why the installed releases do not go together, or an empty text.

    `twin` is a distribution and how many numbers of its version must equal the engine's; `others` maps distributions to
    version specifiers. PackageNotFoundError where one of them is not installed.
    """
    mine = Version(version(engine))
    name, numbers = twin
    theirs = Version(version(name))
    if mine.release[:numbers] != theirs.release[:numbers]:
        wanted = ".".join(map(str, mine.release[:numbers]))
        return f"{engine} {mine} needs {name} {wanted}, but {theirs} is installed; pip install '{name}=={wanted}.*'"
    for name, specifier in others.items():
        if not SpecifierSet(specifier).contains(version(name), prereleases=True):
            return (
                f"{engine} {mine} needs {name} {specifier}, but {version(name)} is installed; "
                f"pip install '{name}{specifier}'"
            )
    return ""
