"""Arguments that several subcommands share, and what they stand for: profile, suites, catalogue, facts, selection."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance import RELEASE_DATE
from conformance.names import UsageError, unknown
from conformance.results.flavour import DEFAULT_FLAVOUR, FLAVOURS

if TYPE_CHECKING:
    from conformance.catalogue import Catalogue
    from conformance.estimate import Estimate
    from conformance.inventory import Suite
    from conformance.plan import Plan
    from conformance.profile import Profile
    from conformance.registry import Registry
    from conformance.selection import Selection
    from conformance.timings import Timings


@dataclass(frozen=True)
class Inputs:
    """Everything that `make_plan` takes, as the command line describes it. `engines` maps names to "module:Class"."""

    profile: Profile
    suites: tuple[Suite, ...]
    catalogue: Catalogue
    facts: Mapping[str, Any]
    selection: Selection
    engines: Mapping[str, str]
    probes_disclaimed: bool = False  # whether what the profile disclaims is called once

    def plan(self, facts: Mapping[str, Any] | None = None) -> Plan:
        """The plan, for other facts if given."""
        from conformance.disclaimed import with_disclaimed
        from conformance.plan import make_plan

        known = self.facts if facts is None else facts
        plan = make_plan(self.suites, self.profile, self.catalogue, known, self.selection)
        if self.probes_disclaimed:
            return with_disclaimed(plan, self.profile, self.catalogue, known, self.selection)
        return plan

    def estimate(self, plan: Plan, timings: Timings, facts: Mapping[str, Any] | None = None) -> Estimate:
        """How long a plan will take on the machine of these facts, or of `self.facts`."""
        from conformance.disclaimed import SUITE
        from conformance.estimate import estimate

        device = (self.facts if facts is None else facts).get("device", {})
        return estimate(plan, (*self.suites, SUITE), self.profile, timings, str(device.get("name") or ""))


def add_backend(parser: argparse.ArgumentParser) -> None:
    """--backend and --profile."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--backend", metavar="NAME", help="an installed backend, e.g. cpu")
    group.add_argument("--profile", metavar="FILE", type=Path, help="a profile.toml that no package installs")


def add_engine_python(parser: argparse.ArgumentParser) -> None:
    """--engine-python."""
    parser.add_argument(
        "--engine-python",
        metavar="[ENGINE=]PATH",
        action="append",
        default=[],
        help="the interpreter whose environment has the engine, where it is not this one; it needs numpy beside it",
    )


def add_selection(parser: argparse.ArgumentParser) -> None:
    """The options that choose a part of the plan; those that name things may be given several times."""
    many: dict[str, Any] = {"action": "append", "default": []}
    parser.add_argument("--engine", metavar="NAME", help="an engine instead of the profile's default ones", **many)
    parser.add_argument("--attention", metavar="NAME", help="an attention backend, e.g. sdpa", **many)
    parser.add_argument(
        "--vision-attention", metavar="NAME", help="of vision towers, where it is not to be the text's", **many
    )
    parser.add_argument(
        "--axis",
        metavar="AXIS=VALUE",
        help="another axis of the target that the profile claims for the engine, e.g. graph=compiled",
        **many,
    )
    parser.add_argument(
        "--url",
        metavar="URL",
        help="where the API of a server is that --engine names, e.g. http://127.0.0.1:8000/v1; it computes in one "
        "--dtype and serves one --model",
    )
    parser.add_argument("--dtype", metavar="NAME", help="a dtype instead of the default ones, e.g. bfloat16", **many)
    parser.add_argument("--suite", metavar="NAME", help="a suite, e.g. rerank", **many)
    parser.add_argument(
        "--model",
        metavar="ROLE[=MODEL]",
        help="only this role; or, for this role, a model of the catalogue or a folder, e.g. embedding.last=./my-model",
        **many,
    )
    parser.add_argument("--tier", metavar="TIER", help="embedded (the default) or full: the fetched models as well")
    parser.add_argument(
        "--directions",
        action="store_true",
        help="compute the directions of known faults for models that come without any; takes ten times a reference",
    )
    parser.add_argument("--run", metavar="NAME", help="a run that the profile names, e.g. presubmit")
    parser.add_argument("-k", dest="pattern", metavar="PATTERN", help="a shell pattern, or a part, of the case's id")
    add_as_of(parser)


def add_probe(parser: argparse.ArgumentParser) -> None:
    """--probe-disclaimed."""
    parser.add_argument(
        "--probe-disclaimed",
        action="store_true",
        help="after all else, call each attention backend that the profile disclaims once, in a worker of its own: it "
        "must refuse (keep away where one is known to hang the device)",
    )


def add_audit(parser: argparse.ArgumentParser) -> None:
    """--audit."""
    parser.add_argument(
        "--audit",
        action="store_true",
        help="at the end, hold the profile against what was executed: claims that nothing showed (exit code 6), what "
        "ran though something else was requested (1), what was seen and is not claimed",
    )


def add_as_of(parser: argparse.ArgumentParser) -> None:
    """--as-of."""
    parser.add_argument(
        "--as-of",
        metavar="DATE",
        type=_date,
        default=RELEASE_DATE,
        help=f"judge the expiry of quirks on this day (default: the release's, {RELEASE_DATE})",
    )


def add_facts(parser: argparse.ArgumentParser) -> None:
    """--facts."""
    parser.add_argument("--facts", metavar="FILE", type=Path, help="plan for the machine that this JSON describes")


def add_report(parser: argparse.ArgumentParser) -> None:
    """--json, --junit and --baseline: how results are told, and what they are held against."""
    parser.add_argument("--json", action="store_true", help="print the content of results.json instead of the report")
    parser.add_argument(
        "--junit",
        metavar="FLAVOUR",
        default=DEFAULT_FLAVOUR,
        help="; ".join(f"{name}: {meaning}" for name, meaning in FLAVOURS.items()) + f" (default: {DEFAULT_FLAVOUR})",
    )
    parser.add_argument(
        "--baseline",
        metavar="FILE",
        type=Path,
        help="an earlier run's results.json: the exit code is 1 only for failures that it does not have",
    )


def add_budget(parser: argparse.ArgumentParser) -> None:
    """--budget."""
    parser.add_argument(
        "--budget",
        metavar="MINUTES",
        type=_minutes,
        help="start no further case after this long (default: the named run's budget, or none)",
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """--output."""
    parser.add_argument(
        "--output", metavar="DIR", type=folder, default=Path("out"), help="where the results go (default: out)"
    )


def read_inputs(options: argparse.Namespace) -> Inputs:
    """Load and check everything that a plan needs. Raises UsageError with every fault."""
    from conformance.catalogue import load_catalogue
    from conformance.environments import with_interpreters
    from conformance.inventory import load_suites
    from conformance.models.places import located
    from conformance.profile import load_profile
    from conformance.profile_checks import installed_faults
    from conformance.registry import discover

    registry = discover()
    profile = load_profile(profile_path(options, registry))
    suites = load_suites(registry)
    catalogue = located(load_catalogue(registry.catalogue_paths()))
    faults = installed_faults(profile, suites, catalogue, registry.engines)
    if faults:
        raise UsageError(*faults)
    selection, catalogue = _selection(options, suites, catalogue)
    chosen = [name for name in selection.engines or profile.default_engines if name in profile.engines]
    profile = with_interpreters(profile, getattr(options, "engine_python", []), chosen)
    facts_file = getattr(options, "facts", None)
    return Inputs(
        profile=profile,
        suites=suites,
        catalogue=catalogue,
        facts=_read_facts(facts_file) if facts_file else _local_facts(profile, registry),
        selection=selection,
        engines={name: entry.value for name, entry in registry.engines.items()},
        probes_disclaimed=getattr(options, "probe_disclaimed", False),
    )


def profile_path(options: argparse.Namespace, registry: Registry) -> Path:
    """The profile that --backend or --profile names."""
    if options.profile is not None:
        return Path(options.profile)
    if options.backend is not None:
        return registry.profile_path(options.backend)
    raise UsageError(f"name a backend: --backend {'|'.join(registry.backends)}, or --profile FILE")


def command_line(options: argparse.Namespace, profile: Profile) -> str:
    """`--backend NAME` or `--profile FILE`, as a shell takes it."""
    import shlex

    return f"--profile {shlex.quote(str(options.profile))}" if options.profile else f"--backend {profile.name}"


def _selection(
    options: argparse.Namespace, suites: tuple[Suite, ...], catalogue: Catalogue
) -> tuple[Selection, Catalogue]:
    from conformance.selection import Selection, expand_role

    models: list[tuple[str, str | None]] = []
    faults: list[str] = []
    for text in getattr(options, "model", []):
        role, equals, value = text.partition("=")
        names = {model.name for model in catalogue.models}
        if equals and (value not in names) and ("/" in value or Path(value).is_dir()):
            known = {suite.role for suite in suites}
            roles = expand_role(role, known)
            if len(roles) != 1:
                both = f"role {role!r} is {' and '.join(roles)}; name the one that {value} plays"
                faults.append(both if roles else unknown("role", role, known))
                continue
            try:
                catalogue = catalogue.with_folder(roles[0], Path(value))
                models.append((role, Path(value).resolve().name))
            except UsageError as error:
                faults.extend(error.faults)
        else:
            models.append((role, value if equals else None))
    axes = [text.partition("=") for text in options.axis]
    faults += [
        f"--axis {''.join(each)!r} should have the form AXIS=VALUE" for each in axes if not (each[0] and each[2])
    ]
    repeated = sorted({each[0] for each in axes if [other[0] for other in axes].count(each[0]) > 1})
    faults += [f"--axis {axis} is given more than once; one run has one value of it" for axis in repeated]
    if faults:
        raise UsageError(*faults)
    selection = Selection(
        engines=tuple(dict.fromkeys(options.engine)),
        attentions=tuple(dict.fromkeys(options.attention)),
        visions=tuple(dict.fromkeys(options.vision_attention)),
        dtypes=tuple(dict.fromkeys(options.dtype)),
        suites=tuple(dict.fromkeys(options.suite)),
        models=tuple(dict.fromkeys(models)),
        directions=options.directions,
        pattern=options.pattern,
        run=options.run,
        tier=options.tier,
        budget_minutes=getattr(options, "budget", None),
        as_of=options.as_of,
        axes=tuple((axis, value) for axis, _, value in axes),
        url=getattr(options, "url", None) or "",
    )
    return selection, catalogue


def _local_facts(profile: Profile, registry: Registry) -> dict[str, Any]:
    from conformance.environments import environment_facts
    from conformance.facts import local_facts

    conditions = [quirk.when for quirk in profile.quirks]
    conditions += [claim.when for engine in profile.engines.values() for claim in engine.attention.values()]
    distributions = {"torch"} | {name for when in conditions for name in when.get("versions", {})}
    distributions |= {name for engine in profile.engines.values() for name in engine.installed_by}
    facts = local_facts(profile.device, distributions, registry.engines)
    own = [engine for engine in profile.engines.values() if engine.python]
    if own:
        folder = profile.path.parent
        facts["environments"] = {engine.name: environment_facts(engine, distributions, folder) for engine in own}
    return facts


def _read_facts(path: Path) -> dict[str, Any]:
    from conformance.facts import read_facts

    return read_facts(path)


def folder(text: str) -> Path:
    """A path, as an option's value."""
    if not text:
        raise argparse.ArgumentTypeError("an empty path is no folder")
    return Path(text)


def positive(text: str, unit: str = "seconds") -> float:
    """A finite number above 0, as an option's value."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of {unit} above 0")
    return number


def _minutes(text: str) -> float:
    return positive(text, "minutes")


def _date(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no date; write e.g. 2026-11-30") from None
