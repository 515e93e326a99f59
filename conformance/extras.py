"""This package's own requirements, and the extra that installs an engine together with what its adapter needs."""

from __future__ import annotations

import configparser
import functools
import importlib.metadata
from collections.abc import Mapping
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

NAME = "conformance"


def own_requirements(setup_cfg: Path | None = None) -> dict[str, tuple[str, ...]]:
    """This package's requirements by extra, "" for those without: a checkout's setup.cfg, else the metadata."""
    path = setup_cfg or Path(__file__).resolve().parent.parent / "setup.cfg"
    if path.is_file():
        parser = configparser.ConfigParser(interpolation=None)
        parser.read_string(path.read_text(encoding="utf-8"))
        texts = {"": parser.get("options", "install_requires", fallback="")}
        if parser.has_section("options.extras_require"):
            texts |= dict(parser.items("options.extras_require"))
        return {
            extra: tuple(line for line in text.splitlines() if line and not line.startswith("#"))
            for extra, text in texts.items()
        }
    try:
        declared = [Requirement(text) for text in importlib.metadata.requires(NAME) or ()]
        extras = importlib.metadata.metadata(NAME).get_all("Provides-Extra") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    return {
        extra: tuple(
            f"{each.name}{each.specifier}"
            for each in declared
            if applies(each, extra) and (not extra or not applies(each, ""))
        )
        for extra in ("", *extras)
    }


@functools.cache
def needed_by(engine: str) -> tuple[str, ...]:
    """The distributions that the extra named after an engine installs; none where this package has no such extra."""
    return tuple(sorted(canonicalize_name(Requirement(text).name) for text in own_requirements().get(engine, ())))


def not_installed(engine: str, versions: Mapping[str, str | None]) -> tuple[str, ...]:
    """Those of `needed_by` that are known not to be installed."""
    return tuple(name for name in needed_by(engine) if name in versions and versions[name] is None)


def applies(requirement: Requirement, extra: str) -> bool:
    """Whether a requirement is one of this extra, or of none where that is empty."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})
