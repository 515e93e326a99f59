"""Do the installed versions agree: with this package's requirements, with torch, and each with itself? No import."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from conformance.doctor.environment import known
from conformance.doctor.finding import Finding, ok, problem, warning
from conformance.extras import NAME, applies
from conformance.results.printable import one_line


@dataclass(frozen=True)
class Installed:
    """A distribution as it lies on the search path; the first of a name is the one that is imported."""

    name: str
    version: str
    folder: str
    requires: tuple[str, ...]


def installed() -> tuple[Installed, ...]:
    """Every distribution on the search path, in its order, each of its folders once."""
    found: dict[tuple[str, str, str], Installed] = {}
    for each in importlib.metadata.distributions():
        try:
            name, version, requires = each.metadata["Name"], each.version, tuple(each.requires or ())
        except (KeyError, OSError, UnicodeError, AttributeError):
            continue  # the leftovers of a broken installation: pip speaks of them
        if name and version:
            folder = str(Path(str(each.locate_file(""))).resolve())
            key = (canonicalize_name(name), version, folder)
            found.setdefault(key, Installed(key[0], version, folder, requires))
    return tuple(found.values())


def check(
    found: Iterable[Installed], own: Mapping[str, tuple[str, ...]], engines: Collection[str]
) -> Iterator[Finding]:
    """Everything that does not agree; `engines` are the plan's, whose extras must be there."""
    everything = tuple(found)
    versions: dict[str, str] = {}
    for each in everything:
        versions.setdefault(each.name, each.version)
    findings = [*_unmet(own, versions, engines), *_between(everything, own, versions), *_twice(everything)]
    yield from findings
    watched = [name for name in _watched(own) if name in versions]
    text = ", ".join(f"{name} {one_line(versions[name])}" for name in watched)
    if not findings:
        yield ok("versions", f"{text or 'nothing to compare'}: they agree with this package and among themselves")


def _unmet(
    own: Mapping[str, tuple[str, ...]], versions: Mapping[str, str], engines: Collection[str]
) -> Iterator[Finding]:
    for extra, requirements in own.items():
        needed = not extra or extra in engines
        for requirement in map(Requirement, requirements):
            name = canonicalize_name(requirement.name)
            wanted = f"{NAME}{f'[{extra}]' if extra else ''} needs {requirement.name}{requirement.specifier}"
            install = f"pip install '{requirement.name}{requirement.specifier}'"
            if requirement.marker is not None and not applies(requirement, extra):
                continue
            if name not in versions:
                if needed:
                    yield problem("versions", f"{wanted}, which is not installed", install)
            elif not _meets(requirement, versions[name]):
                report = problem if needed else warning
                yield report("versions", f"{wanted}; {one_line(versions[name])} is installed", install)


def _between(
    found: Iterable[Installed], own: Mapping[str, tuple[str, ...]], versions: Mapping[str, str]
) -> Iterator[Finding]:
    """What other distributions need of those that a run rests on (a torchvision made for another torch)."""
    watched = set(_watched(own))
    companions: dict[str, str] = {each: name for name, many in known()["companions"].items() for each in many}
    seen: set[str] = set()
    for each in found:
        if each.name in seen:
            continue
        seen.add(each.name)
        for text in each.requires:
            try:
                requirement = Requirement(text)
            except InvalidRequirement:
                continue
            name = canonicalize_name(requirement.name)
            concerns = name in watched and name in versions and applies(requirement, "")
            if concerns and not _meets(requirement, versions[name]):
                report = problem if each.name in watched else warning
                yield report(
                    "versions",
                    f"{one_line(f'{each.name} {each.version}')} needs {requirement.name}{requirement.specifier}; "
                    f"{one_line(versions[name])} is installed",
                    f"install the {each.name} that was made for {name} {one_line(versions[name])}, or uninstall it",
                )
        other = companions.get(each.name)
        if other is not None and other in versions and _first_two(each.version) != _first_two(versions[other]):
            yield problem(
                "versions",
                f"{one_line(f'{each.name} {each.version}')} was made for {other} "
                f"{'.'.join(map(str, _first_two(each.version)))}; {one_line(versions[other])} is installed",
                f"install the {each.name} of the same version as {other}, or uninstall it",
            )


def _twice(found: Iterable[Installed]) -> Iterator[Finding]:
    by_name: dict[str, list[Installed]] = {}
    for each in found:
        by_name.setdefault(each.name, []).append(each)
    for name, all_of_name in by_name.items():
        if len({each.version for each in all_of_name}) > 1:
            places = ", ".join(one_line(f"{each.version} in {each.folder}") for each in all_of_name)
            yield warning(
                "versions",
                f"{name} is installed {len(all_of_name)} times: {places}; which one is imported depends on the path",
                f"uninstall all but one (pip uninstall {name}, once for each)",
            )


def _watched(own: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(sorted({canonicalize_name(Requirement(text).name) for texts in own.values() for text in texts}))


def _meets(requirement: Requirement, version: str) -> bool:
    try:
        return requirement.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def _first_two(version: str) -> tuple[int, ...]:
    try:
        return Version(version).release[:2]
    except InvalidVersion:
        return ()
