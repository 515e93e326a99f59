"""`validate`: check profiles, or a limits file, and say everything that is wrong with them at once."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.cli import FAILURES, OK
from conformance.cli.arguments import add_as_of, add_backend, profile_path
from conformance.names import UsageError, printable

if TYPE_CHECKING:
    from conformance.profile import Profile
    from conformance.registry import Registry


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_backend(parser)
    add_as_of(parser)
    parser.add_argument(
        "--limits", metavar="FILE", type=Path, help="check limits that `calibrate` proposed, or that were edited"
    )


def main(options: argparse.Namespace) -> int:
    """Check one profile, or those of all installed backends; 1 where any has a fault or an expired quirk."""
    if options.limits is not None:
        return _check_limits(options.limits)
    from conformance.catalogue import load_catalogue
    from conformance.inventory import load_suites
    from conformance.profile import ProfileError, load_profile
    from conformance.profile_checks import expired_quirks, installed_faults
    from conformance.registry import discover

    registry = discover()
    paths = _paths(options, registry)
    suites = load_suites(registry)
    catalogue = load_catalogue(registry.catalogue_paths())
    code = OK
    for backend, path in paths:
        try:
            profile = load_profile(path)
        except ProfileError as error:
            faults = list(error.faults)
        else:
            faults = _own_name(backend, profile)
            faults += installed_faults(profile, suites, catalogue, registry.engines)
            faults += expired_quirks(profile, options.as_of)
        for fault in faults:
            print(printable(fault))
        if faults:
            code = FAILURES
        else:
            claims = sum(len(engine.attention) for engine in profile.engines.values())
            print(printable(f"{path}: fine (attention backends claimed: {claims}; quirks: {len(profile.quirks)})"))
    return code


def _check_limits(path: Path) -> int:
    from conformance.criteria.limits import LimitsError, every, limits, loosened, parse

    try:
        given = every(parse(path.read_text(encoding="utf-8")))
        if faults := loosened(given, every(limits())):
            raise LimitsError(*faults)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except LimitsError as error:
        for fault in error.faults:
            print(printable(f"{path}: {fault}"))
        return FAILURES
    measured = [limit for limit in given.values() if limit.floor is not None]
    classes = sorted({each.device for limit in measured for each in limit.measured})
    told = (
        f"limits: {len(given)}; resting on measurements: {len(measured)}; measured on: {', '.join(classes) or 'none'}"
    )
    print(printable(f"{path}: fine ({told})"))
    return OK


def _paths(options: argparse.Namespace, registry: Registry) -> list[tuple[str | None, Path]]:
    if options.profile is not None or options.backend is not None:
        return [(options.backend, profile_path(options, registry))]
    if not registry.backends:
        raise UsageError("no backend is installed; name a file: --profile FILE")
    return [(name, registry.profile_path(name)) for name in registry.backends]


def _own_name(backend: str | None, profile: Profile) -> list[str]:
    if backend is None or backend == profile.name:
        return []
    return [
        f"{profile.path}: backend.name: {profile.name!r}, but the entry point calls it {backend!r}; give both one name"
    ]
