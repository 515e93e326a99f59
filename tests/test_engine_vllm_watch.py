"""What ran in vLLM's worker, counted: on a model of torch alone, whose layers look to the counter as vLLM's do."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

CPU_KERNEL, TOWER_KERNEL = "_C::cpu_attention_with_kv_cache", "vllm::torch_sdpa_wrapper"


@pytest.fixture(scope="module", autouse=True)
def _operators() -> Iterator[None]:
    """Operators of vLLM's names, for as long as these tests run."""
    with (
        torch.library._scoped_library("_C", "FRAGMENT") as text,
        torch.library._scoped_library("vllm", "FRAGMENT") as vision,
    ):
        for library, name in ((text, "cpu_attention_with_kv_cache"), (vision, "torch_sdpa_wrapper"), (text, "other")):
            library.define(f"{name}(Tensor x) -> Tensor")
            library.impl(name, lambda x: x + 1, "CompositeExplicitAutograd")
        yield


class Backend:
    """As vLLM's of text: a class with a name."""

    @staticmethod
    def get_name() -> str:
        return "CPU_ATTN"


class TowerBackend(Enum):
    """As vLLM's of towers: a member of an enumeration."""

    TORCH_SDPA = ""


class Implementation:
    """What a layer hands its calls to; `operators` are those that it dispatches."""

    def __init__(self, *operators: str) -> None:
        self._operators = operators

    def forward(self, x: Any) -> Any:
        for name in self._operators:
            namespace, _, short = name.partition("::")
            x = getattr(getattr(torch.ops, namespace), short)(x)
        return x


class Layer(torch.nn.Module):  # type: ignore[misc,name-defined]
    """An attention layer of the text model."""

    def __init__(self, *operators: str, dtype: Any = torch.float32) -> None:
        super().__init__()
        self.impl, self.attn_backend = Implementation(*operators), Backend
        self.weight = torch.nn.Parameter(torch.zeros(2, dtype=dtype))

    def forward(self, x: Any) -> Any:
        return self.impl.forward(x)


class TowerLayer(torch.nn.Module):  # type: ignore[misc,name-defined]
    """One of a vision tower."""

    def __init__(self) -> None:
        super().__init__()
        self.attn_backend = TowerBackend.TORCH_SDPA

    def forward(self, x: Any) -> Any:
        return torch.ops.vllm.torch_sdpa_wrapper(x)


class Tower(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Two layers, and like vLLM's the backend's name on the tower itself."""

    def __init__(self) -> None:
        super().__init__()
        self.attn_backend = TowerBackend.TORCH_SDPA
        self.blocks = torch.nn.Sequential(TowerLayer(), TowerLayer())

    def forward(self, x: Any) -> Any:
        return self.blocks(x)


class Model(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Text layers, a tower, and a head."""

    def __init__(self, *layers: Layer, head: Any = torch.float32) -> None:
        super().__init__()
        self.visual, self.layers = Tower(), torch.nn.Sequential(*layers)
        self.score = torch.nn.Linear(2, 1, dtype=head)

    def forward(self, x: Any) -> Any:
        return self.layers(x)


def watched(*layers: Layer, dtype: str = "float32", head: str = "float32", **how: Any) -> tuple[Model, Any]:
    """A model and its watch."""
    from conformance.engines.vllm_watch import Watch

    model = Model(*layers, head=getattr(torch, head))
    return model, Watch(model, dtype, head, **how)


def test_every_call_of_text_and_tower_is_counted_by_its_kernel() -> None:
    model, watch = watched(Layer(CPU_KERNEL), Layer("_C::other", CPU_KERNEL))
    with torch.inference_mode():
        for _ in range(3):
            model(torch.ones(2))
        model.visual(torch.ones(2))
    assert watch.seen() == {
        "dtype": "float32",
        "attention": "CPU_ATTN",
        "kernels": {CPU_KERNEL: 6, TOWER_KERNEL: 2},
        "layers": 2,
        "forwards": 3,
        "evidence": "counted",
        "vision_attention": "TORCH_SDPA",
        "vision_layers": 2,
        "vision_sequences": 1,
    }
    watch.reset()
    assert watch.seen()["kernels"] == {} and watch.seen()["forwards"] == watch.seen()["vision_sequences"] == 0


def test_a_call_that_dispatches_no_known_kernel_is_counted_by_its_class() -> None:
    model, watch = watched(Layer("_C::other"))
    model(torch.ones(2))
    assert watch.seen()["kernels"] == {f"{__name__}.Implementation": 1}


def test_a_layer_that_calls_two_kernels_shows_as_two_calls() -> None:
    model, watch = watched(Layer(CPU_KERNEL, CPU_KERNEL))
    model(torch.ones(2))
    assert watch.seen()["kernels"] == {CPU_KERNEL: 2} and watch.seen()["layers"] * watch.seen()["forwards"] == 1


def test_where_graphs_are_replayed_the_layers_are_counted_by_class() -> None:
    model, watch = watched(Layer(CPU_KERNEL), Layer(CPU_KERNEL), is_replayed=True)
    model(torch.ones(2))
    seen = watch.seen()
    assert (seen["kernels"], seen["forwards"], seen["evidence"]) == ({f"{__name__}.Implementation": 2}, 1, "resolved")


def test_a_head_in_the_dtype_that_is_meant_for_it_is_no_other_dtype_and_a_layer_is() -> None:
    _, watch = watched(Layer(dtype=torch.bfloat16), dtype="bfloat16", head="float32")
    assert watch.seen()["dtype"] == "bfloat16"
    _, watch = watched(Layer(dtype=torch.bfloat16), Layer(), dtype="bfloat16", head="float32")
    assert watch.seen()["dtype"] == "bfloat16+float32"
    _, watch = watched(Layer(dtype=torch.bfloat16), dtype="float32", head="float32")
    assert watch.seen()["dtype"] == "bfloat16+float32"


def test_what_the_tower_hands_on_is_kept_where_it_is_asked_for() -> None:
    model, watch = watched(Layer(CPU_KERNEL))
    model.visual(torch.ones(2))
    assert watch.features == []
    watch.reset()
    watch.keeps_features = True
    model.visual(torch.ones(2))
    assert [each.tolist() for each in watch.features] == [[3.0, 3.0]]
