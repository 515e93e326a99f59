"""Environment variables that change numbers or kernels: named, and those that make results worthless warned of."""

from __future__ import annotations

import functools
import importlib.resources
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from conformance.doctor.finding import Finding, ok, warning
from conformance.results.printable import one_line

_SECRET = re.compile(r"TOKEN(?!IZERS)|KEY|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)


@functools.cache
def known() -> Mapping[str, Any]:
    """environment.toml, which knows the names of engines and devices: nothing outside `engines` does."""
    import tomli

    return tomli.loads(
        importlib.resources.files("conformance.engines").joinpath("environment.toml").read_text(encoding="utf-8")
    )


def check(environment: Mapping[str, str], by_profile: Mapping[str, str]) -> Iterator[Finding]:
    """`environment` is this process's; `by_profile` is what profile and quirks set for workers, and goes over it."""
    named = []
    for name, value in sorted({**environment, **by_profile}.items()):
        entry = next(
            (each for each in known()["variables"] if any(fnmatchcase(name, pattern) for pattern in each["names"])),
            None,
        )
        if entry is None:
            continue
        shown = f"{name}={'(hidden)' if _SECRET.search(name) else one_line(value, 80) or '(empty)'}"
        if name in by_profile:
            shown += " (set by the profile)"
        if any(fnmatchcase(value.strip().upper(), pattern) for pattern in entry.get("worthless", ())):
            yield warning("environment", f"{shown}: {entry['meaning']}", entry["advice"])
        else:
            named.append(shown)
    yield ok(
        "environment", f"variables that a run depends on: {', '.join(named) or 'none is set'}", variables=len(named)
    )
