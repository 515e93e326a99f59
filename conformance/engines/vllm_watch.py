"""Counts the attention calls of a model that vLLM has loaded, by the kernels that they dispatch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

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


class Dispatched(TorchDispatchMode):  # type: ignore[no-untyped-call]
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
            with Dispatched() as dispatched:
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


def _path(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _is_of_a_head(name: str) -> bool:
    return name.partition(".")[0] in ("score", "classifier", "pooler", "_pooler", "head")
