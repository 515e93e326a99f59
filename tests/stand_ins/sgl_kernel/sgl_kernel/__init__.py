"""Stands in for SGLang's kernel package, which no registry has for CPUs: it can be imported, and computes nothing.

SGLang imports its kernels by name, and asks torch for the schemas of four of them. What calls one, for want of the
package, gets an error that says so; attention through torch_native calls none.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch

__version__ = "0.0.0"
__path__: list[str] = []  # its submodules stand in for nothing

_LIBRARY = torch.library.Library("sgl_kernel", "FRAGMENT")
for _name in (
    "fused_qkvzba_split_reshape_cat_contiguous_cpu",
    "fused_qk_gemma_rmsnorm_with_gate_cpu",
    "fused_qk_gemma_rmsnorm_cpu",
    "fused_sigmoid_mul_cpu",
):
    _LIBRARY.define(f"{_name}(Tensor a, Tensor b) -> Tensor")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_: object, **__: object) -> NoReturn:
        raise RuntimeError(f"sgl_kernel.{name} is a stand-in of the tests, which computes nothing")

    return missing
