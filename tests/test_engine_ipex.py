"""The IPEX adapter beside a stand-in for the extension, which the test environment cannot have."""

from __future__ import annotations

import enum
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from conformance.runner import LoadRequest, Unavailable

pytestmark = pytest.mark.torch
FOLDER = Path(__file__).parent.parent / "suites" / "checkpoints" / "reward-qwen3"


class Linear(torch.nn.Linear):
    """What the extension would put in a layer's place."""

    __module__ = "intel_extension_for_pytorch.nn.utils"


def packed(model: Any, **_: Any) -> Any:
    for module in model.modules():
        if type(module) is torch.nn.Linear:
            module.__class__ = Linear
    return model


def untouched(model: Any, **_: Any) -> Any:
    return model


def refused(model: Any, **_: Any) -> Any:
    raise AssertionError("FP16 weight prepack needs the cpu support avx512_core_fp16")


class Extension(ModuleType):
    class FP32MathMode(enum.Enum):
        FP32 = 0
        TF32 = 1

    def __init__(self) -> None:
        super().__init__("intel_extension_for_pytorch")
        self.does: Callable[..., Any] = packed
        self.asked: list[dict[str, Any]] = []
        self.modes: list[tuple[str, str]] = []

    def optimize(self, model: Any, **arguments: Any) -> Any:
        self.asked.append(arguments)
        return self.does(model, **arguments)

    def set_fp32_math_mode(self, mode: FP32MathMode, device: str) -> None:
        self.modes.append((mode.name, device))


@pytest.fixture
def extension(monkeypatch: pytest.MonkeyPatch) -> Iterator[Extension]:
    stand_in = Extension()
    monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    installed = {"intel-extension-for-pytorch": "2.8.0", "torch": "2.8.0", "transformers": "4.56.2"}
    monkeypatch.setattr("conformance.engines.releases.mismatch.__defaults__", (installed.__getitem__,))
    yield stand_in
    sys.modules.pop("conformance.engines.ipex", None)


def load(dtype: str = "float32", **options: Any) -> Any:
    request = LoadRequest("reward-qwen3", str(FOLDER), "reward", "cpu", "sdpa", dtype, options={"optimize": options})
    runner = importlib.import_module("conformance.engines.ipex").IpexRunner(request)
    with runner:
        return runner.reward([[{"role": "user", "content": "which one?"}]])


def test_the_model_that_answers_is_the_optimised_one(extension: Extension) -> None:
    answer = load(level="O1")
    assert answer.values.shape == (1,)
    assert answer.effective.attention == "sdpa"
    assert extension.asked == [{"dtype": torch.float32, "inplace": True, "level": "O1"}]
    assert extension.modes == [("FP32", "cpu")]


def test_an_extension_that_replaces_no_layer_is_an_error(extension: Extension) -> None:
    extension.does = untouched
    with pytest.raises(ValueError, match="left every layer of reward-qwen3 as it was"):
        load()
    assert load(weights_prepack=False).values.shape == (1,)


def test_a_missing_instruction_set_is_the_machine_s_lack(extension: Extension) -> None:
    extension.does = refused
    with pytest.raises(Unavailable, match=r"ipex\.optimize in float16: FP16 weight prepack needs the cpu support"):
        load("float16")


def test_releases_that_do_not_go_together_are_said_before_the_extension_is_imported(
    extension: Extension, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {"intel-extension-for-pytorch": "2.8.0", "torch": "2.13.0", "transformers": "5.24.0"}
    monkeypatch.setattr("conformance.engines.releases.mismatch.__defaults__", (wrong.__getitem__,))
    monkeypatch.delitem(sys.modules, extension.__name__)
    with pytest.raises(ImportError, match=r"needs torch 2\.8, but 2\.13\.0 is installed"):
        importlib.import_module("conformance.engines.ipex")
