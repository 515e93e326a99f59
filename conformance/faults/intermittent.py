"""What goes wrong only now and then: rows, tiles and whole outputs of a kernel, and results handed to another prompt.

The calls that are hit are drawn from a generator that is seeded with the injection's text.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from conformance.faults import applies
from conformance.faults.fault import Fault
from conformance.faults.host import Host

TILE = 64


def _wrong_row(host: Host) -> None:
    def change(call: Any) -> Any:
        output = call.run().clone()
        output[host.chance(len(output))] *= 0.5
        return output

    host.attention(change)


def _stale_output(host: Host) -> None:
    earlier: dict[tuple[int, ...], Any] = {}

    def change(call: Any) -> Any:
        output = call.run()
        stale = earlier.get(tuple(output.shape))
        earlier[tuple(output.shape)] = output
        if not host.hits():
            return output
        return output * 0 if stale is None else stale.clone()

    host.attention(change, always=True)  # so that there is an earlier answer when a call is hit


def _unwritten_tile(host: Host) -> None:
    def change(call: Any) -> Any:
        output = call.run().clone()
        start = host.chance(-(-output.shape[1] // TILE)) * TILE
        output[host.chance(len(output)), start : start + TILE, host.chance(output.shape[2])] = 0
        return output

    host.attention(change)


def _swapped_results(host: Host) -> None:
    def answer(original: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        values = found.values.copy()
        for row in range(len(values) - 1):
            if host.hits():
                values[[row, row + 1]] = values[[row + 1, row]]
        return replace(found, values=values)

    for question in ("embed", "score_pairs", "classify", "reward", "token_logprobs"):
        host.wrap(host.runner, question, answer, always=True)


_kernel = partial(
    Fault,
    family="intermittent",
    suite="embedding",
    dtype="float32",
    model="embedding-qwen3",
    structural=False,
    scopes=("all", "middle"),
    applies=lambda config, role: None,
)

FAULTS = (
    _kernel(
        id="intermittent.wrong-row",
        description="In one kernel call in ten the output of one row of the batch is halved.",
        reference="Dao-AILab/flash-attention#2229",
        inject=_wrong_row,
        rate=0.1,
    ),
    _kernel(
        id="intermittent.stale-output",
        description="In one kernel call in ten the output is that of an earlier call of the same shape.",
        reference="intel/torch-xpu-ops#5179, pytorch/pytorch#192158",
        inject=_stale_output,
        rate=0.1,
    ),
    _kernel(
        id="intermittent.unwritten-tile",
        description="In one kernel call in ten 64 queries of one head are not written.",
        reference="intel/torch-xpu-ops#5179, flashinfer-ai/flashinfer#1533",
        suite="attention",
        dtype="bfloat16",
        model="generation-qwen3",
        inject=_unwritten_tile,
        rate=0.1,
    ),
    Fault(
        id="intermittent.swapped-results",
        family="intermittent",
        description="One result in twenty changes places with the next prompt's.",
        reference="vllm-project/vllm#39146",
        suite="rerank",
        dtype="float32",
        model="rerank-xlmr",
        structural=True,
        scopes=("all",),
        inject=_swapped_results,
        applies=applies.roles("embedding", "rerank", "classification", "reward"),
        rate=0.05,
    ),
)
