"""One model on one target: its bench, its cases, and the worker behind it, which is replaced once when it crashes."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from conformance import checkpoint
from conformance.catalogue import NO_MODEL
from conformance.criteria.observed import VisionRequested
from conformance.criteria.standing import stamped
from conformance.execution.deadline import Deadline
from conformance.execution.errors import (
    DeadlineExceeded,
    ExecutionError,
    OutOfMemory,
    ServerDied,
    WorkerCrashed,
    WorkerGone,
)
from conformance.execution.fresh import FACTOR, as_fresh, decided, is_grey, undecided, with_fresh_inputs
from conformance.execution.group import Group, claimed_precision, judged_precision
from conformance.execution.outcome import Outcome, Recorder, outcome_of
from conformance.execution.pools import Pools
from conformance.execution.references import References
from conformance.execution.remote import RemoteRunner
from conformance.judgement import Judgement
from conformance.models.fit import PATIENCE
from conformance.plan import Case
from conformance.runner import Effective, Unavailable
from conformance.suite import Answers, Ask, Bench, ConformanceSuite, Underpowered
from conformance.tokenization import Tokenizer
from conformance.verdict import Verdict

CRASHES_ALLOWED = 1
"""A target gets a fresh worker so often; after the next crash it is given up."""

LOST = (WorkerCrashed, DeadlineExceeded, OutOfMemory, WorkerGone)
"""Errors after which the worker is gone, or not to be trusted; a question they interrupted may be asked again."""


@dataclass(frozen=True)
class Attempt:
    """What became of one test method. `effective` is what ran, None where nothing was observed."""

    outcome: Outcome
    judgements: tuple[Judgement, ...] = ()
    effective: Effective | None = None


class Session:
    """A context manager that runs the group's tests; leaving it releases the model and ends the worker."""

    def __init__(
        self, group: Group, device: str, engine_class: str, pools: Pools, load_seconds: float, case_seconds: float
    ) -> None:
        self.group = group
        self.suite = group.suite()
        self.request = group.request(device)
        self._engine_class = engine_class
        self._pools = pools
        self._load_seconds = load_seconds
        fit = group.first.fit  # a full-size model on a CPU takes longer than a case of an embedded one may
        self._case_seconds = max(case_seconds, PATIENCE * (fit.engine_s or 0.0) if fit is not None else 0.0)
        self._runner: RemoteRunner | None = None
        self._refusal: Exception | None = None  # the model cannot be loaded; asking again would not help
        self._bench: Bench | None = None
        self.crashes = 0
        self.loads = 0
        self.peak_mib = 0.0

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            if error is None and runner.dead is None:
                facts = runner.close()
                self.peak_mib = max(self.peak_mib, float(facts.get("peak_resident_mib", 0.0)))
            runner.__exit__(kind, error, trace)

    def _release(self) -> None:
        """End the worker; the next case that asks loads the model again."""
        with contextlib.suppress(ExecutionError):  # what was judged before must not be lost with it
            self.__exit__(None, None, None)

    def kill(self) -> None:
        """Kill the worker, from whatever thread: the call in flight raises, as after any crash."""
        runner = self._runner
        if runner is not None and runner.dead is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(runner.worker.pid, signal.SIGKILL)

    @property
    def given_up(self) -> bool:
        """Whether the target crashed too often."""
        return self.crashes > CRASHES_ALLOWED

    @property
    def given_up_because(self) -> Outcome:
        """The outcome of a case that is not run any more."""
        return Outcome(Verdict.NOT_RUN, f"the target was given up after {self.crashes} crashes")

    def attempt(self, test: str, references: References) -> Attempt:
        """Run one test method; whatever it, the reference or the worker raises becomes the outcome."""
        if self.given_up:
            return Attempt(self.given_up_because)
        found = self._judged(self.suite, test, lambda: self._shared_bench(references))
        return self._decided(test, found, references) if is_grey(found.outcome, found.judgements) else found

    def _decided(self, test: str, grey: Attempt, references: References) -> Attempt:
        """The attempt after a figure in the grey zone was put to fresh prompts."""
        case = next(case for case in self.group.cases if case.test == test)
        try:
            suite = with_fresh_inputs(self.suite, case.id)
            self._release()  # reference and engine never hold memory together
            bench = self._make_bench(suite, references, times=FACTOR)
        except Exception as error:
            return replace(grey, outcome=undecided(grey.outcome, f"{type(error).__name__}: {error}"))
        fresh = self._judged(suite, test, lambda: bench, times=FACTOR)
        judgements = as_fresh(fresh.judgements)
        outcome = decided(grey.outcome, fresh.outcome, judgements)
        return Attempt(outcome, (*grey.judgements, *judgements), fresh.effective or grey.effective)

    def _judged(
        self, suite: type[ConformanceSuite], test: str, make_bench: Callable[[], Bench], *, times: int = 1
    ) -> Attempt:
        """Run one test method of `suite` at a bench; with `times` as many prompts it has as many times as long."""
        judgements: tuple[Judgement, ...] = ()
        effective: Effective | None = None
        error: BaseException | None
        try:
            bench = make_bench()
            self._prepare(times)
            case = suite(test)
            case.bench = bench
            recorder = Recorder()
            case.run(recorder)
            error = recorder.error
            judgements = tuple(getattr(case, "judgements", ()))  # none where a suite's own setUp failed
            effective = getattr(case, "effective", None)
        except Exception as raised:
            error = raised
        if isinstance(error, LOST):
            self._lose()
        if error is None and not judgements:
            error = Underpowered(f"{test} judged nothing, so it showed nothing; a promise is kept by self.judge(...)")
        judgements = tuple(stamped(each, self.request.device) for each in judgements)
        return Attempt(self.outcome(error), judgements, effective)

    def outcome(self, error: BaseException | None) -> Outcome:
        """What becomes of a case that raised `error`, or nothing."""
        return outcome_of(error)

    def _shared_bench(self, references: References) -> Bench:
        """The bench of all cases of the group, made once; raises what finding or computing the reference raises."""
        if self._refusal is not None:
            raise self._refusal
        if self._bench is None:
            try:
                self._bench = self._make_bench(self.suite, references)
            except Exception as error:
                self._refusal = error
                raise
        return self._bench

    def _make_bench(self, suite: type[ConformanceSuite], references: References, *, times: int = 1) -> Bench:
        """The bench for the inputs of `suite`; `times` as many as its own have no reference in any package."""
        case = self.group.first
        has_files = case.model.tier != NO_MODEL
        if has_files:
            checkpoint.check(case.model.folder)
        reference, yardstick = references.get(
            suite,
            self.request,
            embedded=times == 1 and case.model.tier == "embedded",
            times=times,
            precision=claimed_precision(case),
            fit=case.fit,
            digest=case.model.digest,
        )
        directions: Mapping[str, Any] = {}
        if times == 1 and any(each.directed for each in self.group.cases):
            directions = references.directions(
                suite, self.request, reference, embedded=case.model.tier == "embedded", fit=case.fit
            )
        tokenizer = Tokenizer(case.model.folder)
        make_inputs: Callable[..., Any] = suite.inputs
        inputs = make_inputs(**case.model.parameters.get("inputs", {}))
        known = Answers(reference.__getitem__)

        def ask(name: str) -> Any:
            question = Ask(
                runner=self._alive(),
                inputs=inputs,
                parameters=self.request.parameters,
                settings=case.settings,
                tokenizer=tokenizer,
                reference=known,
                own=observed,
                claim=case.claim,
            )
            return getattr(suite, name)(question)

        observed = Answers(ask, is_final=lambda error: not isinstance(error, LOST))

        return Bench(
            observed=observed,
            reference=known,
            yardstick=Answers(yardstick.__getitem__),
            inputs=inputs,
            dtype=self.request.dtype,
            precision=judged_precision(case),
            attention=self.request.attention,
            kernels=case.kernels,
            tokenizer=tokenizer,
            parameters=self.request.parameters,
            settings=case.settings,
            layers=checkpoint.layers(case.model.folder) if has_files else None,
            vision=_vision(case),
            claim=case.claim,
            directions=directions,
        )

    def _prepare(self, times: int = 1) -> None:
        """Load the model in a worker unless a living one has it, and start the clock of the next case.

        Raises what loading raises; an error that is no crash is raised again for every later case.
        """
        if self._refusal is not None:
            raise self._refusal
        if self._runner is None or self._runner.dead is not None:
            self._runner = None
            runner = RemoteRunner(
                self.request,
                self._pools.get(self._engine_class, self.group.first.start, self.group.first.environment),
                self._engine_class,
                load_seconds=self._load_seconds,
                call_seconds=times * self._case_seconds,
            )
            try:
                self.loads += 1
                runner.__enter__()
            except ServerDied as error:
                if error.status is None:  # it lives, but cannot import the engine, and will not the next time
                    self._refusal = Unavailable(f"{error}\n{error.log_tail}".rstrip())
                    raise self._refusal from error
                raise
            except LOST:
                raise
            except Exception as error:
                self._refusal = error
                raise
            self._runner = runner
        self._runner.deadline = Deadline.after(times * self._case_seconds)

    def _lose(self) -> None:
        """Count a crash, and end what is left of the worker."""
        self.crashes += 1
        runner, self._runner = self._runner, None
        if runner is not None and runner.dead is None:
            with contextlib.suppress(ExecutionError):  # a worker that a driver holds must not cost the other verdicts
                runner.worker.kill()

    def _alive(self) -> RemoteRunner:
        if self._runner is None:
            raise WorkerGone("the worker is gone; a fresh one is started with the next case")
        return self._runner


def _vision(case: Case) -> VisionRequested | None:
    """What the case requests of the vision tower."""
    if case.vision is None:
        return None
    kernels = case.vision.kernels[case.effective_target.dtype]
    return VisionRequested(case.vision.attention, kernels, checkpoint.vision_layers(case.model.folder))
