"""The device under test, as the parent deals with it: what is known of it, whose it is, whether it is still there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from conformance.codec import ProtocolError
from conformance.execution.caller import ask_facts
from conformance.execution.deadline import Deadline
from conformance.execution.errors import DeadlineExceeded, ExecutionError, RemoteFailure
from conformance.execution.lock import device_lock
from conformance.execution.pools import Pools
from conformance.plan import Case, Plan
from conformance.verdict import Verdict

FACTS = "conformance.engines.device:facts"
LOCK_SECONDS = 24 * 3600.0
PROBE_SECONDS = 120.0  # for a fresh worker to import its engine and see the device

_LOST = (Verdict.CRASH, Verdict.TIMEOUT)  # the worker was lost, so that nobody else holds the device
_DOUBTFUL = (Verdict.ERROR, Verdict.ENVIRONMENT)


class DeviceBusy(Exception):
    """Another process has held the device for too long."""


def complete_facts(
    plan: Callable[[Mapping[str, Any]], Plan],
    facts: Mapping[str, Any],
    engines: Mapping[str, str],
    pools: Pools,
    seconds: float,
) -> dict[str, Any]:
    """The facts that only a worker knows, added; a worker that cannot be had makes the device unavailable."""
    known_plan = plan(facts)
    case = next((case for case in known_plan.cases if case.verdict is None), None)
    if case is None:
        return dict(facts)
    try:
        pool = pools.get(engines[case.effective_target.engine], case.start, case.environment, case.python)
        claims = case.products
        known = ask_facts(pool, FACTS, seconds, known_plan.device, claims.matmul, claims.convolution)
    except (ExecutionError, ProtocolError) as error:
        reason = str(error).strip().splitlines()[0]
        known = {"device": {"type": known_plan.device, "available": False, "reason": reason}}
    return {**facts, **known, **{key: {**facts.get(key, {}), **known.get(key, {})} for key in ("device", "stack")}}


@contextmanager
def owned_device(plan: Plan, note: Callable[[str], None]) -> Iterator[None]:
    """Own an accelerator's memory while a plan runs; the CPU's is shared anyway. `note` is told of any waiting.

    Raises DeviceBusy where another run does not give it back. Where this machine has no place for locks, it is used
    without one.
    """

    def waiting(holder: int | None) -> None:
        note(f"waiting for the {plan.device} device, which process {holder or '?'} is testing")

    with ExitStack() as stack:
        if plan.device != "cpu" and any(case.verdict is None and "url" not in case.options for case in plan.cases):
            try:
                stack.enter_context(device_lock(f"{plan.device}:0", Deadline.after(LOCK_SECONDS), waiting))
            except DeadlineExceeded as error:
                raise DeviceBusy(str(error)) from error
            except OSError as error:
                note(f"the {plan.device} device is used without a lock, so keep other runs away from it: {error}")
        yield


class DeviceWatch:
    """Asks a fresh worker for the device where a verdict makes its absence likely.

    Without it, every case that is left would run into its own time-out on a device that has gone.
    """

    def __init__(self, device: str, pools: Pools) -> None:
        self._device = device
        self._pools = pools
        self._doubted: set[str] = set()

    def gone(self, case: Case, engine_class: str, verdict: Verdict) -> str | None:
        """Why the device is not there any more, after a case with this verdict; None where it is, or may be."""
        place = f"{case.effective_target} {case.model.name}"
        worker_lost = verdict in _LOST
        if self._device == "cpu" or "url" in case.options:  # a server's device is where the server is
            return None
        if not (worker_lost or (verdict in _DOUBTFUL and place not in self._doubted)):
            return None
        self._doubted.add(place)
        try:
            pool = self._pools.get(engine_class, case.start, case.environment, case.python)
            device = ask_facts(pool, FACTS, PROBE_SECONDS, self._device)["device"]
        except (ExecutionError, ProtocolError) as error:
            if isinstance(error, RemoteFailure) and not worker_lost:
                return None  # the worker that lives on may hold a device that only one process may use
            return str(error).strip().splitlines()[0]
        return None if device["available"] else str(device["reason"])
