"""Reference and yardstick of a group: shipped, stored, or computed once in a worker on the CPU and then stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.checkpoint import CheckpointError
from conformance.codec import ProtocolError
from conformance.execution.errors import EnvironmentLacking, ExecutionError, ServerDied
from conformance.execution.pools import Pools
from conformance.execution.remote import RemoteRunner
from conformance.models.fit import PATIENCE, Fit
from conformance.reference import compute, directions
from conformance.reference.sample import OwnError, require_small
from conformance.reference.store import Identity, Part, PartSet, cached, identify, shipped
from conformance.runner import LoadRequest, Unavailable
from conformance.suite import ConformanceSuite
from conformance.tokenization import Tokenizer


class ReferenceFailed(Exception):
    """A reference or yardstick could not be computed: no finding about the engine, whose worker was not involved."""


@dataclass
class References:
    """Finds or computes parts. `computed` counts those that had to be, `computing_s` the seconds that it took.

    `note` is told before each, and `release` is called: an engine that is still loaded must hold no memory beside it.
    """

    pools: Pools
    isa: str
    seconds: float  # for the loading, and for each call, of a computation
    note: Callable[[str], None]
    release: Callable[[], None] = lambda: None
    computed: int = 0
    computing_s: float = 0.0
    _patience: float = 0.0
    _identities: dict[tuple[str, str, str], Identity] = field(default_factory=dict)

    def get(
        self,
        suite: type[ConformanceSuite],
        request: LoadRequest,
        *,
        embedded: bool,
        precision: str,
        fit: Fit | None = None,
        digest: str = "",
        times: int = 1,
    ) -> tuple[Part, Part]:
        """Reference and yardstick for `request.dtype` under the claimed `precision`.

        `fit` says in which dtype the reference is computed on this host, and how long that may take; `digest` is that
        of the folder when it was fetched; `times` as many prompts as usual may take as many times as long.
        Raises CheckpointError where the folder has another digest now,
        UncheckedReference where a reference in float32 is not exact enough for this yardstick,
        ValueError where there is no yardstick for the claim, StoreError for a damaged part, ReferenceFailed
        where computing one failed, and Unavailable where this machine lacks what computes them. A suite that compares
        none of its observations has neither.
        """
        if not any(wants.reference or wants.yardstick for wants in suite.observations().values()):
            return {}, {}
        folder = Path(request.folder)
        identity = self._identify(suite, request, fit.reference if fit is not None else "float64")
        if digest and identity.weights != digest:
            raise CheckpointError(
                f"{folder}: is not the model that was fetched; `python -m conformance models verify {request.model}` "
                "names the files that are altered"
            )
        name = compute.part_name(request.dtype, precision)
        if embedded:
            parts = shipped(folder, identity)
            reference = parts.load(compute.REFERENCE)
            yardstick = None if reference is None else parts.yardstick(name, reference)
            if reference is not None and yardstick is not None:
                return reference, yardstick
        parts = cached(identity)
        subject = compute.Subject(suite, request, Tokenizer(folder))
        usual = max(self.seconds, PATIENCE * fit.reference_s) if fit is not None else self.seconds
        self._patience = times * usual
        reference = parts.load(compute.REFERENCE) or self._compute_reference(subject, parts)
        yardstick = parts.yardstick(name, reference)
        if yardstick is None:
            with self._computing(subject, f"the yardstick {name}"):
                found = compute.compute_yardstick(subject, reference, request.dtype, precision, self._start)
            parts.save_yardstick(name, found, reference)
            yardstick = parts.yardstick(name, reference) or found
        if identity.dtype != "float64":
            shares = require_small(parts.own_errors(), reference, yardstick)
            told = ", ".join(f"{each} {share:.2g}" for each, share in shares.items())
            self.note(
                f"the reference of {request.model} is in float32, as fp64 needs more memory than this host has; its "
                f"own error on a sample, as a share of the yardstick's in {request.dtype}: {told}"
            )
        return reference, yardstick

    def directions(
        self,
        suite: type[ConformanceSuite],
        request: LoadRequest,
        reference: Part,
        *,
        embedded: bool,
        fit: Fit | None = None,
    ) -> Mapping[str, Any]:
        """How each known fault would move `reference`, by injection: shipped, stored, or computed now.

        Raises as `get` does.
        """
        identity = self._identify(suite, request, fit.reference if fit is not None else "float64")
        folder = Path(request.folder)
        if embedded and (found := shipped(folder, identity).directions(directions.PART)) is not None:
            return found
        parts, part = cached(identity), directions.cached_part()
        found = parts.directions(part)
        if found is None:
            subject = compute.Subject(suite, request, Tokenizer(folder))
            self._patience = max(self.seconds, PATIENCE * fit.reference_s) if fit is not None else self.seconds
            with self._computing(subject, f"the directions of {len(directions.applicable(subject))} known faults"):
                found = directions.compute_directions(subject, reference, self._start_faulty, dtype=identity.dtype)
            parts.save_directions(part, found)
        return found

    def _identify(self, suite: type[ConformanceSuite], request: LoadRequest, dtype: str) -> Identity:
        """Hashes the model's folder once for all targets: full-size weights take seconds."""
        key = (f"{suite.__module__}:{suite.__qualname__}", request.folder, dtype)
        if key not in self._identities:
            self._identities[key] = identify(suite, Path(request.folder), request.parameters, self.isa, dtype)
        return self._identities[key]

    def _compute_reference(self, subject: compute.Subject, parts: PartSet) -> Part:
        errors: dict[str, OwnError] | None = None
        with self._computing(subject, "the reference"):
            if parts.identity.dtype == "float64":
                reference = compute.compute_reference(subject, self._start)
            else:
                reference, errors = compute.compute_narrow_reference(subject, self._start)
        parts.save(compute.REFERENCE, reference, errors)
        return reference

    @contextmanager
    def _computing(self, subject: compute.Subject, what: str) -> Iterator[None]:
        name = f"{what} of {subject.request.model}"
        self.computed += 1
        self.release()
        self.note(f"computing {name} on the CPU, once: it is stored and found again")
        began = time.monotonic()
        try:
            yield
        except (ExecutionError, ProtocolError) as error:
            cannot_import = isinstance(error, ServerDied) and error.status is None
            if cannot_import or isinstance(error, EnvironmentLacking):
                raise Unavailable(f"{name} cannot be computed here: {error}") from error
            raise ReferenceFailed(f"{name} could not be computed: {error}") from error
        finally:
            self.computing_s += time.monotonic() - began

    def _start(self, request: LoadRequest, runner: str = "") -> Any:
        runner = runner or compute.RUNNER
        pool = self.pools.get(runner, "fork", {})
        return RemoteRunner(request, pool, runner, load_seconds=self._patience, call_seconds=self._patience)

    def _start_faulty(self, request: LoadRequest) -> Any:
        return self._start(request, directions.RUNNER)
