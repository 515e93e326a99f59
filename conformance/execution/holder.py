"""The one model that is loaded: kept from suite to suite while the same is asked for, given up for another."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType

from conformance.codec import ProtocolError
from conformance.execution.errors import (
    DeadlineExceeded,
    EngineLost,
    ExecutionError,
    GivenUp,
    OutOfMemory,
    ServerDied,
    WorkerCrashed,
    WorkerGone,
)
from conformance.execution.pools import Pools
from conformance.execution.remote import RemoteRunner
from conformance.runner import LoadRequest, Unavailable

CRASHES_ALLOWED = 1
"""A model on a target gets a fresh worker so often, whatever the suites; after the next crash it is given up."""

LOST = (WorkerCrashed, DeadlineExceeded, OutOfMemory, EngineLost, WorkerGone)
"""Errors after which the worker is gone, or not to be trusted; a question they interrupted may be asked again."""


@dataclass(frozen=True)
class Load:
    """What is loaded, and by which engine ("module:Class"), interpreter (empty: the suite's own) and environment.

    `place` is the target and the model, across suites: what crashes are counted by.
    """

    request: LoadRequest
    engine_class: str
    start: str
    environment: Mapping[str, str]
    place: tuple[str, str]
    python: str = ""

    @property
    def counted_as(self) -> tuple[str, str, str]:
        """What its crashes are counted by: a variant's cost nobody but those who ask for it."""
        return (*self.place, self.request.variant)


class Holder:
    """Loads models, at most one at a time. A context manager: leaving releases what is loaded.

    `note` is told of workers that do not end well, which costs no case anything. `loads` counts loadings, `crashes`
    lost workers, by place and variant; `peak_mib` is the largest resident memory of a worker that has ended.
    """

    def __init__(self, pools: Pools, load_seconds: float, note: Callable[[str], None] = lambda _: None) -> None:
        self._pools = pools
        self._load_seconds = load_seconds
        self._note = note
        self._load: Load | None = None  # the last that was asked for, be it loaded or not
        self._runner: RemoteRunner | None = None
        self._refusals: list[tuple[Load, Exception]] = []
        self.loads = 0
        self.crashes: Counter[tuple[str, str, str]] = Counter()
        self.peak_mib = 0.0

    def __enter__(self) -> Holder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def serves(self, load: Load) -> bool:
        """Whether a living worker has it."""
        return self._runner is not None and self._runner.dead is None and self._load == load

    def runner(self, load: Load) -> RemoteRunner:
        """The runner of `load`; what else is loaded is released first.

        Raises what loading raises. An error that is no crash is raised again without another try, as it would be the
        same; GivenUp after too many crashes.
        """
        if self.serves(load) and self._runner is not None:
            return self._runner
        for known, refusal in self._refusals:
            if known == load:
                raise refusal
        if self.gives_up(load):
            raise GivenUp(self.given_up_because(load))
        self.release()
        self._load = load
        self.loads += 1
        try:
            pool = self._pools.get(load.engine_class, load.start, load.environment, load.python)
            runner = RemoteRunner(load.request, pool, load.engine_class, load_seconds=self._load_seconds)
            runner.__enter__()
        except ServerDied as error:
            if error.status is None:  # it lives, but cannot import the engine, and will not the next time
                refusal = Unavailable(f"{error}\n{error.log_tail}".rstrip())
                self._refusals.append((load, refusal))
                raise refusal from error
            raise
        except LOST:
            raise
        except Exception as error:
            self._refusals.append((load, error))
            raise
        self._runner = runner
        return runner

    def gives_up(self, load: Load) -> bool:
        """Whether it crashed too often to be loaded once more."""
        return self.crashes[load.counted_as] > CRASHES_ALLOWED

    def given_up_because(self, load: Load) -> str:
        """That it crashed, and how often, as a sentence."""
        what = "the variant" if load.request.variant else "the target"
        return f"{what} was given up after {self.crashes[load.counted_as]} crashes"

    def release(self) -> None:
        """Release the model and end its worker; the next who asks loads one again."""
        runner, self._runner = self._runner, None
        if runner is None or runner.dead is not None:
            return
        place = "" if self._load is None else f"{' '.join(self._load.place)}: "
        try:
            facts = runner.close()
            self.peak_mib = max(self.peak_mib, float(facts.get("peak_resident_mib", 0.0)))
            for note in facts.get("notes", ()):
                self._note(f"{place}{note}")
        except (ExecutionError, ProtocolError) as error:  # what was judged before must not be lost with it
            self._note(f"{place}the worker did not end well: {error}")

    def lose(self) -> None:
        """Count a crash of what was asked for last, and end what is left of its worker."""
        if self._load is not None:
            self.crashes[self._load.counted_as] += 1
        runner, self._runner = self._runner, None
        if runner is not None and runner.dead is None:
            with contextlib.suppress(ExecutionError):  # a worker that a driver holds must not cost the other verdicts
                runner.worker.kill()

    def kill(self) -> None:
        """Kill the worker, from whatever thread: the call in flight raises, as after any crash."""
        runner = self._runner
        if runner is not None and runner.dead is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(runner.worker.pid, signal.SIGKILL)
