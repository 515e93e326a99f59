"""Rows of forced tokens, in the process of a vLLM worker: what is put in a sampled token's place, and what is read.

`Forced` is a logits processor, which vLLM is told of as text (`logits_processors`). Releases have one or two runners of
models, with an interface each, and choose between them by device; it is written for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

try:
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as SlotLogitsProcessor
except ImportError:  # a release without the second runner
    SlotLogitsProcessor = object

ROW = "conformance_row"
"""The key of a request's `extra_args` that says which of the forced rows it is."""


@dataclass
class Row:
    """One prompt with forced tokens: where the first of them stands, the tokens, and the ids to score at each."""

    first: int  # so many tokens has the prompt
    tokens: Sequence[int]
    candidates: Sequence[Sequence[int]]
    is_prefilled: bool  # the tokens are part of what is prefilled, so none is to be put in a sampled one's place
    found: dict[int, list[float]] = field(default_factory=dict)  # position among the forced tokens -> logprobs

    def read(self, position: int, logits: torch.Tensor) -> None:
        """Keep the logprobs of a position's candidates; `logits` are [vocabulary]."""
        # In float64 on the CPU: the rounding under test is the model's, not that of this function.
        logprobs = torch.log_softmax(logits.to("cpu", torch.float64), dim=-1)
        self.found[position] = logprobs[torch.tensor(self.candidates[position])].tolist()


ROWS: dict[int, Row] = {}
"""The rows of the question in hand, of this process."""


def reading(runner: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """vLLM's own reading of prompt logprobs, which gives the best ids alone, and beside it that of the candidates."""

    def read(hidden: torch.Tensor, scheduled: Mapping[str, int]) -> Any:
        for name, tokens in scheduled.items() if ROWS else ():
            request = runner.requests[name]
            row = _row(request.sampling_params)
            if row is None or not row.is_prefilled:
                continue
            start = request.num_computed_tokens
            offset = int(runner.query_start_loc.np[runner.input_batch.req_id_to_index[name]]) - start
            begin = max(row.first - 1, start)
            end = min(row.first - 1 + len(row.tokens), start + tokens)
            if begin < end:
                logits = runner.model.compute_logits(hidden[offset + begin : offset + end])
                for at, each in enumerate(logits, start=begin - row.first + 1):
                    row.read(at, each)
        return original(hidden, scheduled)

    return read


class Forced(LogitsProcessor, SlotLogitsProcessor):  # type: ignore[misc]
    """Reads the unmodified logits of the rows, then leaves one token possible."""

    def __init__(self, vllm_config: Any, *_: Any) -> None:
        # The first runner's place in the batch, or the second's slot -> row, and the tokens so far.
        self._running: dict[int, tuple[Row, list[int]]] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """The first runner's news of who is in the batch."""
        process_dict_updates(self._running, batch_update, _started)

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """The second runner's news of who is in a slot."""
        self._running.pop(req_idx, None)
        started = _started(sampling_params, None, [])
        if started is not None:
            self._running[req_idx] = started
        return started is not None

    def apply(self, logits: torch.Tensor, ctx: Any = None) -> torch.Tensor:
        if ctx is None:
            for place, (row, so_far) in self._running.items():
                self._force(logits, place, row, len(so_far))
            return logits
        for place, (slot, position) in enumerate(zip(ctx.expanded_idx_mapping.tolist(), ctx.pos.tolist(), strict=True)):
            if slot in self._running:
                row, _ = self._running[slot]
                self._force(logits, place, row, position - row.first + 1)
        return logits

    def _force(self, logits: torch.Tensor, place: int, row: Row, at: int) -> None:
        if 0 <= at < len(row.tokens):
            row.read(at, logits[place])
            logits[place] = float("-inf")
            logits[place, row.tokens[at]] = 0.0


def _started(params: Any, _: list[int] | None, so_far: list[int]) -> tuple[Row, list[int]] | None:
    row = _row(params)
    return None if row is None or row.is_prefilled else (row, so_far)


def _row(params: Any) -> Row | None:
    return ROWS.get((getattr(params, "extra_args", None) or {}).get(ROW, -1))
