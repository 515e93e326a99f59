"""What the adapter adds to a vLLM worker, in whatever process that lives.

`Witness` becomes a part of the worker's class (vLLM's `worker_extension_cls`) and counts the attention calls. It is
named to vLLM as text, and spoken to through `collective_rpc` in plain lists and numbers, so that nothing is pickled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from conformance.engines.vllm_rows import ROWS, Row, reading

KERNELS = frozenset(
    {
        "_C::cpu_attention_with_kv_cache",
        "_vllm_fa2_C::varlen_fwd",
        "_vllm_fa3_C::fwd",
        "vllm::flash_attn_maxseqlen_wrapper",  # vision towers'
        "vllm::torch_sdpa_wrapper",
        "vllm::triton_attn_wrapper",
    }
)
"""Operators that are an attention kernel. A call that dispatches none is counted by its implementation's class."""


class _Dispatched(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The attention kernels among the operators that are dispatched while it is active."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kernels: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = str(func._schema.name)
        if name in KERNELS:
            self.kernels.append(name)
        return func(*args, **(kwargs or {}))


class Watch:
    """Counts the attention calls of a model from when it was made; `reset` starts anew.

    With `is_replayed`, recorded graphs make the calls again without coming by here, so the layers are counted instead.
    """

    def __init__(self, model: Any, dtype: str, head_dtype: str, *, is_replayed: bool = False) -> None:
        self._model, self._dtype, self._head_dtype = model, dtype, head_dtype
        self._is_replayed = is_replayed
        self._resolved: Counter[str] = Counter()
        self._backends: set[str] = set()
        self._tower_backends: set[str] = set()
        self.layers = self.tower_layers = 0
        towers: set[str] = set()
        for name, module in model.named_modules():
            backend = getattr(module, "attn_backend", None)
            implementation = getattr(module, "impl", None)
            if backend is None:
                continue
            if implementation is not None:
                self.layers += 1
                self._backends.add(str(backend.get_name()))
                self._resolved[_path(implementation)] += 1
                implementation.forward = self._counted(implementation.forward, _path(implementation), of_tower=False)
            elif sum(hasattr(each, "attn_backend") for each in module.modules()) == 1:
                # Of a vision tower: an attention without a cache, whose backend is a member of the enumeration.
                self.tower_layers += 1
                self._tower_backends.add(str(backend.name))
                module.forward = self._counted(module.forward, f"{_path(module)} on {backend.name}", of_tower=True)
                towers.add(name.partition(".")[0])
        model.register_forward_pre_hook(self._on_pass)
        for name in towers:
            tower = model.get_submodule(name)
            tower.register_forward_pre_hook(self._on_tower)
            tower.register_forward_hook(self._on_features)
        self.reset()

    def reset(self) -> None:
        """Forget what was counted."""
        self.kernels: Counter[str] = Counter()
        self.tower_kernels: Counter[str] = Counter()
        self.passes = self.tower_passes = 0
        self.features: list[torch.Tensor] = []
        self.keeps_features = False

    def seen(self) -> dict[str, Any]:
        """What ran, in plain values."""
        return {
            "dtype": self._dtypes(),
            "attention": "+".join(sorted(self._backends)),
            "kernels": dict(self.tower_kernels + (self._resolved if self._is_replayed else self.kernels)),
            "layers": self.layers,
            "forwards": 1 if self._is_replayed else self.passes,
            "evidence": "resolved" if self._is_replayed else "counted",
            "vision_attention": "+".join(sorted(self._tower_backends)),
            "vision_layers": self.tower_layers,
            "vision_sequences": self.tower_passes,
        }

    def _counted(self, forward: Callable[..., Any], path: str, *, of_tower: bool) -> Callable[..., Any]:
        def count(*args: Any, **kwargs: Any) -> Any:
            with _Dispatched() as dispatched:
                answer = forward(*args, **kwargs)
            (self.tower_kernels if of_tower else self.kernels).update(dispatched.kernels or [path])
            return answer

        return count

    def _dtypes(self) -> str:
        """The weights', without those of a head that vLLM keeps wider on purpose (`head_dtype`)."""
        found = Counter(str(weight.dtype).removeprefix("torch.") for weight in self._model.parameters())
        if self._head_dtype != self._dtype and self._head_dtype in found:
            heads = [name for name, _ in self._model.named_parameters() if _is_of_a_head(name)]
            own = {str(self._model.get_parameter(name).dtype).removeprefix("torch.") for name in heads}
            if own == {self._head_dtype} and found[self._head_dtype] == len(heads):
                del found[self._head_dtype]
        return "+".join(sorted(found))

    def _on_pass(self, *_: Any) -> None:
        self.passes += 1

    def _on_tower(self, *_: Any) -> None:
        self.tower_passes += 1

    def _on_features(self, _: Any, __: Any, output: torch.Tensor) -> None:
        if self.keeps_features:
            self.features.append(output.detach().to("cpu", torch.float32, copy=True))


class Witness:
    """A part of the worker: `self` is the worker, with its `model_runner`."""

    model_runner: Any
    vllm_config: Any
    _conformance_watch: Watch

    def conformance_watch(self, features: bool = False) -> None:
        """Count from now on; with `features`, keep what the vision tower hands on."""
        if not hasattr(self, "_conformance_watch"):
            config = self.vllm_config.model_config
            dtype, head = (
                str(each).removeprefix("torch.") for each in (config.dtype, getattr(config, "head_dtype", config.dtype))
            )
            self._conformance_watch = Watch(
                self.model_runner.get_model(), dtype, head, is_replayed=self._replays_graphs()
            )
        self._conformance_watch.reset()
        self._conformance_watch.keeps_features = features

    def _replays_graphs(self) -> bool:
        mode = getattr(self.vllm_config.compilation_config, "cudagraph_mode", None)
        is_cpu = self.model_runner.device.type == "cpu"  # there are none, whatever the configuration says
        return not is_cpu and mode is not None and bool(mode.has_full_cudagraphs())

    def conformance_seen(self) -> dict[str, Any]:
        """What ran since `conformance_watch`."""
        return self._conformance_watch.seen()

    def conformance_features(self) -> list[list[list[float]]]:
        """What the vision tower handed on since then, pass by pass: [patches, width]."""
        return [each.tolist() for each in self._conformance_watch.features]

    def conformance_force(
        self, firsts: list[int], tokens: list[list[int]], candidates: list[list[list[int]]], prefill: bool
    ) -> None:
        """Force `tokens` behind prompts of `firsts` tokens; with `prefill` they are part of what is prefilled."""
        ROWS.clear()
        ROWS.update({i: Row(*each, prefill) for i, each in enumerate(zip(firsts, tokens, candidates, strict=True))})
        runner = self.model_runner
        own = "_get_prompt_logprobs_dict"  # the second runner has none: there vLLM is asked for chosen ids
        if prefill and not hasattr(runner, "_conformance_read") and hasattr(runner, own):
            runner._conformance_read = True
            setattr(runner, own, reading(runner, getattr(runner, own)))

    def conformance_forced(self) -> list[list[list[float]]]:
        """The logprobs that were read, by row and position; what was not reached is missing."""
        found = [[row.found[at] for at in sorted(row.found)] for _, row in sorted(ROWS.items())]
        ROWS.clear()
        return found


def _path(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _is_of_a_head(name: str) -> bool:
    return name.partition(".")[0] in ("score", "classifier", "pooler", "_pooler", "head")
