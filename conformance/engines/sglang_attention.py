"""SGLang's attention backends called alone: its own pools, layers and batches, without a scheduler or a model.

The backend is built in this very process from server arguments that SGLang resolved, on pools of its own that
`paged_calls` lays out; requests stand in the pool of requests in no order. Keys are written by the pool's own write:
those before the call's queries as an earlier step wrote them, those of the queries by the layer. Bidirectional calls
are whole sequences, as those of SGLang's encoders.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from conformance.engines.kernel_calls import perform
from conformance.engines.paged_calls import Packed, Pages, counted, filled_up, lay_out, on, poisoned
from conformance.names import unknown
from conformance.runner import AttentionCall, AttentionOutputs, LoadRequest, Unavailable

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NO_WINDOW = -1
_SHAPES_KEPT = 64
_ALONE = {"attn_tp_size": 1, "attn_dcp_rank": 0}
"""What a process says of itself that computes attention alone; SGLang asks for it even so."""
_SPARE = 7
"""Entries of a request's table behind its longest row's keys."""


class SglangAttention:
    """The attention backend of a request, whose `options` are SGLang's server arguments.

    Raises Unavailable where this SGLang knows no attention backend of that name.
    """

    def __init__(self, request: LoadRequest) -> None:
        from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS

        if request.attention not in ATTENTION_BACKENDS:
            raise Unavailable(unknown("attention backend of SGLang", request.attention, ATTENTION_BACKENDS))
        self._request = request
        self._dtype = getattr(torch, request.dtype)
        self._resolved = lru_cache(_SHAPES_KEPT)(self._resolve)
        self._ran: Counter[tuple[str, str]] = Counter()  # calls answered, by backend's name and class

    def answers(self, calls: Sequence[AttentionCall], *, repeats: int = 1, poison: bool = False) -> AttentionOutputs:
        """See `Runner.attention`."""
        self._ran.clear()
        values, faults = perform(
            calls, self, device=self._request.device, dtype=self._dtype, repeats=repeats, poison=poison
        )
        return AttentionOutputs((), counted(self._ran, self._request.dtype, faults), values, faults)

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, call: AttentionCall
    ) -> torch.Tensor:
        """The output, [batch, heads, queries, size]."""
        if call.causal or call.window is not None:
            return self._answer(query, key, value, call, Packed.of(call))
        every = filled_up(query, key.shape[2])
        return self._answer(every, key, value, call, Packed.whole(call))[:, :, key.shape[2] - query.shape[2] :]

    def _answer(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, call: AttentionCall, rows: Packed
    ) -> torch.Tensor:
        from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
        from sglang.srt.mem_cache.memory_pool import KVWriteLoc
        from sglang.srt.model_executor.forward_context import ForwardContext, forward_context
        from sglang.srt.runtime_context import get_context, get_parallel

        arguments = self._resolved(query.shape[1], key.shape[1], query.shape[3], call.page_size)
        get_context().set_server_args(arguments)
        name, page_size = _resolution(arguments, decodes=rows.decodes)
        if call.page_size not in (None, page_size):
            raise ValueError(f"SGLang gives {name} pages of {page_size}, not of {call.page_size}")
        pages = lay_out(rows.lengths, page_size)
        with get_parallel().override(**_ALONE):
            runner = self._runner(arguments, pages, key, call)
            backend = ATTENTION_BACKENDS[name](runner)
        requests = np.arange(len(rows.lengths), 0, -1)  # the first row stands last; SGLang keeps 0 for padding
        table = runner.req_to_token_pool.req_to_token
        table.fill_(pages.nobodys * page_size)
        starts = [0] * len(rows.lengths)
        every = on(table.device, pages.slots(starts, rows.lengths), table.dtype)
        for request, slots in zip(requests, torch.split(every, list(rows.lengths)), strict=True):
            table[request, : len(slots)] = slots
        layer = _layer(query, key, call)
        if any(rows.before):
            slots = on(query.device, pages.slots(starts, rows.before), torch.int64)
            keys, values = (rows.keys(each, starts, rows.before) for each in (key, value))
            runner.token_to_kv_pool.set_kv_buffer(layer, KVWriteLoc(slots, None), keys, values)
        batch = _batch(rows, pages, requests, query.device)
        runner.kv_index_translator.bind_own_plan(batch)
        tokens = [rows.queries(query), *(rows.keys(each, rows.before, rows.lengths) for each in (key, value))]
        with get_parallel().override(**_ALONE), forward_context(ForwardContext(attn_backend=backend)):
            backend.init_forward_metadata(batch)
            answer = layer(*(each.flatten(1) for each in tokens), batch)
        self._ran[name, f"{type(backend).__module__}.{type(backend).__qualname__}"] += 1
        return rows.unpacked(answer, query.shape)

    def _resolve(self, heads: int, kv_heads: int, size: int, page_size: int | None) -> Any:
        """Server arguments for a model with such heads, as SGLang resolved them."""
        from sglang.srt.server_args import ServerArgs

        options = {name: value for name, value in self._request.options.items() if name != "batch_size"}
        if page_size is not None:
            options["page_size"] = page_size
        shape = {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": size}
        given = json.loads(options.pop("json_model_override_args", "{}"))
        arguments = ServerArgs(
            model_path=self._request.folder,
            device=self._request.device,
            dtype=self._request.dtype,
            attention_backend=self._request.attention,
            json_model_override_args=json.dumps({**given, **shape}),
            **options,
        )
        arguments.resolve_once()
        return arguments

    def _runner(self, arguments: Any, pages: Pages, key: torch.Tensor, call: AttentionCall) -> Any:
        """What backends read of SGLang's model runner, with pools but without a model."""
        from sglang.srt.configs.model_config import ModelConfig
        from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool
        from sglang.srt.model_executor.model_runner import ModelRunner
        from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

        device = self._request.device
        runner = ModelRunner.__new__(ModelRunner)
        runner.server_args = arguments
        runner.device, runner.gpu_id, runner.dtype = device, 0, self._dtype
        runner.kv_cache_dtype, runner.kv_cache_dtype_str = self._dtype, "auto"
        runner.model_config = ModelConfig.from_server_args(arguments)
        runner.model = torch.nn.Module()
        runner.page_size = pages.size
        runner.is_draft_worker, runner.draft_attention_backend = False, None
        runner.spec_algorithm = SpeculativeAlgorithm.NONE
        runner.use_mla_backend, runner.init_new_workspace = False, False
        runner.is_hybrid_swa, runner.attention_chunk_size, runner.hisparse_coordinator = False, None, None
        runner.sliding_window_size = None if call.window is None else call.window - 1
        runner.req_to_token_pool = ReqToTokenPool(
            size=len(pages.lengths),
            max_context_len=max(pages.lengths) + _SPARE,
            device=device,
            enable_memory_saver=False,
        )
        pool = MHATokenToKVPool(
            size=(pages.count - 1) * pages.size,  # SGLang adds a page for padding
            page_size=pages.size,
            dtype=self._dtype,
            head_num=key.shape[1],
            head_dim=key.shape[3],
            layer_num=1,
            device=device,
            enable_memory_saver=False,
        )
        for buffer in (pool.get_key_buffer(0), pool.get_value_buffer(0)):
            poisoned(buffer.view(pages.count, pages.size, *buffer.shape[1:]), pages)
        runner.token_to_kv_pool = pool
        runner.token_to_kv_pool_allocator = SimpleNamespace(page_size=pages.size, get_kvcache=lambda: pool)
        runner.init_kv_index_translator()
        return runner


def _resolution(arguments: Any, *, decodes: bool) -> tuple[str, int]:
    """The attention backend that SGLang resolved for such a step, and the page size."""
    from sglang.srt.arg_groups.overrides import attention_backends_of, resolved_view

    view = resolved_view(arguments)
    prefill, decode = attention_backends_of(view)
    return str(decode if decodes else prefill), int(view.page_size)


def _layer(query: torch.Tensor, key: torch.Tensor, call: AttentionCall) -> Any:
    from sglang.srt.layers.radix_attention import AttentionType, RadixAttention

    bidirectional = not call.causal and call.window is None
    return RadixAttention(
        num_heads=query.shape[1],
        head_dim=query.shape[3],
        scaling=query.shape[3] ** -0.5 if call.scale is None else call.scale,
        num_kv_heads=key.shape[1],
        layer_id=0,
        logit_cap=call.softcap or 0.0,
        sliding_window_size=_NO_WINDOW if call.window is None else call.window - 1,  # SGLang counts those before
        attn_type=AttentionType.ENCODER_ONLY if bidirectional else AttentionType.DECODER,
    )


def _batch(rows: Packed, pages: Pages, requests: NDArray[Any], device: torch.device) -> Any:
    """A step of these rows."""
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode

    spans = list(zip(rows.before, rows.lengths, strict=True))
    batch = ForwardBatch(
        forward_mode=ForwardMode.DECODE if rows.decodes else ForwardMode.EXTEND,
        batch_size=len(rows.lengths),
        input_ids=torch.zeros(sum(rows.counts), dtype=torch.int64, device=device),
        req_pool_indices=on(device, requests, torch.int64),
        seq_lens=on(device, rows.lengths, torch.int64),
        seq_lens_cpu=torch.tensor(rows.lengths),
        out_cache_loc=on(device, pages.slots(rows.before, rows.lengths), torch.int64),
        seq_lens_sum=sum(rows.lengths),
        positions=torch.cat([torch.arange(start, stop) for start, stop in spans]).to(device),
    )
    if not rows.decodes:
        batch.extend_num_tokens = sum(rows.counts)
        batch.extend_prefix_lens = on(device, rows.before, torch.int32)
        batch.extend_prefix_lens_cpu = list(rows.before)
        batch.extend_seq_lens = on(device, rows.counts, torch.int32)
        batch.extend_seq_lens_cpu = list(rows.counts)
        starts = np.concatenate([[0], np.cumsum(rows.counts)[:-1]])
        batch.extend_start_loc = on(device, starts, torch.int32)
    return batch
