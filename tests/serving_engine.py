"""A toy engine that serves: it reads in chunks, keeps prefixes in blocks, has modes, and can do each of them wrongly.

What it computes of a prompt is a sum over its tokens, each weighed by its place, so that every token at every place
counts. Its rounding is noise of the size of the yardstick's error, which depends on the company in which it is asked.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from conformance.profile import Variation
from conformance.runner import Effective, ForcedLogprobs, Generations, Observation, Vectors

VARIANTS = {
    "chunked": Variation(options={"chunk": 64}),
    "prefix_cache": Variation(options={"block": 16}),
    "compiled": Variation(),
    "tp2": Variation(),
    "deterministic": Variation(exact=True),
}

SIZE, SPREAD = 256, 3.0
"""Numbers that are computed of a prompt, and what its logprobs are spread by."""


@dataclass
class ServingEngine:
    """`noise` is the rms of its rounding a value; `known` are its free texts; `faults` what it does wrongly."""

    noise: float
    ran: Effective
    tokenizer: Any
    known: Generations | None = None
    faults: frozenset[str] = frozenset()
    variant: str = ""
    _blocks: dict[Any, Any] = field(default_factory=dict)
    _forwards: int = 0
    _cached: int = 0

    def as_variant(self, name: str) -> ServingEngine:
        """The engine anew, in that variant."""
        return replace(self, variant=name, _blocks={})

    def embed(self, prompts: Sequence[str], *, dimensions: int | None = None) -> Observation:
        ids = [(*self.tokenizer.encode(prompt), self.tokenizer.end_ids[0]) for prompt in prompts]
        states = self._states(ids)
        return Vectors(tuple(ids), self._told(), states)

    def score_tokens(
        self, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]], candidates: Any, *, via: str
    ) -> Observation:
        heads = _table(candidates.ravel()).reshape(*candidates.shape, SIZE)
        pairs = list(zip(prompts, continuations, strict=True))
        first = self._states(list(prompts), SPREAD)
        cached = self._cached
        steps = [first, *(self._states([(*ids, *forced[:at]) for ids, forced in pairs], SPREAD) for at in range(1, 4))]
        self._cached = cached
        values = SPREAD * np.einsum("tnd,ntcd->ntc", np.stack(steps), heads)
        return ForcedLogprobs(tuple(tuple(ids) for ids in prompts), self._told(), values)

    def generate(self, prompts: Sequence[str], *, max_tokens: int) -> Observation:
        self._states([(*self.tokenizer.encode(prompt),) for prompt in prompts])
        assert self.known is not None
        ids = tuple(row[:max_tokens] for row in self.known.token_ids)
        if self.variant and f"other text when {self.variant}" in self.faults:
            ids = (tuple(token + 1 for token in ids[0]), *ids[1:])
        return replace(self.known, token_ids=ids, effective=self._told())

    def _told(self) -> Effective:
        tells = self.variant == "prefix_cache" and "does not tell" not in self.faults
        tells = tells or "always cached" in self.faults
        forwards, cached = self._forwards, self._cached * (1 + 9 * ("tells of too many" in self.faults))
        self._forwards = self._cached = 0
        kernels = {next(iter(self.ran.kernels)): self.ran.layers * forwards}
        return replace(self.ran, kernels=kernels, forwards=forwards, cached_tokens=cached if tells else None)

    def _states(self, rows: Sequence[Sequence[int]], spread: float = 1.0) -> Any:
        """What is computed of each prompt, float [n, 256] of unit length; `spread` is by how much it is still moved."""
        self._forwards += 1
        states = np.stack([self._state(tuple(map(int, ids))) for ids in rows])
        states /= np.linalg.norm(states, axis=1, keepdims=True)
        if "mixes rows" in self.faults and len(rows) > 8:
            states[:2] = states[1::-1].copy()
        for row, ids in enumerate(rows):
            company: Any = (self.variant, row, len(rows))
            if self.variant == "deterministic":
                company = (len(rows),) if "batch" in self.faults else (row,) if "order" in self.faults else ()
            times = 12.0 if f"rounds otherwise when {self.variant}" in self.faults else 0.4
            if "never rounds" not in self.faults:
                draw = np.random.default_rng(zlib.crc32(repr((company, tuple(ids))).encode()))
                states[row] += (
                    times * self.noise / (spread * np.sqrt(SIZE if spread > 1 else 1)) * draw.standard_normal(SIZE)
                )
        return states

    def _state(self, ids: tuple[int, ...]) -> Any:
        parts = _parts(ids).copy()
        if self.variant == "chunked" and "reads whole" not in self.faults:
            self._forwards += len(ids) // 64
            if "drops the last of a chunk" in self.faults:
                parts[63::64] = 0
            if "chunks apart" in self.faults:
                parts = parts[(len(ids) - 1) // 64 * 64 :]
        if self.variant == "prefix_cache" or "always cached" in self.faults:
            parts = self._through_cache(ids, parts)
        if self.variant == "tp2" and "one device" in self.faults:
            parts[:, SIZE // 2 :] = 0
        return _table(ids[-1:])[0] if "deaf" in self.faults else parts.sum(axis=0)

    def _through_cache(self, ids: tuple[int, ...], parts: Any) -> Any:
        block, whole = 16, 0
        if "reads none" not in self.faults:
            for start in range(0, (len(ids) - 1) // block * block, block):
                found = self._blocks.get(self._key(ids, start))
                if found is None:
                    break
                parts[start : start + block] = found
                whole = start + block
        self._cached += whole
        own = _parts(ids)
        if whole and "one too many" in self.faults:
            parts[whole] = self._blocks.get(("behind", self._key(ids, whole - block)), own[whole])
        for start in range(0, len(ids) // block * block, block):
            self._blocks[self._key(ids, start)] = own[start : start + block]
            if start + block < len(ids):
                self._blocks.setdefault(("behind", self._key(ids, start)), own[start + block])
        return parts

    def _key(self, ids: tuple[int, ...], start: int) -> Any:
        return start if "another prompt's block" in self.faults else ids[: start + 16]


@cache
def _parts(ids: tuple[int, ...]) -> Any:
    """What each token adds, float [tokens, 256]."""
    places = np.arange(len(ids))[:, None] * np.linspace(0.1, 1.3, SIZE)
    return _table(ids) * np.cos(places)


_TABLE: Any = np.random.default_rng(0).standard_normal((4096, SIZE))


def _table(ids: Any) -> Any:
    return _TABLE[np.asarray(ids) % len(_TABLE)]
