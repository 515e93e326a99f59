"""The server: starts workers, reaps them, reports how they ended, and takes them along when the parent goes away.

It has one thread and touches no device, so that a fork of it is a good worker: the libraries that it preloaded are
there at once. A worker that must not be a fork (`start="spawn"`) gets a fresh interpreter, and the same care.

Requests are `{"op": "start", "log": path}`, followed by one byte that carries the worker's socket;
`{"op": "status" | "kill", "pid": pid}`; `{"op": "sweep"}`, which ends what outlived its worker; `{"op": "stop"}`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from conformance.codec import ProtocolError
from conformance.execution import bootstrap, worker
from conformance.execution.channel import Channel
from conformance.execution.deadline import Deadline
from conformance.execution.errors import WorkerDied
from conformance.execution.orphans import adopt, children, end_orphans

_REAP_SECONDS = 5.0
_HARMLESS_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx")


class Server:
    """Starts and watches workers for the parent at the other end of `control`."""

    def __init__(self, control: Channel, start: str) -> None:
        self._control = control
        self._start_method = start
        self._running: set[int] = set()
        self._own = {child.pid for child in children(os.getpid())}  # which an import has started, and may need
        self._ended: dict[int, int] = {}  # exit codes, negative for signals
        self._ending = False
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._waker.setblocking(False)

    def run(self) -> None:
        """Serve until the parent says stop or is gone; then no worker's group is left."""
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_terminate)
        with selectors.DefaultSelector() as selector:
            selector.register(self._control.socket, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            try:
                while not self._ending:
                    ready = [key.fileobj for key, _ in selector.select()]
                    if self._wake in ready:
                        with contextlib.suppress(BlockingIOError):
                            self._wake.recv(4096)
                        self._reap()
                    if self._control.socket in ready:
                        self._control.send(self._answer(self._control.receive(Deadline.never())), Deadline.never())
            except WorkerDied:
                pass  # the parent is gone
            finally:
                self._end_all()
                signal.set_wakeup_fd(-1)
                for mine in (self._control.socket, self._wake, self._waker):
                    mine.close()

    def _on_terminate(self, *_: object) -> None:
        self._ending = True

    def _answer(self, request: Any) -> dict[str, Any]:
        operation = request["op"]
        if operation == "start":
            return {"pid": self._start(request["log"])}
        if operation == "stop":
            self._ending = True
            return {}
        if operation == "sweep":
            self._reap()
            # A living worker's own daemon cannot be told from another's orphan.
            orphans = [] if self._running else end_orphans(self._own)
            return {"orphans": [[each.pid, each.name] for each in orphans]}
        if operation not in ("status", "kill"):
            raise ProtocolError(f"the server knows start, status, kill, sweep and stop, not {operation!r}")
        pid = request["pid"]
        if operation == "kill" and pid in self._running:
            kill_group(pid)
        self._reap()
        if pid not in self._running and pid not in self._ended:
            raise ProtocolError(f"process {pid} is no worker of this server")
        return {"exit": self._ended.get(pid)}

    def _start(self, log: str) -> int:
        _, descriptors, _, _ = socket.recv_fds(self._control.socket, 1, 1)
        if len(descriptors) != 1:
            raise ProtocolError("start should be followed by one descriptor")
        with socket.socket(fileno=descriptors[0]) as sock:
            server = os.getpid()
            pid = os.fork()
            if pid == 0:
                self._become_worker(sock, log, server)
        self._running.add(pid)
        return pid

    def _become_worker(self, sock: socket.socket, log: str, server: int) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            for inherited in (self._control.socket, self._wake, self._waker):
                inherited.close()
            worker.enter_session(log, server)
            if self._start_method == "spawn":
                sock.set_inheritable(True)
                module = "conformance.execution.worker"
                command = bootstrap.command(sys.executable, module, str(sock.fileno()), str(server))
                os.execv(sys.executable, command)
            worker.run(sock)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(71)

    def _reap(self) -> None:
        for pid in tuple(self._running):
            # Look without reaping: while the leader is a zombie, its group's id cannot have been taken by others.
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            kill_group(pid)
            _, status = os.waitpid(pid, 0)
            self._running.discard(pid)
            self._ended[pid] = os.waitstatus_to_exitcode(status)

    def _end_all(self) -> None:
        for pid in self._running:
            kill_group(pid)
        deadline = Deadline.after(_REAP_SECONDS)
        while self._running and not deadline.has_passed:
            self._reap()
            time.sleep(0.005)
        end_orphans(self._own | self._running)


def kill_group(pid: int) -> None:
    """Kill the worker `pid` and all that is in its group; harmless where nothing is left."""
    # The worker itself too: just after the fork it does not lead a group yet.
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def preload(modules: list[str]) -> None:
    """Import `modules`. Raises RuntimeError where that started a thread or opened a device: no fork survives those."""
    devices = _open_devices()
    for name in modules:
        importlib.import_module(name)
        threads = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
        if threads:
            raise RuntimeError(f"importing {name} started the threads {threads}; use start='spawn' or preload less")
        opened = _open_devices() - devices
        if opened:
            raise RuntimeError(f"importing {name} opened {sorted(opened)}; use start='spawn' or preload less")
    gc.collect()
    gc.freeze()  # the collector would otherwise write to, and so copy, every shared page in each worker


def _open_devices() -> set[str]:
    opened = set()
    with contextlib.suppress(FileNotFoundError):  # where there is no such list, a device goes unnoticed
        for descriptor in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # the one that reads this list is closed already
                opened.add(str(descriptor.readlink()))
    return {
        path
        for path in opened
        if path.startswith("/dev/")
        and path not in _HARMLESS_DEVICES
        and not path.startswith(("/dev/pts/", "/dev/shm/"))
    }


def main(arguments: list[str]) -> int:
    """Serve on the inherited control descriptor; the first message there says how."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # In the midst of an import nobody listens for the channel's end. Later, SIGTERM ends the workers first.
    worker.signal_at_parents_end(signal.SIGTERM)
    sock = socket.socket(fileno=int(arguments[0]))
    sock.set_inheritable(False)
    control = Channel(sock, "the parent")
    settings = control.receive(Deadline.never())
    try:
        preload(settings["preload"])
    except Exception as error:
        text = traceback.format_exc()
        control.send({"failed": f"{type(error).__name__}: {error}", "traceback": text}, Deadline.never())
        control.close()
        return 1
    adopt()
    control.send({"ready": os.getpid()}, Deadline.never())
    Server(control, settings["start"]).run()
    return 0
