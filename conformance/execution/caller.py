"""The parent's end of a worker: a call, its answer within a deadline, and what it means where none comes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, NoReturn

from conformance.codec import ProtocolError
from conformance.execution.deadline import Deadline
from conformance.execution.errors import (
    DeadlineExceeded,
    EngineLost,
    EnvironmentLacking,
    OutOfMemory,
    RemoteFailure,
    ServerDied,
    WorkerCrashed,
    WorkerDied,
    WorkerError,
    WorkerGone,
)
from conformance.execution.exit_status import ExitStatus
from conformance.execution.process import Worker, WorkerPool, said
from conformance.runner import NotSupported

_FAILURES: Mapping[str, type[RemoteFailure]] = {
    "out_of_memory": OutOfMemory,
    "environment": EnvironmentLacking,
    "gone": EngineLost,
    "error": WorkerError,
}


class RemoteCaller:
    """Calls to one worker. After a crash, a missed deadline or a close it is dead, and every call says so."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.dead: str | None = None  # why, as half a sentence

    def call(self, method: str, deadline: Deadline, *args: object, **kwargs: object) -> Any:
        """What the worker answers to `method`.

        Raises NotSupported, WorkerError, OutOfMemory, EnvironmentLacking as the worker says; WorkerCrashed where it
        ended; DeadlineExceeded, with the worker's group killed by then; WorkerGone where it had ended before;
        ProtocolError where an argument cannot travel (the worker lives on) or the answer is malformed (it is killed).
        """
        if self.dead is not None:
            raise WorkerGone(f"{method} was not run, because the worker {self.dead}; a fresh worker is needed")
        sent = False
        try:
            try:
                self.worker.channel.send({"method": method, "args": list(args), "kwargs": kwargs}, deadline)
                sent = True
                reply = self.worker.channel.receive(deadline)
            except WorkerDied:
                self._raise_crashed(method)
            except DeadlineExceeded:
                self._raise_too_late(method, deadline)
        except ProtocolError:
            if sent:
                self.abandon(f"sent a malformed answer to {method} and was killed")
            raise
        except BaseException:
            # Also an interrupt: the answer that may still come would be taken for the next call's.
            if self.dead is None:
                self.abandon(f"was killed because {method} was interrupted")
            raise
        return self._opened(method, reply)

    def close(self, deadline: Deadline) -> Mapping[str, Any]:
        """Have the runner release what it holds and the worker end; its last facts. Raises as `call` does."""
        try:
            facts: Mapping[str, Any] = self.call("close", deadline)
            try:
                status = self.worker.wait(deadline)
            except DeadlineExceeded:
                self._raise_too_late("close", deadline)
            if status != ExitStatus(0, None):
                self._raise_crashed("close")
            return facts
        finally:
            if self.dead is None:
                self.abandon("was closed")

    def abandon(self, reason: str) -> None:
        """Kill the worker's group; from now on it is dead for `reason`."""
        self.dead = reason
        with contextlib.suppress(ServerDied):
            self.worker.kill()
        self.worker.channel.close()

    def _opened(self, method: str, reply: object) -> Any:
        if isinstance(reply, dict) and set(reply) == {"ok"}:
            return reply["ok"]
        error = reply.get("error") if isinstance(reply, dict) else None
        if isinstance(error, dict) and set(error) == {"kind", "type", "message", "traceback"}:
            kind, name, message, trace = (str(error[key]) for key in ("kind", "type", "message", "traceback"))
            if kind == "not_supported":
                raise NotSupported(message)
            if kind in _FAILURES:
                raise _FAILURES[kind](method, name, message, trace)
        self.abandon(f"sent a malformed answer to {method} and was killed")
        raise ProtocolError(f"the answer to {method} is neither a value nor an error: {reply!r:.200}")

    def _raise_crashed(self, method: str) -> NoReturn:
        self.dead = f"died while running {method}"
        try:
            # It closed its end of the channel, so it is ending; one that is not has lost its way.
            status = self.worker.wait(Deadline.after(5.0))
        except DeadlineExceeded:
            self.abandon(f"closed its channel while running {method}, did not end, and was killed")
            tail = self.worker.log_tail()
            raise WorkerCrashed(f"the worker {self.dead}; {said(tail)}", log_tail=tail) from None
        except ServerDied:
            raise
        self.dead = f"{status} while running {method}"
        self.worker.channel.close()
        likely = " (most likely by the kernel's out-of-memory killer)" if status.signal_name == "SIGKILL" else ""
        tail = self.worker.log_tail()
        message = f"the worker {status}{likely} while running {method}; {said(tail)}"
        raise WorkerCrashed(message, status=status, log_tail=tail) from None

    def _raise_too_late(self, method: str, deadline: Deadline) -> NoReturn:
        with contextlib.suppress(ServerDied):
            self.worker.dump_stacks()
        self.abandon(f"was killed because {method} missed its deadline of {deadline}")
        tail = self.worker.log_tail()
        raise DeadlineExceeded(
            f"{method} had not ended when its deadline of {deadline} passed; the worker was killed; {said(tail)}"
        ) from None


def ask_facts(pool: WorkerPool, probe: str, seconds: float, *arguments: object) -> Mapping[str, Any]:
    """What the function `probe` ("module:function") answers to `arguments` in a worker that loads no model.

    Raises as `RemoteCaller.call` does: EnvironmentLacking where `probe` cannot import what it needs.
    """
    deadline = Deadline.after(seconds)
    with pool.start_worker() as worker:
        caller = RemoteCaller(worker)
        facts: Mapping[str, Any] = caller.call("facts", deadline, probe, *arguments)
        caller.close(deadline)
        return facts
