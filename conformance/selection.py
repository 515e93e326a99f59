"""What of a plan is wanted: engines, attention backends, dtypes, suites, models, a pattern, a named run."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from conformance import RELEASE_DATE
from conformance.catalogue import TIERS, Catalogue, Model
from conformance.inventory import Suite
from conformance.names import UsageError, did_you_mean, unknown
from conformance.profile import Claim, Profile


@dataclass(frozen=True)
class Selection:
    """Empty means: what the profile does by default.

    `models` holds (role, model name or None); a role alone restricts the plan to it, a role with a name makes that
    model the one that plays it. A role may be shortened at a dot: "embedding" is every "embedding.*".
    `visions` are attention backends of vision towers; without any, a tower takes the text's.
    `tier` is "embedded" or "full", which has the embedded models too; without it, the named run's or "embedded" holds.
    `budget_minutes` takes the place of the named run's.
    `axes` are (axis, value) that a target is to have beside attention backend and dtype, e.g. ("graph", "compiled").
    `url` is where an engine that is a server is reached; it selects nothing.
    `directions` looks along the directions of known faults on models that come without any, too.
    `pattern` is a shell pattern or a part of the case's id.
    """

    engines: tuple[str, ...] = ()
    attentions: tuple[str, ...] = ()
    visions: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    models: tuple[tuple[str, str | None], ...] = ()
    directions: bool = False
    pattern: str | None = None
    run: str | None = None
    tier: str | None = None
    budget_minutes: float | None = None
    as_of: datetime.date = RELEASE_DATE
    axes: tuple[tuple[str, str], ...] = ()
    url: str = ""

    def takes(self, case_id: str) -> bool:
        """Whether the pattern selects a case."""
        return self.pattern is None or self.pattern in case_id or fnmatchcase(case_id, self.pattern)

    def record(self) -> dict[str, Any]:
        """The selection as JSON-able data; the budget selects nothing, and may be another when a run is resumed."""
        record = {**asdict(self), "as_of": self.as_of.isoformat()}
        del record["budget_minutes"], record["url"]
        return record


@dataclass(frozen=True)
class Matrix:
    """A selection resolved against profile, suites and catalogue: what the plan multiplies."""

    engines: tuple[str, ...]
    attentions: tuple[str, ...] | None
    visions: tuple[str, ...] | None
    dtypes: tuple[str, ...] | None
    suites: tuple[str, ...]
    tiers: tuple[str, ...]
    models: dict[str, tuple[str, ...]]  # role -> the models named for it
    roles: tuple[str, ...] | None  # None: all
    opt_in: bool = False  # attention backends that run only where they are asked for are in it
    directions: bool = False
    axes: tuple[tuple[str, str], ...] = ()

    def takes(self, claim: Claim) -> bool:
        """Whether the plan has targets of a claim."""
        if not claim.text:
            return False
        if self.attentions is not None:
            return claim.attention in self.attentions
        return self.opt_in or not claim.opt_in

    def plays(self, model: Model, role: str) -> bool:
        """Whether the plan uses a model in a role."""
        if role not in model.roles or (self.roles is not None and role not in self.roles):
            return False
        named = self.models.get(role)
        return model.name in named if named else model.tier in self.tiers


def resolve(selection: Selection, profile: Profile, suites: Sequence[Suite], catalogue: Catalogue) -> Matrix:
    """Check every name of a selection. Raises UsageError with all that are unknown or can select nothing."""
    faults: list[str] = []
    engines = selection.engines or profile.default_engines
    for engine in engines:
        if engine not in profile.engines:
            faults.append(_not_claimed("engine", engine, profile.engines, profile))
    claims = [
        claim for name in engines if name in profile.engines for claim in profile.engines[name].attention.values()
    ]
    texts = {claim.attention for claim in claims if claim.text}
    for attention in selection.attentions:
        if claims and attention not in texts:
            faults.append(_not_claimed("attention", attention, texts, profile))
    towers = {claim.attention for claim in claims if claim.vision}
    for vision in selection.visions:
        if claims and vision not in towers:
            faults.append(_not_claimed("vision attention", vision, towers, profile))
    chosen = [claim for claim in claims if not selection.attentions or claim.attention in selection.attentions]
    for dtype in selection.dtypes:
        if dtype not in profile.supported_dtypes:
            faults.append(unknown("dtype", dtype, profile.supported_dtypes))
        elif chosen and not any(dtype in claim.precision for claim in chosen):
            claimants = ", ".join(claim.name for claim in chosen)
            faults.append(f"dtype {dtype!r} is claimed by none of {claimants} in {profile.path}")
    for axis, value in selection.axes:
        offered = {name for engine in engines if engine in profile.engines for name in profile.engines[engine].axes}
        values = {
            each
            for engine in engines
            if engine in profile.engines
            for each in profile.engines[engine].axes.get(axis, ())
        }
        if axis not in offered:
            faults.append(_not_claimed("axis", axis, offered, profile))
        elif value not in values:
            faults.append(_not_claimed(axis, value, values, profile))
    names = {suite.name for suite in suites}
    faults.extend(unknown("suite", suite, names) for suite in selection.suites if suite not in names)
    wanted_suites = selection.suites or tuple(sorted(names))
    tiers: tuple[str, ...] = TIERS[:1]
    opt_in = False
    if selection.run is not None:
        if selection.run not in profile.runs:
            faults.append(unknown("run", selection.run, profile.runs))
        else:
            run = profile.runs[selection.run]
            tiers = TIERS[: TIERS.index(run.tier) + 1]
            opt_in = run.opt_in
            if "*" not in run.suites:
                faults.extend(
                    f"suite {suite!r} is not in the run {run.name!r}; {did_you_mean(suite, run.suites)}"
                    for suite in selection.suites
                    if suite in names and suite not in run.suites
                )
                wanted_suites = tuple(suite for suite in wanted_suites if suite in run.suites)
    if selection.tier is not None:
        if selection.tier not in TIERS[:2]:
            faults.append(unknown("tier", selection.tier, TIERS[:2]))
        else:
            tiers = TIERS[: TIERS.index(selection.tier) + 1]
    faults.extend(_server_faults(selection, engines, profile))
    models, roles = _models(selection.models, suites, catalogue, faults, exactly=bool(selection.url))
    if faults:
        raise UsageError(*faults)
    return Matrix(
        engines=engines,
        attentions=selection.attentions or None,
        visions=selection.visions or None,
        dtypes=selection.dtypes or None,
        suites=wanted_suites,
        tiers=tiers,
        models=models,
        roles=roles,
        opt_in=opt_in,
        directions=selection.directions,
        axes=tuple(sorted(selection.axes)),
    )


def expand_role(role: str, roles: Iterable[str]) -> tuple[str, ...]:
    """The roles that a role as typed stands for: itself, or all below it."""
    return tuple(sorted({each for each in roles if each == role or each.startswith(f"{role}.")}))


def _models(
    wanted: Iterable[tuple[str, str | None]],
    suites: Sequence[Suite],
    catalogue: Catalogue,
    faults: list[str],
    *,
    exactly: bool,
) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...] | None]:
    """The models named for roles, and the roles that the plan is restricted to, None for all.

    With `exactly`, a role that is one stands for itself alone, and a named model leaves no other: a server has one.
    """
    known = {suite.role for suite in suites} | set(catalogue.roles)
    named: dict[str, tuple[str, ...]] = {}
    restricted: set[str] = set()
    for role, name in wanted:
        roles = (role,) if exactly and role in known else expand_role(role, known)
        if not roles:
            faults.append(unknown("role", role, known))
        elif name is None:
            restricted.update(roles)
        else:
            model = next((each for each in catalogue.models if each.name == name), None)
            players = {each.name for each in catalogue.models if set(each.roles) & set(roles)}
            if model is None:
                hint = did_you_mean(name, players)
                faults.append(f"no model is called {name!r}, and there is no such folder; for {role}, {hint}")
            elif name not in players:
                plays = ", ".join(model.roles)
                faults.append(
                    f"model {name!r} does not play {role}, but {plays}; for {role}, known are "
                    f"{', '.join(sorted(players)) or 'none'}"
                )
            else:
                for each in set(roles) & set(model.roles):
                    named[each] = (*named.get(each, ()), name)
    if restricted or exactly:
        restricted |= set(named)
    return named, tuple(sorted(restricted)) or None


def _server_faults(selection: Selection, engines: Iterable[str], profile: Profile) -> list[str]:
    """What is wrong with the place of a server, or with what is asked of it."""
    if not selection.url:
        return []
    faults = []
    try:
        parts = urlsplit(selection.url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        faults.append("--url should be that of a server's API, as in http://127.0.0.1:8000/v1")
    if "@" in selection.url.partition("?")[0]:
        faults.append(
            "--url holds a name or a password, which everybody on this machine can read there; leave it out, and put "
            "the server's key into the environment"
        )
    servers = [name for name, engine in profile.engines.items() if "url" in engine.options]
    if not set(servers) & set(engines):
        which = " or ".join(f"--engine {name}" for name in servers) or "none is claimed"
        faults.append(f"--url is where a server is, and {', '.join(engines)} is none by {profile.path}: {which}")
    if len(selection.dtypes) != 1:
        known = ", ".join(profile.supported_dtypes)
        faults.append(
            f"--url: a server computes in one dtype and tells nobody which; name it with one --dtype: {known}"
        )
    return faults


def _not_claimed(kind: str, name: str, known: Iterable[str], profile: Profile) -> str:
    for each in profile.disclaimed:
        if name in (each.engine if kind == "engine" and each.attention is None else None, each.attention):
            return f"{kind} {name!r} is disclaimed by {profile.path}: {each.what}: {each.reason}"
    return f"{kind} {name!r} is not claimed by {profile.path}; {did_you_mean(name, known)}"
