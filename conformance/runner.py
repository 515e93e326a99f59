"""The abstract runner: one loaded model on one engine, and what it answers. Read this file first.

A suite calls a runner and gets observations; it never sees a device, an engine or a kernel. An adapter in
`conformance/engines/` implements `Runner` for one engine and announces itself through the entry-point group
`conformance.engines`. An adapter implements what its engine can do and names that in `capabilities`; asking for
anything else raises `NotSupported`, which can never count as a pass.

All logprobs are natural logarithms, of the unmodified distribution (temperature 1, no penalties).
All arrays are numpy arrays; n is the number of prompts, in the order in which they were given.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]
    Integers = NDArray[np.integer[Any]]

TokenIds = tuple[int, ...]
Grid = tuple[int, int, int]
"""What a vision tower sees of a picture or video: temporal patches, rows and columns of patches, before merging."""
Prompt = Union[str, Sequence[int]]  # text that the engine tokenises itself, or token ids used as they are


Evidence = Literal["counted", "resolved", "undisclosed"]
"""How it is known what ran: seen call by call, read from what the engine resolved, or not at all."""


class Message(TypedDict):
    """One turn of a conversation."""

    role: str
    content: str


class NotSupported(Exception):
    """The engine cannot do what was asked; the message says what and why."""


class Unavailable(Exception):
    """This machine cannot run what was asked (no such device, a package too old); the message says what is missing."""


class EngineGone(Exception):
    """The engine that a runner asks, in a process that is not its own, cannot be reached any more; it has crashed."""


@dataclass(frozen=True)
class LoadRequest:
    """What a runner loads, and how it is to run it."""

    model: str  # the catalogue's name
    folder: str  # a local folder with config, tokenizer and safetensors
    role: str  # what the model is loaded for, e.g. "rerank.decoder"
    device: str  # torch device type: "cpu", "cuda", "xpu" ...
    attention: str  # attention backend as the engine spells it
    dtype: str  # "float32", "bfloat16" or "float16"
    parameters: Mapping[str, Any] = field(default_factory=dict)  # of the model: pooling, max_tokens ...
    options: Mapping[str, Any] = field(default_factory=dict)  # of the engine
    vision_attention: str = ""  # of the vision tower, where it is not to be `attention`
    axes: Mapping[str, str] = field(default_factory=dict)  # of the target, but the vision tower's; in options already
    variant: str = ""  # which of the engine's other ways of computing this is; in options and environment already
    matmul: str = "ieee"  # what float32 products of matrices are claimed to be: "ieee" or "tf32"
    convolution: str = "ieee"  # the same for convolutions


@dataclass(frozen=True)
class VisionEffective:
    """What really ran in the vision tower: `layers` x `sequences` attention calls.

    A sequence is a picture, or a temporal patch of a video, within which patches attend to each other; an engine
    that attends to all of a batch in one call counts the calls.
    """

    attention: str
    layers: int
    sequences: int


@dataclass(frozen=True)
class Effective:
    """What really ran, as the engine resolved it; a case fails where this is not what was requested.

    `kernels` counts the attention kernels that were seen, by operator name; `layers` x `forwards` is how many
    attention calls the model made, so each of them must be accounted for by one kernel, and each of the vision
    tower's by another. `vision` is None for a model that has no vision tower, or whose tower did not run.

    `evidence` says how it is known: "counted", every call was seen as it was made; "resolved", where an engine computes
    in processes that nobody can look into, `kernels` counts the layers by the class that the engine resolved for them,
    with one forward pass; "undisclosed", the engine tells nobody, `kernels` is empty, and dtype and attention backend
    are what was requested.

    `cached_tokens` are those of all prompts of the call that were not computed, because a cache had them from earlier
    calls; 0 where the engine reads none, None where it does not tell.
    """

    dtype: str
    attention: str
    kernels: Mapping[str, int]
    layers: int
    forwards: int
    vision: VisionEffective | None = None
    evidence: Evidence = "counted"
    cached_tokens: int | None = None


@dataclass(frozen=True)
class Observation:
    """What every answer carries: the prompt token ids that were really used, one tuple a prompt, and what ran."""

    prompt_token_ids: tuple[TokenIds, ...]
    effective: Effective


@dataclass(frozen=True)
class Vectors(Observation):
    """One embedding a prompt: `values` is float [n, dimensions]."""

    values: Floats


@dataclass(frozen=True)
class Scalars(Observation):
    """One raw score (a logit, not a probability) a prompt: `values` is float [n]."""

    values: Floats


@dataclass(frozen=True)
class ClassLogits(Observation):
    """Raw class logits: `values` is float [n, classes]."""

    values: Floats


@dataclass(frozen=True)
class TokenLogprobs(Observation):
    """Logprobs of named tokens at the position after the prompt: `values` is float [n, tokens]."""

    values: Floats


@dataclass(frozen=True)
class Generations(Observation):
    """Greedy text. Ragged: `token_ids[i]` are the generated ids of prompt i, the end token included where one came.

    `logprobs` is float [n, longest], the logprob of each generated token; `top_ids` (int) and `top_logprobs`
    (float) are [n, longest, k], best first. Beyond a prompt's own length the floats are NaN and the ids -1.
    `finish_reasons` are "stop" (an end or stop token came) or "length". `texts` are decoded without end tokens.
    `grids[i]` are those of prompt i's images, then of its videos; empty where none were given.
    """

    token_ids: tuple[TokenIds, ...]
    texts: tuple[str, ...]
    finish_reasons: tuple[str, ...]
    logprobs: Floats
    top_ids: Integers
    top_logprobs: Floats
    grids: tuple[tuple[Grid, ...], ...] = ()


@dataclass(frozen=True)
class ForcedLogprobs(Observation):
    """Teacher-forced logprobs of chosen candidate ids: `values` is float [n, positions, candidates]."""

    values: Floats


@dataclass(frozen=True)
class VisionFeatures(Observation):
    """What the vision tower hands to the text model: `values` is float [patches, width].

    Merged patches of all pictures one after another, images first, then videos; within each in reading order, time
    first. `grids` are the pictures', before merging. There are no prompts, so no prompt token ids.
    """

    values: Floats
    grids: tuple[Grid, ...]


@dataclass(frozen=True)
class AttentionCall:
    """One call of an attention kernel, as an engine's model would make it.

    `query` is float [batch, heads, queries, size], `key` and `value` are [batch, kv_heads, keys, size]; heads is a
    multiple of kv_heads, and query head h reads key head h // (heads // kv_heads). All numbers are numbers of the
    served dtype. Of row b the first `lengths[b]` keys count, all where `lengths` is None; the rest is padding. The
    queries are the last of their row's keys, so query i stands at position lengths[b] - queries + i, and where that is
    negative it is padding too, whose output means nothing.

    An engine whose kernels read a cache in pages lays the keys and values out in pages of `page_size`, wherever they
    may lie; a kernel without pages cannot be asked for one.
    """

    query: Floats
    key: Floats
    value: Floats
    causal: bool = True  # a query sees no key behind its own position
    scale: float | None = None  # of the scores; 1 / sqrt(size) where None
    window: int | None = None  # a query sees the keys at most window - 1 positions before its own, and none behind
    softcap: float | None = None  # scores become softcap * tanh(scores / softcap), before the mask
    lengths: tuple[int, ...] | None = None
    page_size: int | None = None  # keys a page; where None, the engine's own choice, pages or none


@dataclass(frozen=True)
class AttentionOutputs(Observation):
    """What kernel calls returned: `values[i]` is float [batch, heads, queries, size] of call i, as it was returned.

    There are no prompts, so no prompt token ids. `effective` counts one layer and one forward a call. `faults[i]` says
    in a sentence each what is wrong with the answer before any number is: its shape, dtype or device, an input that was
    written to, or what was raised; where it has another shape, `values[i]` holds what there is, if only nothing.
    """

    values: tuple[Floats, ...]
    faults: tuple[tuple[str, ...], ...]


RAISED = "raised "
"""How the sentence of `AttentionOutputs.faults` begins that says what a kernel raised instead of answering."""


class Runner(abc.ABC):
    """One loaded model. A context manager: entering loads, leaving releases the device's memory.

    Every method may raise `NotSupported`. An engine's own exceptions pass through: they are findings. What is asked in
    one call is asked at once: an engine that schedules gets all of it, and a server as concurrent requests.
    """

    capabilities: frozenset[str] = frozenset()
    """The names of the methods below that this adapter implements."""

    def __init__(self, request: LoadRequest) -> None:
        self.request = request

    @abc.abstractmethod
    def __enter__(self) -> Runner:
        """Load the model onto the device."""

    @abc.abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the model and the memory it held."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a run should say of this runner at its end, though no case failed for it: what was tried again."""
        return ()

    def embed(self, prompts: Sequence[str], *, dimensions: int | None = None) -> Vectors:
        """Unit-normalised embeddings; with `dimensions`, cut to that many and normalised again (matryoshka).

        Prompts longer than the model are cut as its tokenizer cuts them.
        """
        raise self._lacks("embed")

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> Scalars:
        """A cross-encoder's raw logit for each (query, document)."""
        raise self._lacks("score_pairs")

    def token_logprobs(self, prompts: Sequence[str], tokens: Sequence[int]) -> TokenLogprobs:
        """Logprobs of `tokens` at the next position: what a yes/no reranker scores by."""
        raise self._lacks("token_logprobs")

    def classify(self, prompts: Sequence[str]) -> ClassLogits:
        """Raw class logits."""
        raise self._lacks("classify")

    def reward(self, conversations: Sequence[Sequence[Message]]) -> Scalars:
        """One raw scalar a conversation, the model's chat template applied."""
        raise self._lacks("reward")

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
        """Greedy generation of at most `max_tokens` tokens, with the `top_k` logprobs of every position.

        It ends after the model's own end-of-text token or one of `stop_token_ids`. `images` and `videos` give
        each prompt's, as uint8 arrays [height, width, 3] and [frames, height, width, 3], RGB. A text names each by
        one placeholder token; ids, which are used as they are, repeat it once for every merged patch, as the
        `prompt_token_ids` of an observation do. ValueError where placeholders and pictures do not go together.
        """
        raise self._lacks("generate")

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
        """Logprobs of `candidates` ([n, positions, candidates] ids) where `continuations` are forced.

        Position t is the distribution from which continuation token t would be drawn. `via="prefill"` reads all
        positions from one pass over prompt and continuation; `via="decode"` feeds the continuation one token at a
        time through the KV cache, all prompts as one ragged batch. Images and videos as in `generate`.
        """
        raise self._lacks("score_tokens")

    def vision_features(self, images: Sequence[Any], videos: Sequence[Any]) -> VisionFeatures:
        """The vision tower's output for images, uint8 [height, width, 3], and videos, [frames, height, width, 3]."""
        raise self._lacks("vision_features")

    def attention(self, calls: Sequence[AttentionCall], *, repeats: int = 1, poison: bool = False) -> AttentionOutputs:
        """The attention kernel that the model's layers call, called for each of `calls`, one after the other.

        With `repeats`, each call is made so often, and `values` holds all answers to the first call, then to the next.
        With `poison`, freed memory of an output's size is filled with NaN before every call, so that what a kernel does
        not write shows.
        """
        raise self._lacks("attention")

    def _lacks(self, capability: str) -> NotSupported:
        return NotSupported(
            f"{type(self).__name__} does not offer {capability!r}; it offers {sorted(self.capabilities)}"
        )
