"""Intel's extension for PyTorch (IPEX): transformers models after `ipex.optimize`, on CPUs and Intel GPUs.

The extension is at its end of life; Intel's work has moved into torch itself. Releases that are still deployed are
measured with the torch and transformers that they were built for.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from conformance.engines.releases import mismatch
from conformance.engines.transformers import TransformersRunner
from conformance.runner import Unavailable

if TYPE_CHECKING:
    from typing_extensions import Self

if _wrong := mismatch("intel-extension-for-pytorch", ("torch", 2), {"transformers": "<5"}):
    raise ImportError(_wrong)  # its own import would end in an AttributeError of os.exit, or deep in transformers

ipex = importlib.import_module("intel_extension_for_pytorch")


class IpexRunner(TransformersRunner):
    """The transformers runner with the model that `ipex.optimize` returns.

    The engine option `optimize` holds keyword arguments of `ipex.optimize`, e.g. `{ weights_prepack = false }`.
    Attention stays transformers', so its kernels are counted as there; linear and convolution layers become IPEX's.
    """

    def __enter__(self) -> Self:
        # IPEX_FP32_MATH_MODE, and whoever had this process before, could round float32 factors to bfloat16.
        mode = ipex.FP32MathMode.TF32 if self.request.matmul == "tf32" else ipex.FP32MathMode.FP32
        ipex.set_fp32_math_mode(mode, device="xpu" if self.request.device == "xpu" else "cpu")
        return super().__enter__()

    def _load(self) -> Any:
        model = super()._load()
        given: Mapping[str, Any] = self.request.options.get("optimize", {})
        try:
            optimized = ipex.optimize(model, dtype=self.torch_dtype, inplace=True, **given)
        except AssertionError as error:  # how it says that an instruction set is missing
            raise Unavailable(f"ipex.optimize in {self.request.dtype}: {error}") from error
        if packs(given, self.request.device) and not replaced(optimized):
            raise ValueError(
                f"ipex.optimize left every layer of {self.request.model} as it was, so this would be transformers "
                "without IPEX; with optimize = { weights_prepack = false } that is what is asked for"
            )
        return optimized


def packs(arguments: Mapping[str, Any], device: str) -> bool:
    """Whether `ipex.optimize` with these arguments packs weights: by default on CPUs, never on GPUs."""
    level = arguments.get("level", "O1")
    return device == "cpu" and bool(arguments.get("weights_prepack", level == "O1"))


def replaced(model: torch.nn.Module) -> int:
    """How many of a model's modules are IPEX's own."""
    return sum(type(module).__module__.startswith("intel_extension_for_pytorch") for module in model.modules())
