"""Runners that need no engine: one that answers, and misbehaves in every way that a real one has been seen to."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from conformance.runner import (
    ClassLogits,
    Effective,
    Generations,
    NotSupported,
    Prompt,
    Runner,
    Scalars,
    Vectors,
)

EFFECTIVE = Effective(dtype="float32", attention="none", kernels={}, layers=1, forwards=1)


class FakeRunner(Runner):
    """`embed` answers; `classify` does what its first prompt says."""

    capabilities = frozenset({"embed", "classify", "generate", "reward"})

    def __enter__(self) -> FakeRunner:
        print(f"loading {self.request.model}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if "on_exit" in self.request.options:
            _MISDEEDS[self.request.options["on_exit"]]("")

    def embed(self, prompts: Sequence[str], *, dimensions: int | None = None) -> Vectors:
        ids = tuple(tuple(prompt.encode()) for prompt in prompts)
        values = np.array([[len(prompt), dimensions or 0] for prompt in prompts], dtype=np.float32)
        return Vectors(prompt_token_ids=ids, effective=EFFECTIVE, values=values)

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> Scalars:
        raise AssertionError("score_pairs is not announced, so it must not be reached")

    def classify(self, prompts: Sequence[str]) -> ClassLogits:
        misdeed, _, argument = prompts[0].partition(" ")
        return _MISDEEDS[misdeed](argument)  # type: ignore[no-any-return]

    def reward(self, conversations: Sequence[Sequence[Any]]) -> Scalars:
        return Vectors((), EFFECTIVE, np.zeros((0, 2)))  # type: ignore[return-value]  # the wrong kind of answer

    def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        max_tokens: int,
        top_k: int = 20,
        stop_token_ids: Sequence[int] = (),
        images: Sequence[Sequence[Any]] | None = None,
        videos: Sequence[Sequence[Any]] | None = None,
    ) -> Generations:
        assert images is not None
        return Generations(
            prompt_token_ids=tuple(tuple(prompt) for prompt in prompts if not isinstance(prompt, str)),
            effective=EFFECTIVE,
            token_ids=tuple((int(each[0].sum()),) for each in images),
            texts=("\ud800 é \x00",) * len(prompts),
            finish_reasons=("length",) * len(prompts),
            logprobs=np.full((len(prompts), max_tokens), np.nan, dtype=np.float32),
            top_ids=np.full((len(prompts), max_tokens, top_k), -1),
            top_logprobs=np.full((len(prompts), max_tokens, top_k), np.nan, dtype=np.float16),
        )


class NoDevice(FakeRunner):
    def __enter__(self) -> FakeRunner:
        raise RuntimeError("Found no accelerator driver on your system.")


class NoPackage(FakeRunner):
    def __enter__(self) -> FakeRunner:
        importlib.import_module("a_package_that_nobody_has")
        return self


class SlowToLoad(FakeRunner):
    def __enter__(self) -> FakeRunner:
        time.sleep(60)
        return self


class NoRunner:
    pass


class ClaimsTooMuch(FakeRunner):
    capabilities = frozenset({"embed", "divine"})


class OutOfMemoryError(RuntimeError):
    """As torch names its own."""


def probe() -> Mapping[str, Any]:
    return {"device": "none", "precision": {"tf32": False}}


def interpreter() -> Mapping[str, Any]:
    """Where this runs, and whether the suite's own requirements could be imported here."""
    return {"prefix": sys.prefix, "has_jsonschema": importlib.util.find_spec("jsonschema") is not None}


def torch_probe() -> Mapping[str, Any]:
    """A product of matrices by two threads of torch: what a bad fork hangs in."""
    import torch

    torch.set_num_threads(2)
    begin = time.monotonic()
    matrix = torch.eye(512) * 2
    for _ in range(20):
        product = matrix @ torch.ones(512, 512)
    return {
        "sum": float(product.sum()),
        "threads": torch.get_num_threads(),
        "seconds": time.monotonic() - begin,
        "wait_policy": os.environ["OMP_WAIT_POLICY"],
    }


def _raise(error: BaseException) -> None:
    raise error


def _raise_from(argument: str) -> None:
    try:
        raise MemoryError
    except MemoryError as error:
        raise RuntimeError("the engine core failed") from error


def _hang(argument: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(0.01)


def _hang_holding_the_interpreter(argument: str) -> None:
    # A mutex that its own thread locks again: no signal wakes it, and the interpreter's lock is not released.
    mutex = ctypes.create_string_buffer(128)
    library = ctypes.PyDLL(None)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def _fork_grandchild(argument: str) -> None:
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    Path(argument).write_text(str(pid))


def _fork_and_crash(argument: str) -> None:
    _fork_grandchild(argument)
    os.kill(os.getpid(), signal.SIGSEGV)


def _fork_and_hang(argument: str) -> None:
    _fork_grandchild(argument)
    _hang("")


def _flood(argument: str) -> None:
    for descriptor in (1, 2):
        for _ in range(64):
            os.write(descriptor, b"noise\n" * 10_922)
    os.write(1, b"\x1b[31mthe very last line\x1b[0m\n")


def _flood_and_raise(argument: str) -> None:
    _flood("")
    raise ValueError("after the flood")


def _flood_and_exit(argument: str) -> None:
    _flood("")
    os._exit(4)


def _break_protocol(argument: str) -> None:
    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):  # only a socket can be sent to
            socket.socket(fileno=os.dup(descriptor)).send(b"GET / HTTP/1.1\r\nHost: example\r\n\r\n")


_MISDEEDS: dict[str, Any] = {
    "value_error": lambda _: _raise(ValueError("a tensor of the wrong shape")),
    "not_supported": lambda _: _raise(NotSupported("no classes in this model")),
    "memory_error": lambda _: _raise(MemoryError()),
    "torch_memory_error": lambda _: _raise(OutOfMemoryError("Tried to allocate 2.00 GiB.")),
    "memory_error_below": _raise_from,
    "system_exit": lambda _: sys.exit(9),
    "segfault": lambda _: ctypes.string_at(0),
    "abort": lambda _: os.abort(),
    "exit": lambda code: os._exit(int(code)),
    "sigkill": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "hang": _hang,
    "hang_in_c": _hang_holding_the_interpreter,
    "fork_and_crash": _fork_and_crash,
    "fork_and_hang": _fork_and_hang,
    "flood": _flood_and_raise,
    "flood_and_exit": _flood_and_exit,
    "break_protocol": _break_protocol,
    "wrong_field": lambda _: ClassLogits((), EFFECTIVE, [[1.0]]),  # type: ignore[arg-type]
    "object": lambda _: object(),
}
