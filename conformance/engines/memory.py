"""How much memory a model takes, from its shape and the batches that the transformers runner forms.

Counted is what lives at once in the worst layer, in the worst batch: the tensors of the eager code of transformers,
counted one by one, without what an allocator adds. `tools/real_shapes.py` measures how far that is from the truth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from conformance.engines.batching import batches
from conformance.engines.shape import BYTES, WITH_LANGUAGE_HEAD, Shape, parameters
from conformance.workload import Workload

EAGER, FUSED, IDEAL = "eager", "fused", "ideal"
"""How attention is computed: with all scores in memory, in one kernel, or as the yardstick's ideal fused kernel."""

LONGER = 1.25
"""So much longer than in the embedded tokenizers' count a text may be in a model's own tokens."""

STEP = 32


@dataclass(frozen=True)
class Need:
    """Bytes that live at once: `weights`, and of the worst batch its `cache`, `logits` and other `activations`."""

    weights: int
    activations: int
    cache: int = 0
    logits: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.activations + self.cache + self.logits


@dataclass(frozen=True)
class Way:
    """How a model is run: `attention` is one of the kinds above, `on_host` says that the device is the CPU."""

    dtype: str
    attention: str
    on_host: bool
    batch_size: int = 32


@dataclass(frozen=True)
class Batch:
    """`rows` prompts padded to `length` tokens, `new_tokens` to follow each, with pictures of `patches` in all."""

    rows: int
    length: int
    new_tokens: int = 0
    patches: int = 0
    largest_picture: int = 0


@cache
def planned_need(shape: Shape, role: str, way: Way, workload: Workload, max_tokens: int | None) -> Need:
    """What the model needs for a workload, whatever the lengths of its prompts."""
    return need(shape, role, way, planned_batches(shape, workload, way, max_tokens))


def need(shape: Shape, role: str, way: Way, found: list[Batch]) -> Need:
    """What the model needs for these batches, one after the other: that of the worst."""
    weights = parameters(shape, role) * BYTES[way.dtype]
    needs = [_batch(shape, role, way, batch, weights) for batch in found]
    return max(needs, key=lambda each: each.total, default=Need(weights, 0))


def planned_batches(shape: Shape, workload: Workload, way: Way, max_tokens: int | None) -> list[Batch]:
    """Batches at least as large as any that the runner forms of the workload, whatever the lengths of its prompts."""
    longest = int(workload.longest * LONGER)
    limits = [limit for limit in (max_tokens, shape.positions) if limit]
    longest = min([longest, *limits])
    tokens = int(workload.tokens * LONGER)
    found = list(_largest(longest, tokens, way.batch_size, workload.new_tokens))
    if not workload.patches:
        return found
    alone = way.batch_size == 1  # else the largest picture may be in any batch, and all of the others with it
    patches = workload.largest_picture if alone else workload.patches
    return [replace(batch, patches=patches, largest_picture=workload.largest_picture) for batch in found]


def batches_of(lengths: list[int], way: Way, new_tokens: int = 0) -> list[Batch]:
    """The batches that the runner forms of prompts with these lengths."""
    formed = batches(lengths, way.batch_size, extra=new_tokens)
    return [Batch(len(batch), max(lengths[index] for index in batch), new_tokens) for batch in formed]


def _largest(longest: int, tokens: int, size: int, new_tokens: int) -> Iterator[Batch]:
    for length in {*range(STEP, longest, STEP), longest}:
        rows = len(next(batches([length] * size, size, extra=new_tokens)))
        yield Batch(max(1, min(rows, tokens // length)), length, new_tokens)


def _batch(shape: Shape, role: str, way: Way, batch: Batch, weights: int) -> Need:
    if not batch.new_tokens:
        return _pass(shape, role, way, batch, weights)
    width, new = BYTES[way.dtype], batch.new_tokens
    cached = 2 * shape.layers * shape.kv_heads * shape.head_size * width
    # The logprobs of one row at a time, in float64 on the host: the logits, their copy, and the answer.
    on_host = new * shape.vocabulary * 24 if way.on_host else 0
    free = _pass(shape, role, way, batch, weights)
    free = Need(
        weights,
        free.activations,
        cached * batch.rows * (batch.length + new),
        max(free.logits, new * batch.rows * shape.vocabulary * 4 + on_host),
    )
    at_once = next(batches([batch.length + new] * batch.rows, way.batch_size))
    whole = Batch(len(at_once), batch.length + new, 0, batch.patches, batch.largest_picture)
    forced = _pass(shape, role, way, whole, weights)
    logits = whole.rows * (new + 1) * shape.vocabulary * width + on_host
    forced = Need(weights, forced.activations, 0, logits)
    return max(free, forced, key=lambda each: each.total)


def _pass(shape: Shape, role: str, way: Way, batch: Batch, weights: int) -> Need:
    """One pass over the prompts."""
    width, tokens = BYTES[way.dtype], batch.rows * batch.length
    residual = 2 * tokens * shape.hidden * width
    mask = batch.rows * batch.length**2 * (width + 1)
    layer = max(_attention(shape, way, batch), _mlp(shape, width) * tokens)
    output = 0
    if role.startswith("embedding"):  # the last hidden states, and their float32 copies for pooling
        output = tokens * shape.hidden * (width + 8)
    logits = 0
    if role in WITH_LANGUAGE_HEAD:
        logits = batch.rows * shape.vocabulary * (width + (16 if way.on_host else 0))
    text = residual + mask + layer + batch.patches * shape.hidden * width  # the tower's output waits beside it
    return Need(weights, max(text, output, _tower(shape, way, batch)), 0, logits)


def _tower(shape: Shape, way: Way, batch: Batch) -> int:
    """The vision tower: one sequence of patches, in which each picture attends to itself; rotary is in float32."""
    vision, width = shape.vision, BYTES[way.dtype]
    if vision is None or not batch.patches:
        return 0
    pixels = vision.channels * vision.frames * vision.patch**2 * (width + 4)
    rotated = 3 * vision.hidden * width + 6 * vision.hidden * max(4, width)
    layer = max(rotated, 2 * vision.hidden * vision.ratio * width)
    scores = vision.heads * batch.largest_picture**2 * _score_bytes(way)
    return batch.patches * (pixels + 2 * vision.hidden * width + layer) + scores


def _mlp(shape: Shape, width: int) -> int:
    """Bytes a token: a gated one holds the gate's activation, the other half, and their product."""
    copies = 2 if shape.is_encoder else 3
    return (copies * shape.intermediate + shape.hidden) * width


def _attention(shape: Shape, way: Way, batch: Batch) -> int:
    """Query, keys and values with keys and values repeated for every head, the output, and the scores."""
    width, tokens = BYTES[way.dtype], batch.rows * batch.length
    repeated = 0 if shape.kv_heads == shape.heads else 2 * shape.heads
    copies = 2 * shape.heads + 2 * shape.kv_heads + repeated
    scores = batch.rows * shape.heads * batch.length**2
    return tokens * copies * shape.head_size * width + scores * _score_bytes(way)


def _score_bytes(way: Way) -> int:
    width = BYTES[way.dtype]
    if way.attention == FUSED:
        return 0
    if way.attention == IDEAL:
        return 22  # float32 scores, their float64 copy and softmax, and the probabilities in the dtype
    if width >= 4:
        return 2 * width  # the scores and their softmax
    # Scores, their softmax in float32 (on a CPU its input too), and that in the dtype.
    return 2 * width + 4 if not way.on_host else max(2 * width + 4, width + 8)
