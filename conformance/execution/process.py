"""Worker processes as the parent sees them: a pool that starts them, and a handle on each."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from conformance.codec import ProtocolError
from conformance.execution import bootstrap
from conformance.execution.channel import Channel
from conformance.execution.deadline import Deadline
from conformance.execution.errors import DeadlineExceeded, ExecutionError, ServerDied, WorkerDied
from conformance.execution.exit_status import ExitStatus
from conformance.execution.worker import DUMP_SIGNAL

LOG_TAIL_BYTES = 4_096
_ANSWER_SECONDS = 30.0  # for the server, which does nothing that takes long
_KILL_SECONDS = 10.0  # for the kernel to end a killed process; a driver can hold it up
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[^\n\t\x20-\x7e\xa0-\U0010ffff]")


class Worker:
    """One worker process, a session leader. A context manager: leaving kills what is left of its group."""

    def __init__(self, pool: WorkerPool, pid: int, channel: Channel, log: Path) -> None:
        self._pool = pool
        self.pid = pid
        self.channel = channel
        self.log = log
        self._status: ExitStatus | None = None

    def poll(self) -> ExitStatus | None:
        """How the worker ended, or None while it runs. Raises ServerDied."""
        if self._status is None:
            self._settle(self._pool.ask({"op": "status", "pid": self.pid}))
        return self._status

    def wait(self, deadline: Deadline) -> ExitStatus:
        """How the worker ended, once it has. Raises DeadlineExceeded (it is not killed), ServerDied."""
        pause = 0.001
        while (status := self.poll()) is None:
            if deadline.has_passed:
                raise DeadlineExceeded(f"the worker {self.pid} has not ended within {deadline}")
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        return status

    def kill(self) -> ExitStatus:
        """Kill the worker and its group, if it still runs, and say how it ended. Raises ServerDied."""
        if self._status is None:
            self._settle(self._pool.ask({"op": "kill", "pid": self.pid}))
        self.channel.close()
        try:
            return self.wait(Deadline.after(_KILL_SECONDS))
        except DeadlineExceeded as error:
            raise DeadlineExceeded(f"{error} of being killed; a driver may be holding it") from error

    def dump_stacks(self) -> None:
        """Have the worker write to its log where its threads are; best before a kill, as it may end the worker."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, DUMP_SIGNAL)
            time.sleep(0.1)  # the log has no "end of dump" to wait for

    def log_tail(self, limit: int = LOG_TAIL_BYTES) -> str:
        """The last `limit` bytes at most of what the worker wrote to its descriptors 1 and 2, as printable lines."""
        return _tail(self.log, limit)

    def _settle(self, answer: Mapping[str, Any]) -> None:
        if answer["exit"] is not None:
            self._status = ExitStatus.of(answer["exit"])
            self._pool.forget(self.pid)

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ServerDied):  # which took the worker along
            self.kill()
        self.channel.close()


class WorkerPool:
    """Starts workers for one interpreter and environment. A context manager: leaving ends all its workers.

    `python` is the workers' interpreter; it needs numpy, and what the runners need. Workers see the parent's
    environment with OMP_WAIT_POLICY=PASSIVE (so that idle threads do not take the cores from others), changed by
    `environment`. With `start="fork"` they are forks of a server that has imported `preload`; with "spawn" each is
    a fresh interpreter and `preload` must be empty. Their output goes to files in the folder `log_dir`.

    Entering does not wait for the imports; the first worker does, for `ready_seconds` at most.
    """

    def __init__(
        self,
        python: str | Path,
        *,
        environment: Mapping[str, str],
        preload: Sequence[str] = (),
        start: Literal["fork", "spawn"] = "fork",
        log_dir: Path,
        ready_seconds: float = 120.0,
    ) -> None:
        if start not in ("fork", "spawn"):
            raise ValueError(f"start is {start!r}, but should be 'fork' or 'spawn'")
        if start == "spawn" and preload:
            raise ValueError(f"a spawned worker shares no imports, so preload should be empty, not {list(preload)}")
        self._python = str(python)
        self._environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", **environment}
        self._preload = list(preload)
        self._start = start
        self._log_dir = log_dir
        self._log = log_dir / "server.log"
        self._ready_seconds = ready_seconds
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._workers: set[int] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: Channel | None = None
        self._ready = False
        self._death: str | None = None

    @property
    def server_pid(self) -> int:
        """The server's process id."""
        if self._process is None:
            raise ExecutionError("the pool has no server: it was not entered, or has been left")
        return self._process.pid

    @property
    def dead(self) -> bool:
        """Whether the server is gone, so that a new pool is needed."""
        return self._death is not None

    def __enter__(self) -> WorkerPool:
        self._log_dir.mkdir(parents=True, exist_ok=True)
        ours, theirs = socket.socketpair()
        with theirs, self._log.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    bootstrap.command(self._python, "conformance.execution.server", str(theirs.fileno())),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._environment,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # an interrupt typed at the terminal is the parent's to handle
                )
            except OSError as error:
                ours.close()
                raise ServerDied(f"the interpreter {self._python} cannot be started: {error}") from error
        self._control = Channel(ours, "the worker server")
        with contextlib.suppress(WorkerDied):  # told with its log by the first worker's start
            self._control.send({"start": self._start, "preload": self._preload}, Deadline.after(_ANSWER_SECONDS))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None or self._control is None:
            return
        # The end of its control channel is what a server ends by, also in the midst of an import.
        self._control.close()
        try:
            self._process.wait(_KILL_SECONDS if self._ready else 0.2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.returncode != 0:
            self._kill_groups()
        self._process = self._control = None

    def start_worker(self) -> Worker:
        """A new worker, not yet asked anything.

        Raises ServerDied, and DeadlineExceeded where the server's imports took too long.
        """
        log = self._log_dir / f"worker-{next(self._numbers)}.log"
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                answer = self.ask({"op": "start", "log": str(log.resolve())}, descriptor=theirs.fileno())
            except BaseException:
                ours.close()
                raise
        pid = int(answer["pid"])
        self._workers.add(pid)
        return Worker(self, pid, Channel(ours, f"the worker {pid}"), log)

    def ask(self, request: Mapping[str, Any], *, descriptor: int | None = None) -> Mapping[str, Any]:
        """One exchange with the server, for `Worker`; threads take turns. Raises ServerDied, DeadlineExceeded."""
        with self._lock:
            if self._death is not None:
                raise ServerDied(self._death)
            if self._control is None:
                raise ExecutionError("the pool has no server: it was not entered, or has been left")
            try:
                self._await_ready(self._control)
                deadline = Deadline.after(_ANSWER_SECONDS)
                self._control.send(request, deadline)
                if descriptor is not None:
                    socket.send_fds(self._control.socket, [b"\0"], [descriptor])
                answer: Mapping[str, Any] = self._control.receive(deadline)
            except (WorkerDied, OSError, ProtocolError) as error:
                raise self._server_died(error) from error
            except ServerDied:
                raise
            except BaseException:  # too late or interrupted: its answer, if it comes, would be taken for another's
                self._give_up("was given up in the midst of an exchange")
                raise
            return answer

    def sweep(self) -> list[tuple[int, str]]:
        """End what outlived its worker, where no worker runs: process ids and names. Raises as `ask` does."""
        if self._process is None or not self._ready:
            return []
        return [(int(pid), str(name)) for pid, name in self.ask({"op": "sweep"})["orphans"]]

    def forget(self, pid: int) -> None:
        """Note that a worker has been reaped, so that its process id is no longer ours to kill."""
        self._workers.discard(pid)

    def _await_ready(self, control: Channel) -> None:
        if self._ready:
            return
        answer = control.receive(Deadline.after(self._ready_seconds))
        if "failed" in answer:
            self._give_up(f"could not import {', '.join(self._preload)}: {answer['failed']}")
            raise ServerDied(str(self._death), log_tail=str(answer["traceback"]))
        self._ready = True

    def _server_died(self, error: Exception) -> ServerDied:
        status = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = ExitStatus.of(self._process.wait(1.0))
        self._give_up(f"{status or f'does not answer ({error})'}")
        tail = _tail(self._log, LOG_TAIL_BYTES)
        return ServerDied(f"{self._death}; {said(tail)}", status=status, log_tail=tail)

    def _give_up(self, what: str) -> None:
        self._death = f"the worker server ({self._python}) {what}; its workers went with it"
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._kill_groups()

    def _kill_groups(self) -> None:
        # A server that ended in order has left none; one that was killed has left its workers' own children.
        for pid in self._workers:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        self._workers.clear()


def said(log_tail: str) -> str:
    """The end of a log as half a sentence for a message."""
    return f"last output:\n{log_tail}" if log_tail else "it wrote nothing"


def _tail(log: Path, limit: int) -> str:
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - limit))
            data = file.read(limit)
    except FileNotFoundError:
        return ""
    text = data.decode("utf-8", errors="replace").replace("\r\n", "\n")
    lines = [_CONTROL.sub("", line.rsplit("\r", 1)[-1]) for line in text.split("\n")]
    if size > limit and len(lines) > 1:
        lines = lines[1:]  # cut somewhere in its midst
    return "\n".join(lines).strip()
