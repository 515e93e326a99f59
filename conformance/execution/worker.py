"""The worker's process: a session of its own, whose output goes to a log, serving requests until the channel ends.

A fork of the server enters it through `enter_session` and `run`; one with a fresh interpreter goes on in `main`.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import io
import os
import signal
import socket
import sys
import traceback
from typing import NoReturn

from conformance.codec import ProtocolError
from conformance.execution.channel import Channel
from conformance.execution.deadline import Deadline
from conformance.execution.errors import WorkerDied
from conformance.execution.host import Host, error_reply

DUMP_SIGNAL = signal.SIGUSR2
"""Makes a worker write where each of its threads is to its log; C code that holds the interpreter is seen too."""

_PR_SET_PDEATHSIG = 1


def enter_session(log: str, parent: int) -> None:
    """Make this fresh child of `parent` a session leader that writes to the file `log` and dies with its parent."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(null)
    os.close(output)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt ends
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    die_with(parent)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent` ends."""
    signal_at_parents_end(signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was asked
        os._exit(1)


def signal_at_parents_end(number: signal.Signals) -> None:
    """Have the kernel send this process a signal when its parent ends; elsewhere the channel's end must do."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def serve(sock: socket.socket) -> int:
    """Answer requests until close, or until the parent has gone; the process's exit code."""
    channel = Channel(sock, "the parent")
    # Descendants must not hold the channel open: the parent learns of a crash by the channel's end.
    os.register_at_fork(after_in_child=channel.close)
    host = Host()
    with contextlib.suppress(WorkerDied):  # the parent is gone, or has given this worker up
        while not host.closed:
            reply = host.reply(channel.receive(Deadline.never()))
            try:
                channel.send(reply, Deadline.never())
            except ProtocolError as error:  # the runner returned what cannot travel, which is the runner's fault
                channel.send(error_reply(error, loading=False), Deadline.never())
    return 0


def run(sock: socket.socket) -> NoReturn:
    """Serve, then end this process without the interpreter's clean-up, in which drivers like to hang or crash."""
    code = 70
    try:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(line_buffering=True)  # lines written before a crash count
        faulthandler.enable(file=2)
        faulthandler.register(DUMP_SIGNAL, file=2, all_threads=True)
        code = serve(sock)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def main(arguments: list[str]) -> NoReturn:
    """Serve on the inherited descriptor, the first argument; the second is the server's process id."""
    descriptor, parent = arguments
    die_with(int(parent))  # a change of program may have cleared it
    sock = socket.socket(fileno=int(descriptor))
    sock.set_inheritable(False)
    run(sock)
