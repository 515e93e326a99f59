"""What can go wrong between the parent and a worker; each class is one answer to "what becomes of the case"."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conformance.execution.exit_status import ExitStatus


class ExecutionError(Exception):
    """Base of everything that execution raises on its own account."""


class WorkerDied(ExecutionError):
    """The other end of a channel is gone: the stream ended or broke."""


class DeadlineExceeded(ExecutionError):
    """Something did not happen in time; where a worker was waited for, it has been killed by now."""


class WorkerCrashed(ExecutionError):
    """A worker ended, or was killed, while it was needed. `status` is None where nobody could learn it."""

    def __init__(self, message: str, *, status: ExitStatus | None = None, log_tail: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.log_tail = log_tail


class ServerDied(WorkerCrashed):
    """The process that starts the workers is gone, and its workers with it; a new pool is needed."""


class WorkerGone(ExecutionError):
    """A call to a worker that had already crashed, been killed or been closed; the message says which."""


class GivenUp(ExecutionError):
    """A model, or a variant of it, crashed too often to be loaded once more."""


class RemoteFailure(ExecutionError):
    """An exception that was raised in the worker, which lives on.

    `type_name` is the remote exception's class, `message` its text, `remote_traceback` its traceback as text.
    """

    def __init__(self, method: str, type_name: str, message: str, remote_traceback: str) -> None:
        super().__init__(f"{method} raised {type_name}: {message}")
        self.method = method
        self.type_name = type_name
        self.message = message
        self.remote_traceback = remote_traceback


class WorkerError(RemoteFailure):
    """The engine raised something that is none of the other kinds: a finding."""


class OutOfMemory(RemoteFailure):
    """The engine ran out of memory and said so; the state of its memory is unknown, so take a fresh worker."""


class EngineLost(RemoteFailure):
    """The engine that the worker asks, in a process that is not ours, is gone; the worker is of no use any more."""


class EnvironmentLacking(RemoteFailure):
    """This machine cannot host the runner: a package cannot be imported, or there is no such device."""
