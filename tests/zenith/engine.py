"""Zenith's engine: arithmetic for a model, and misdeeds that a profile's options ask for.

options = { misdeeds = { classify = "segfault" } }      # of a capability, of "load" or of "close"
options = { largest_batch = 8 }                          # runs out of memory above it
options = { longest_text = 4 }                           # refuses more new tokens
options = { single_calls = false }                       # calls no kernel alone
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, cast

import numpy as np

from conformance.runner import (
    RAISED,
    AttentionCall,
    AttentionOutputs,
    ClassLogits,
    Effective,
    Generations,
    NotSupported,
    Prompt,
    Runner,
    Scalars,
    TokenIds,
    Unavailable,
)

Answer = TypeVar("Answer")
KERNEL = {"plain": "zenith::plain", "quick": "zenith::quick"}


class ZenithRunner(Runner):
    capabilities = frozenset({"score_pairs", "classify", "generate", "attention"})

    def __enter__(self) -> ZenithRunner:
        if not self.request.options.get("single_calls", True):
            self.capabilities = self.capabilities - {"attention"}
        print(f"zenith loads {self.request.model}")
        self._note("load")
        self._do("load", None)
        batch, largest = self.request.options.get("batch_size", 32), self.request.options.get("largest_batch", 32)
        if batch > largest:
            raise MemoryError(f"a batch of {batch} does not fit; {largest} does")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do("close", None)
        self._note("close")

    def _note(self, what: str) -> None:
        """Write to the diary that ZENITH_DIARY names, if any, what is loaded and released, and as which variant."""
        if diary := os.environ.get("ZENITH_DIARY"):
            with Path(diary).open("a") as file:
                file.write(f"{what} {self.request.variant or 'usual'}\n")

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> Scalars:
        rows = _tokens([f"{first}\0{second}" for first, second in pairs])
        found = Scalars(rows, self._effective(), self._rounded(np.array([_number(row) for row in rows])))
        return self._do("score_pairs", found)

    def classify(self, prompts: Sequence[str]) -> ClassLogits:
        rows = _tokens(prompts)
        numbers = np.array([[_number((kind, *row)) for kind in range(3)] for row in rows])
        return self._do("classify", ClassLogits(rows, self._effective(), self._rounded(numbers)))

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
        if max_tokens > self.request.options.get("longest_text", max_tokens):
            raise ValueError(f"{max_tokens} tokens are too many for this engine")
        rows = _tokens([str(prompt) for prompt in prompts])
        ids = tuple(tuple((sum(row) + step) % 200 for step in range(max_tokens)) for row in rows)
        shape = (len(rows), max_tokens)
        found = Generations(
            rows,
            self._effective(),
            ids,
            tuple(" ".join(map(str, each)) for each in ids),
            ("length",) * len(rows),
            np.broadcast_to(np.array([[-0.1 - 0.01 * (sum(row) % 7)] for row in rows]), shape).copy(),
            np.stack([np.array(ids), np.array(ids) + 1], axis=-1)[..., :top_k],
            np.broadcast_to([-0.1, -2.4], (*shape, 2))[..., :top_k].copy(),
        )
        return self._do("generate", found)

    def attention(self, calls: Sequence[AttentionCall], *, repeats: int = 1, poison: bool = False) -> AttentionOutputs:
        # Not above: elsewhere a worker must do with numpy, and these two want what the suite itself requires.
        from conformance.criteria.attention_math import exact
        from conformance.criteria.rounding import rounded

        values = tuple(rounded(exact(call), self.request.dtype) for call in calls for _ in range(repeats))
        name = self.request.attention
        ran = Effective(self.request.dtype, name, {KERNEL.get(name, f"zenith::{name}"): len(values)}, 1, len(values))
        return self._do("attention", AttentionOutputs((), ran, values, ((),) * len(values)))

    def _do(self, occasion: str, found: Answer) -> Answer:
        name = self.request.options.get("misdeeds", {}).get(occasion)
        return found if name is None else cast("Answer", MISDEEDS[name](found))

    def _effective(self) -> Effective:
        attention = self.request.attention
        return Effective(self.request.dtype, attention, {KERNEL.get(attention, attention): 2}, layers=2, forwards=1)

    def _rounded(self, values: Any) -> Any:
        if self.request.dtype == "float64":
            return values
        return (values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)  # as bfloat16


def _tokens(texts: Sequence[str]) -> tuple[TokenIds, ...]:
    return tuple(tuple(text.encode()) for text in texts)


def _number(ids: Sequence[int]) -> float:
    return float(3 * np.sin(sum((place + 1) * token for place, token in enumerate(ids))))


def _raise(error: BaseException) -> Callable[[Any], Any]:
    def misdeed(_: Any) -> Any:
        raise error

    return misdeed


def _hang(_: Any) -> Any:
    while True:
        time.sleep(0.05)


def _dawdle(found: Any) -> Any:
    time.sleep(6.2)
    return found


def _wait_for_marker(found: Any) -> Any:
    while not Path(os.environ["ZENITH_MARKER"]).exists():
        time.sleep(0.02)
    return found


def _tell_secrets(_: Any) -> Any:
    raise ValueError(
        f"cannot log in with {os.environ['ZENITH_TOKEN']} from {os.environ['HOME']}/private/keys/of/zenith"
    )


def _write(variable: str, text: str) -> Callable[[Any], Any]:
    """Write the file that an environment variable names, and answer as if nothing were."""

    def write(found: Any) -> Any:
        Path(os.environ[variable]).write_text(text)
        return found

    return write


def _leave_orphan(found: Any) -> Any:
    """Leave a process that outlives the worker, in a session of its own; ZENITH_MARKER tells which."""
    child = os.fork()
    if child == 0:
        os.setsid()
        orphan = os.fork()
        if orphan == 0:
            time.sleep(600)
        else:
            Path(os.environ["ZENITH_MARKER"]).write_text(str(orphan))
        os._exit(0)
    os.waitpid(child, 0)
    return found


def _once(misdeed: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The misdeed of the first process that comes to it; the file that ZENITH_MARKER names tells the others."""

    def first(found: Any) -> Any:
        try:
            os.close(os.open(os.environ["ZENITH_MARKER"], os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return found
        return misdeed(found)

    return first


def _lose_device(misdeed: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The device goes (the file that ZENITH_GONE names appears) under the call."""

    def lose(found: Any) -> Any:
        Path(os.environ["ZENITH_GONE"]).touch()
        return misdeed(found)

    return lose


def _grey(found: Any) -> Any:
    """Half as much again as the rounding of the dtype: beyond the limit of 1.47, and not by a fifth."""
    exact = np.array([_number(row) for row in found.prompt_token_ids])
    return replace(found, values=exact + 1.5 * (found.values - exact))


def _at_first(misdeed: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A misdeed where the suite's own 160 pairs are asked, none where there are more."""
    return lambda found: misdeed(found) if len(found.values) <= 160 else found


def _then(misdeed: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Grey on the suite's own pairs, and the misdeed on fresh ones."""
    return lambda found: _grey(found) if len(found.values) <= 160 else misdeed(found)


def _need_device(found: Any) -> Any:
    return _hang(found) if Path(os.environ["ZENITH_GONE"]).exists() else found


MISDEEDS: dict[str, Callable[[Any], Any]] = {
    "raise": _raise(ValueError("the engine lost its way")),
    "out_of_memory": _raise(MemoryError("tried to allocate 2.00 GiB")),
    "not_supported": _raise(NotSupported("this build knows no colours")),
    "unavailable": _raise(Unavailable("this build needs a newer driver")),
    "segfault": lambda _: ctypes.string_at(0),
    "segfault_once": _once(lambda _: ctypes.string_at(0)),
    "exit_137": lambda _: os._exit(137),
    "hang": _hang,
    "dawdle": _dawdle,
    "hang_once": _once(_hang),
    "unavailable_once": _once(_raise(Unavailable("this build needs a newer driver"))),
    "need_device": _need_device,
    "wait_for_marker": _wait_for_marker,
    "lose_device_and_raise": _lose_device(_raise(RuntimeError("device lost"))),
    "lose_device_and_refuse": _lose_device(_raise(Unavailable("no zenith device is visible"))),
    "lose_device_and_hang": _lose_device(_hang),
    "lose_device_and_crash": _lose_device(lambda _: ctypes.string_at(0)),
    "tell_secrets": _tell_secrets,
    "leave_orphan": _leave_orphan,
    "keep_memory": _write("ZENITH_FREE", "3"),
    "spoil_device": _write("ZENITH_WRONG", ""),
    "raise_in_call": lambda found: replace(
        found, values=(np.zeros(0),), faults=((f"{RAISED}TypeError: no kernel for this [zenith.py, line 3]",),)
    ),
    "halve": lambda found: replace(found, values=tuple(value / 2 for value in found.values)),
    "nan": lambda found: replace(found, values=np.full_like(found.values, np.nan)),
    "off_by_a_third": lambda found: replace(found, values=found.values * 1.3),
    "grey": _grey,
    "grey_at_first": _at_first(_grey),
    "grey_then_segfault": _then(lambda _: ctypes.string_at(0)),
    "grey_then_raise": _then(_raise(ValueError("the engine lost its way"))),
    "grey_then_refuse": _then(_raise(NotSupported("this build knows no more colours"))),
    "grey_then_nan": _then(lambda found: replace(found, values=np.full_like(found.values, np.nan))),
    "other_kernel": lambda found: replace(found, effective=replace(found.effective, kernels={"zenith::slow": 2})),
    "other_dtype": lambda found: replace(found, effective=replace(found.effective, dtype="float32")),
}
