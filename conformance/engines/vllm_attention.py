"""vLLM's attention backends called alone: its own layers, caches and metadata, without a model around them.

For each shape of a call a layer is made as vLLM's models make theirs, so that vLLM chooses the backend, and its cache
is laid out by `paged_calls`. Keys are written by the backend's own cache update: those before the call's queries as an
earlier step wrote them, then those of the queries. Bidirectional calls go to the layer of encoders, which has no cache.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from conformance.engines.kernel_calls import perform
from conformance.engines.paged_calls import Packed, Pages, counted, filled_up, lay_out, on, poisoned
from conformance.runner import AttentionCall, AttentionOutputs, LoadRequest, Unavailable

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LAYER = "attention.0"  # vLLM reads the layer's number from its name
_SHAPES_KEPT = 64


class Shape(NamedTuple):
    """What a layer is made for."""

    heads: int
    kv_heads: int
    size: int
    scale: float
    window: int | None
    softcap: float | None
    bidirectional: bool
    page_size: int | None


@dataclasses.dataclass(frozen=True)
class _Layer:
    """A layer that vLLM made, its configuration, and what its metadata and cache are made by."""

    config: Any
    layer: Any
    builder: Any
    page_size: int

    @property
    def backend(self) -> Any:
        """The attention backend that vLLM resolved."""
        return self.layer.attn_backend


class VllmAttention:
    """The attention backend of a request; `arguments` are vLLM's engine arguments for it.

    Raises Unavailable where this vLLM's attention backends do not say how their caches are laid out.
    """

    def __init__(self, request: LoadRequest, arguments: Mapping[str, Any]) -> None:
        from vllm.v1.attention.backend import AttentionBackend

        if not hasattr(AttentionBackend, "supported_kv_cache_layouts"):
            raise Unavailable(
                "this vLLM's attention backends cannot be called alone: they do not say how their caches are laid out "
                "(supported_kv_cache_layouts, which vLLM 0.32 has)"
            )
        self._request, self._arguments = request, dict(arguments)
        self._device = torch.device(request.device)
        self._dtype = getattr(torch, request.dtype)
        self._made = lru_cache(_SHAPES_KEPT)(self._make)
        self._ran: Counter[tuple[str, str]] = Counter()  # calls answered, by backend and kernel
        self._kernels: list[str] = []  # of the step in hand

    def answers(self, calls: Sequence[AttentionCall], *, repeats: int = 1, poison: bool = False) -> AttentionOutputs:
        """See `Runner.attention`."""
        self._ran.clear()
        values, faults = perform(calls, self, device=self._device, dtype=self._dtype, repeats=repeats, poison=poison)
        return AttentionOutputs((), counted(self._ran, self._request.dtype, faults), values, faults)

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, call: AttentionCall
    ) -> torch.Tensor:
        """The output, [batch, heads, queries, size]."""
        bidirectional = not call.causal and call.window is None
        heads, size = query.shape[1], query.shape[3]
        scale = size**-0.5 if call.scale is None else call.scale
        shape = Shape(heads, key.shape[1], size, scale, call.window, call.softcap, bidirectional, call.page_size)
        made = self._made(shape)
        with self._current(made.config):
            if bidirectional:
                every = filled_up(query, key.shape[2])
                answer = self._at_once(made, every, key, value, Packed.whole(call))
                answer = answer[:, :, key.shape[2] - query.shape[2] :]
            else:
                answer = self._from_pages(made, query, key, value, Packed.of(call))
        self._ran.update((made.backend.get_name(), kernel) for kernel in self._kernels)
        return answer

    def _from_pages(
        self, made: _Layer, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rows: Packed
    ) -> torch.Tensor:
        pages = lay_out(rows.lengths, made.page_size)
        cache = poisoned(self._cache(made, pages, key.shape[1], key.shape[3]), pages)
        earlier = [row for row, before in enumerate(rows.before) if before]
        if earlier:
            starts, stops = [0] * len(rows.lengths), rows.before
            keys, values = (rows.keys(each, starts, stops) for each in (key, value))
            slots = on(self._device, pages.slots(starts, stops), torch.int64)
            if made.backend.forward_includes_kv_cache_update:
                only = [rows.before[row] for row in earlier]
                step = self._metadata(made, only, only, pages.tables[earlier], slots)
                blank = keys.new_zeros(len(keys), query.shape[1], query.shape[3])
                self._forward(made, blank, keys, values, cache, step)
            else:
                made.layer.impl.do_kv_cache_update(made.layer, keys, values, cache, slots)
        keys, values = (rows.keys(each, rows.before, rows.lengths) for each in (key, value))
        slots = on(self._device, pages.slots(rows.before, rows.lengths), torch.int64)
        if not made.backend.forward_includes_kv_cache_update:
            made.layer.impl.do_kv_cache_update(made.layer, keys, values, cache, slots)
        step = self._metadata(made, rows.counts, rows.lengths, pages.tables, slots)
        answer = self._forward(made, rows.queries(query), keys, values, cache, step)
        return rows.unpacked(answer, query.shape)

    def _at_once(
        self, made: _Layer, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rows: Packed
    ) -> torch.Tensor:
        """A step of an encoder, which keeps no cache; the table and slots that it is given mean nothing."""
        pages = lay_out(rows.lengths, made.page_size)
        starts = [0] * len(rows.lengths)
        slots = on(self._device, pages.slots(starts, rows.lengths), torch.int64)
        step = self._metadata(made, rows.lengths, rows.lengths, pages.tables, slots)
        keys, values = (rows.keys(each, starts, rows.lengths) for each in (key, value))
        answer = self._forward(made, rows.queries(query), keys, values, torch.tensor([]), step)
        return rows.unpacked(answer, query.shape)

    def _forward(
        self, made: _Layer, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cache: torch.Tensor, step: Any
    ) -> torch.Tensor:
        from conformance.engines.vllm_watch import Dispatched

        answer = torch.full_like(query, float("nan"))  # what a kernel does not write shows
        with Dispatched() as dispatched:
            found = made.layer.impl.forward(made.layer, query, key, value, cache, step, output=answer)
        self._kernels = dispatched.kernels or [
            f"{type(made.layer.impl).__module__}.{type(made.layer.impl).__qualname__}"
        ]
        return answer if found is None else found

    def _metadata(
        self,
        made: _Layer,
        counts: Sequence[int],
        lengths: Sequence[int],
        tables: NDArray[Any],
        slots: torch.Tensor,
    ) -> Any:
        """The backend's own metadata for a step of `counts` queries a row, the last of so many keys."""
        from vllm.v1.attention.backend import CommonAttentionMetadata

        ends = torch.tensor([0, *counts], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        positions = [torch.arange(n - count, n) for n, count in zip(lengths, counts, strict=True)]
        given = {
            "query_start_loc": ends.to(self._device),
            "query_start_loc_cpu": ends,
            "seq_lens": on(self._device, lengths, torch.int32),
            "seq_lens_cpu_upper_bound": torch.tensor(lengths, dtype=torch.int32),
            "num_reqs": len(lengths),
            "num_actual_tokens": int(ends[-1]),
            "max_query_len": max(counts),
            "max_seq_len": max(lengths),
            "block_table_tensor": on(self._device, tables, torch.int32),
            "slot_mapping": slots,
            "causal": True,
            "positions": torch.cat(positions).to(self._device),
        }
        known = {each.name for each in dataclasses.fields(CommonAttentionMetadata)}
        common = CommonAttentionMetadata(**{name: each for name, each in given.items() if name in known})
        return made.builder.build(common_prefix_len=0, common_attn_metadata=common)

    def _make(self, shape: Shape) -> _Layer:
        from vllm.model_executor.layers.attention import Attention
        from vllm.model_executor.layers.attention.encoder_only_attention import EncoderOnlyAttention
        from vllm.v1.kv_cache_interface import EncoderOnlyAttentionSpec

        config = self._config(shape)
        page_size = int(config.cache_config.block_size)
        arguments = {
            "num_kv_heads": shape.kv_heads,
            "logits_soft_cap": shape.softcap,
            "per_layer_sliding_window": shape.window,
            "cache_config": config.cache_config,
            "prefix": _LAYER,
        }
        kind = EncoderOnlyAttention if shape.bidirectional else Attention
        with self._current(config), self._device:
            layer = kind(shape.heads, shape.size, shape.scale, **arguments)
            layer.process_weights_after_loading(self._dtype)
            if shape.bidirectional:
                spec: Any = EncoderOnlyAttentionSpec(
                    block_size=page_size, num_kv_heads=shape.kv_heads, head_size=shape.size, dtype=self._dtype
                )
            else:  # a window may choose pages of its own
                spec = dataclasses.replace(layer.get_kv_cache_spec(config), block_size=page_size)
            builder = layer.attn_backend.get_builder_cls()(spec, [_LAYER], config, self._device)
        return _Layer(config, layer, builder, page_size)

    def _config(self, shape: Shape) -> Any:
        """vLLM's configuration of a model whose heads are the call's; metadata is sized by it."""
        from vllm.engine.arg_utils import EngineArgs

        return EngineArgs(**arguments_for(self._arguments, shape)).create_engine_config()

    def _cache(self, made: _Layer, pages: Pages, kv_heads: int, size: int) -> torch.Tensor:
        """A cache of so many pages as [pages, kv_heads, page_size, 2 x size], in the backend's own order of memory."""
        shape = (pages.count, kv_heads, pages.size, 2 * size)
        layouts = made.backend.supported_kv_cache_layouts()
        order = layouts[0].layer_view_order if layouts else (0, 1, 2, 3)
        pool = torch.empty([shape[axis] for axis in order], dtype=self._dtype, device=self._device)
        return pool.permute([order.index(axis) for axis in range(len(shape))])

    @contextlib.contextmanager
    def _current(self, config: Any) -> Iterator[None]:
        from vllm.config import set_current_vllm_config

        before = torch.get_default_dtype()
        torch.set_default_dtype(self._dtype)
        try:
            with set_current_vllm_config(config), torch.inference_mode():  # as vLLM computes; else no kernel is seen
                yield
        finally:
            torch.set_default_dtype(before)


def arguments_for(arguments: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    """The engine arguments, for a model with such heads and pages. TypeError where they change models by a function."""
    given = arguments.get("hf_overrides") or {}
    if not isinstance(given, Mapping):
        raise TypeError(f"hf_overrides is a {type(given).__name__}, but for calls without a model should be a table")
    heads = {"num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads, "head_dim": shape.size}
    pages = {} if shape.page_size is None else {"block_size": shape.page_size}
    return {**arguments, **pages, "hf_overrides": {**given, **heads}}
