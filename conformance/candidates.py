"""Where the matrix crosses: every case before facts and quirks have said what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.catalogue import Catalogue, Model
from conformance.environments import versions_for
from conformance.inventory import Suite, Test
from conformance.predicate import Subject, evaluate
from conformance.profile import Claim, Profile
from conformance.selection import Matrix
from conformance.target import Target, case_id


@dataclass(frozen=True)
class Candidate:
    """A case before facts and quirks."""

    id: str
    suite: Suite
    test: Test
    claim: Claim
    target: Target
    model: Model

    @property
    def parameters(self) -> dict[str, Any]:
        """What `when.parameters` sees: the model's parameters and the test's."""
        return {**self.model.parameters, **self.test.parameters}

    @property
    def vision(self) -> str | None:
        """The attention backend of the vision tower; None for a model without one."""
        return vision_attention(self.model, self.target, self.claim)

    def subject(self, facts: Mapping[str, Any], device: str) -> Subject:
        """What conditions are held against; facts about another type of device say nothing about this one."""
        about = facts.get("device", {})
        about = about if about.get("type", device) == device else {}
        return Subject(
            suite=self.suite.name,
            model=self.model.name,
            role=self.suite.role,
            engine=self.target.engine,
            attention=self.target.attention,
            vision=self.vision,
            dtype=self.target.dtype,
            parameters=self.parameters,
            device=about.get("name"),
            memory_gib=about.get("memory_gib"),
            capability=_capability(about),
            devices=about.get("count"),
            isa=frozenset(facts["isa_flags"]) if "isa_flags" in facts else None,
            versions=versions_for(facts, self.target.engine),
        )


def vision_attention(model: Model, target: Target, claim: Claim) -> str | None:
    """The attention backend of the model's vision tower on this target: the claim's, unless the target names one."""
    return dict(target.axes).get("vision", claim.tower) if model.has_vision else None


def candidates(suites: Sequence[Suite], profile: Profile, catalogue: Catalogue, matrix: Matrix) -> Iterator[Candidate]:
    """Every crossing of claims, dtypes, models and tests, grouped by target and model so that one load serves many."""
    wanted = [suite for suite in suites if suite.name in matrix.suites]
    for engine in matrix.engines:
        for claim in profile.engines[engine].attention.values():
            if not matrix.takes(claim):
                continue
            for dtype in profile.supported_dtypes:
                if dtype not in claim.precision:
                    continue
                for model, suite in _players(wanted, catalogue, matrix):
                    if dtype not in (matrix.dtypes or profile.default_dtypes(suite.role, suite.name)):
                        continue
                    for target in _targets(profile, claim, dtype, model, suite, matrix):
                        for test in suite.tests:
                            if (model.answers or not test.needs_answers) and (
                                model.directions or matrix.directions or not test.needs_directions
                            ):
                                name = case_id(suite.name, test.name, target, model.name)
                                yield Candidate(name, suite, test, claim, target, model)


def _targets(
    profile: Profile, claim: Claim, dtype: str, model: Model, suite: Suite, matrix: Matrix
) -> Iterator[Target]:
    """The target of a claim; of a model with a vision tower, one for each attention backend wanted for the tower."""
    engine = profile.engines[claim.engine]
    subject = Subject(
        suite=suite.name,
        model=model.name,
        role=suite.role,
        engine=claim.engine,
        attention=claim.attention,
        dtype=dtype,
        parameters=model.parameters,
    )
    for axis, value in matrix.axes:
        variation = engine.axes.get(axis, {}).get(value)
        if variation is None or evaluate(variation.when, subject) is False:
            return
    if not model.has_vision or matrix.visions is None:
        yield Target(claim.engine, claim.attention, dtype, matrix.axes)
        return
    for name in matrix.visions:
        tower = profile.claim(claim.engine, name)
        if tower is not None and tower.vision and dtype in tower.precision:
            axes = () if name == claim.tower else (("vision", name),)
            yield Target(claim.engine, claim.attention, dtype, (*matrix.axes, *axes))


def everything(profile: Profile, suites: Sequence[Suite], catalogue: Catalogue) -> Matrix:
    """The matrix of the full plan: all that the profile claims, on every model of the catalogue."""
    return Matrix(
        engines=tuple(profile.engines),
        attentions=None,
        visions=tuple(dict.fromkeys(c.attention for e in profile.engines.values() for c in e.attention.values())),
        dtypes=profile.supported_dtypes,
        suites=tuple(sorted({suite.name for suite in suites})),
        tiers=tuple({model.tier for model in catalogue.models}),
        models={},
        roles=None,
        opt_in=True,
        directions=True,
    )


def _players(suites: Sequence[Suite], catalogue: Catalogue, matrix: Matrix) -> Iterator[tuple[Model, Suite]]:
    for model in catalogue.models:
        for suite in suites:
            if matrix.plays(model, suite.role):
                yield model, suite


def _capability(device: Mapping[str, Any]) -> float | None:
    """The compute capability that a device's facts tell in two numbers, 9 and 0 being 9.0; None where it has none."""
    if device.get("major") is None:
        return None
    return float(device["major"]) + float(device.get("minor") or 0) / 10
