"""A runner whose model lives in a worker: the abstract runner's methods as calls, with a deadline each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from conformance.codec import ProtocolError
from conformance.execution.caller import RemoteCaller
from conformance.execution.deadline import Deadline
from conformance.execution.errors import ExecutionError
from conformance.execution.process import Worker, WorkerPool
from conformance.runner import (
    AttentionCall,
    AttentionOutputs,
    ClassLogits,
    ForcedLogprobs,
    Generations,
    LoadRequest,
    Message,
    Prompt,
    Runner,
    Scalars,
    TokenLogprobs,
    Vectors,
    VisionFeatures,
)

if TYPE_CHECKING:
    from conformance.runner import Integers

Answer = TypeVar("Answer")


class RemoteRunner(Runner):
    """A runner that lives in a worker of `pool`; `engine_class` names it there, as "module:Class".

    Entering starts the worker and loads the model within `load_seconds`; leaving releases it within `close_seconds`
    and ends the worker. Each call has `call_seconds`, or less where `deadline` (which the caller may set anew before
    each case) comes sooner. Besides the runner's own exceptions, calls raise those of `RemoteCaller.call`.
    """

    def __init__(
        self,
        request: LoadRequest,
        pool: WorkerPool,
        engine_class: str,
        *,
        load_seconds: float,
        call_seconds: float = math.inf,
        close_seconds: float = 30.0,
    ) -> None:
        super().__init__(request)
        self._pool = pool
        self._engine_class = engine_class
        self._load_seconds = load_seconds
        self._call_seconds = call_seconds
        self._close_seconds = close_seconds
        self._caller: RemoteCaller | None = None
        self.deadline = Deadline.never()
        self.last_facts: Mapping[str, Any] = {}

    @property
    def dead(self) -> str | None:
        """Why no call can be answered any more ("was killed by SIGSEGV while running embed"), or None."""
        return None if self._caller is None else self._caller.dead

    @property
    def worker(self) -> Worker:
        """The worker. Raises ExecutionError before the runner was entered."""
        return self._entered().worker

    def __enter__(self) -> RemoteRunner:
        self._caller = RemoteCaller(self._pool.start_worker())
        try:
            loaded = self._caller.call(
                "load", Deadline.after(self._load_seconds).or_sooner(self.deadline), self._engine_class, self.request
            )
            self.capabilities = frozenset(loaded["capabilities"])
        except BaseException:
            if self._caller.dead is None:
                self._caller.abandon("was killed because load failed")
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, raising what went wrong only where no other exception is on its way."""
        try:
            self.close()
        except Exception:
            if error is None:
                raise

    def close(self) -> Mapping[str, Any]:
        """Release the model and end the worker: its last facts, peak memory among them ({} if it is dead)."""
        if self._caller is not None and self._caller.dead is None:
            self.last_facts = self._caller.close(Deadline.after(self._close_seconds))
        return self.last_facts

    def facts(self, probe: str | None = None) -> Mapping[str, Any]:
        """The worker's `python`, `peak_resident_mib`, `peak_child_resident_mib`, and what the function `probe`
        ("module:function", no arguments, a table of plain values) adds there.
        """
        facts: Mapping[str, Any] = self._call("facts", dict, probe)
        return facts

    def embed(self, prompts: Sequence[str], *, dimensions: int | None = None) -> Vectors:
        """See `Runner.embed`."""
        return self._call("embed", Vectors, list(prompts), dimensions=dimensions)

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> Scalars:
        """See `Runner.score_pairs`."""
        return self._call("score_pairs", Scalars, [tuple(pair) for pair in pairs])

    def token_logprobs(self, prompts: Sequence[str], tokens: Sequence[int]) -> TokenLogprobs:
        """See `Runner.token_logprobs`."""
        return self._call("token_logprobs", TokenLogprobs, list(prompts), list(tokens))

    def classify(self, prompts: Sequence[str]) -> ClassLogits:
        """See `Runner.classify`."""
        return self._call("classify", ClassLogits, list(prompts))

    def reward(self, conversations: Sequence[Sequence[Message]]) -> Scalars:
        """See `Runner.reward`."""
        return self._call("reward", Scalars, [list(turns) for turns in conversations])

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
        """See `Runner.generate`."""
        return self._call(
            "generate",
            Generations,
            [prompt if isinstance(prompt, str) else list(prompt) for prompt in prompts],
            max_tokens=max_tokens,
            top_k=top_k,
            stop_token_ids=list(stop_token_ids),
            images=_lists(images),
            videos=_lists(videos),
        )

    def score_tokens(
        self,
        prompts: Sequence[Sequence[int]],
        continuations: Sequence[Sequence[int]],
        candidates: Integers,
        *,
        via: Literal["prefill", "decode"],
        images: Sequence[Sequence[Any]] | None = None,
        videos: Sequence[Sequence[Any]] | None = None,
    ) -> ForcedLogprobs:
        """See `Runner.score_tokens`."""
        ids = [_lists(sequence) for sequence in (prompts, continuations)]
        pictures = {"images": _lists(images), "videos": _lists(videos)}
        return self._call("score_tokens", ForcedLogprobs, *ids, candidates, via=via, **pictures)

    def vision_features(self, images: Sequence[Any], videos: Sequence[Any]) -> VisionFeatures:
        """See `Runner.vision_features`."""
        return self._call("vision_features", VisionFeatures, list(images), list(videos))

    def attention(self, calls: Sequence[AttentionCall], *, repeats: int = 1, poison: bool = False) -> AttentionOutputs:
        """See `Runner.attention`."""
        return self._call("attention", AttentionOutputs, list(calls), repeats=repeats, poison=poison)

    def _call(self, method: str, kind: type[Answer], *args: object, **kwargs: object) -> Answer:
        answer = self._entered().call(
            method, Deadline.after(self._call_seconds).or_sooner(self.deadline), *args, **kwargs
        )
        if type(answer) is not kind:
            raise ProtocolError(f"{method} answered {type(answer).__name__}, but should answer {kind.__name__}")
        return answer

    def _entered(self) -> RemoteCaller:
        if self._caller is None:
            raise ExecutionError("the runner was not entered, so nothing is loaded")
        return self._caller


def _lists(sequences: Sequence[Sequence[Any]] | None) -> list[list[Any]] | None:
    return None if sequences is None else [list(each) for each in sequences]
