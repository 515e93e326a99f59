"""Running trials: each in workers of its own, several side by side on a CPU, the clean ones before the others."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from conformance.execution.group import Group
from conformance.execution.holder import Holder
from conformance.execution.injection import NOT_APPLICABLE
from conformance.execution.interrupts import Interrupts
from conformance.execution.outcome import outcome_of
from conformance.execution.pools import Pools
from conformance.execution.process import WorkerPool
from conformance.execution.references import References
from conformance.execution.session import Session
from conformance.selftest.judging import Again, Clean, Shown, clean_of, finding_of, without_measuring
from conformance.selftest.plan import Trials
from conformance.selftest.rejudging import Rejudging
from conformance.selftest.trial import Finding, Result, Trial
from conformance.verdict import Verdict

MOST_LANES = 4
"""So many trials at most run side by side: each holds a model and its references."""

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Surroundings:
    """Where and how trials run. `lanes` run side by side, each with `threads` threads, 0: as many as they like."""

    device: str
    isa: str
    load_seconds: float
    case_seconds: float
    lanes: int = 1
    threads: int = 0


def surroundings(device: str, isa: str, load_seconds: float, case_seconds: float) -> Surroundings:
    """A CPU's cores are shared out, one to a lane: tiny models hardly gain by a second thread.

    An accelerator runs one trial at a time, as its memory belongs to one model at a time.
    """
    cores = len(os.sched_getaffinity(0)) if device == "cpu" else 1
    lanes = min(cores, MOST_LANES)
    return Surroundings(device, isa, load_seconds, case_seconds, lanes, cores // lanes if lanes > 1 else 0)


def run_trials(
    trials: Trials, around: Surroundings, found: Callable[[Finding], None], interrupts: Interrupts, whole: bool = False
) -> bool:
    """Run all trials and tell each finding, in the calling thread; True where an interrupt ended it early.

    With `whole`, every case of every trial is run. Otherwise a fault's trial ends with the first case that FAILs (the
    rules elsewhere are held against the same outputs, those up to there), and of a null only the cases are run that
    compare numbers with the reference and ask for little.
    """
    work = _Work(trials, around, whole)
    lanes = [threading.Thread(target=work.lane, daemon=True, name=f"lane {n}") for n in range(around.lanes)]
    for lane in lanes:
        lane.start()
    interrupted = False
    try:
        with interrupts.heeded():
            while any(lane.is_alive() for lane in lanes):
                with contextlib.suppress(queue.Empty):
                    found(work.findings.get(timeout=_POLL_SECONDS))
    except KeyboardInterrupt:
        interrupted = True
        work.stop()
    except BaseException:
        work.stop()
        raise
    for lane in lanes:
        lane.join()
    while not work.findings.empty():
        found(work.findings.get())
    if work.error is not None:
        raise work.error
    return interrupted


class _Work:
    """What is still to be done, shared by the lanes."""

    def __init__(self, trials: Trials, around: Surroundings, whole: bool) -> None:
        self.findings: queue.Queue[Finding] = queue.Queue()
        self.error: BaseException | None = None
        self._around, self._whole = around, whole
        self._lock = threading.Condition()
        self._clean_trials = deque(trials.clean)
        self._ready: deque[Trial] = deque()
        self._waiting: dict[tuple[str, str, str], list[Trial]] = {}
        for trial in trials.changed:
            self._waiting.setdefault(trial.place, []).append(trial)
        self._clean: dict[tuple[str, str, str], Clean] = {}
        self._in_flight = 0
        self._stopped = False
        self._holders: set[Holder] = set()

    def lane(self) -> None:
        """Do what is to be done until nothing is left. The thread owns its pools: workers die with the thread."""
        try:
            with _SharedPools() as pools:
                references = References(pools, self._around.isa, self._around.load_seconds, lambda _: None)
                while (trial := self._next()) is not None:
                    try:
                        self._do(trial, pools, references)
                    finally:
                        self._done()
        except BaseException as error:  # told by the main thread
            self.error = error
            self.stop()

    def stop(self) -> None:
        """End the workers: the calls in flight fail, and nothing more is begun."""
        with self._lock:
            self._stopped = True
            for holder in self._holders:
                holder.kill()
            self._lock.notify_all()

    def _next(self) -> Trial | None:
        with self._lock:
            while not self._stopped:
                if self._clean_trials:
                    self._in_flight += 1
                    return self._clean_trials.popleft()
                if self._ready:
                    self._in_flight += 1
                    return self._ready.popleft()
                if not self._in_flight:
                    return None
                self._lock.wait()
            return None

    def _done(self) -> None:
        with self._lock:
            self._in_flight -= 1
            self._lock.notify_all()

    def _do(self, trial: Trial, pools: Pools, references: References) -> None:
        began = time.monotonic()
        around = self._around
        group = _with_threads(trial.group, around.threads)
        holder = Holder(pools, around.load_seconds)
        session = Rejudging(group, around.device, trial.engine_class, holder, around.case_seconds)
        shown: list[Shown] = []
        again = Again()
        try:
            with self._known(holder), holder:
                if trial.kind == "clean":
                    shown = [self._attempt(session, test, trial, references) for test in _tests(trial)]
                    again = session.judged_again([one.case.test for one in shown], around.isa)
                else:
                    shown = self._changed(session, trial, references)
        except Exception as error:  # a worker that does not end well; the cases have their outcomes
            if not shown:
                first = trial.group.first
                shown = [Shown(first, outcome_of(error))]
        if self._stopped:
            return
        seconds = time.monotonic() - began
        if trial.kind == "clean":
            clean = clean_of(shown, again)
            with self._lock:
                self._clean[trial.place] = clean
                self._ready.extend(self._waiting.pop(trial.place, ()))
                self._lock.notify_all()
            self.findings.put(finding_of(trial, shown, clean, seconds))
            return
        refusal = next((one.outcome for one in shown if f"{NOT_APPLICABLE}:" in one.outcome.reason), None)
        if refusal is None:
            self.findings.put(finding_of(trial, shown, self._clean[trial.place], seconds))
        else:
            reason = refusal.reason.partition(f"{NOT_APPLICABLE}:")[2].strip()
            self.findings.put(without_measuring(trial, Result.NOT_APPLICABLE, reason))

    def _changed(self, session: Session, trial: Trial, references: References) -> list[Shown]:
        clean = self._clean[trial.place]
        shown: list[Shown] = []
        for test in clean.passed:
            if trial.kind == "null" and not self._whole and test not in clean.cheap:
                continue
            found = any(one.outcome.verdict is Verdict.FAIL for one in shown)
            if trial.kind == "fault" and found and not self._whole:
                break
            shown.append(self._attempt(session, test, trial, references))
            if session.given_up:
                break
        return shown

    def _attempt(self, session: Session, test: str, trial: Trial, references: References) -> Shown:
        case = next(case for case in trial.group.cases if case.test == test)
        if self._stopped:
            return Shown(case, session.given_up_because)
        attempt = session.attempt(test, references)
        return Shown(case, attempt.outcome, attempt.judgements)

    @contextlib.contextmanager
    def _known(self, holder: Holder) -> Any:
        with self._lock:
            self._holders.add(holder)
        try:
            yield
        finally:
            with self._lock:
                self._holders.discard(holder)


class _SharedPools(Pools):
    """Forks workers of all classes from one server: the class asked for first is the engine's own, without a change.

    What injects into it imports little beside it, and each server costs seconds and its memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self._first: dict[str, str] = {}

    def get(self, runner_class: str, start: str, environment: Mapping[str, str], python: str = "") -> WorkerPool:
        return super().get(self._first.setdefault(python, runner_class), start, environment, python)


def _tests(trial: Trial) -> list[str]:
    return [case.test for case in trial.group.cases]


def _with_threads(group: Group, threads: int) -> Group:
    if not threads:
        return group
    own = {"OMP_NUM_THREADS": str(threads)}
    return Group(tuple(replace(case, environment={**own, **case.environment}) for case in group.cases))
