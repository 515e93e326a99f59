"""Five lines of Python that call a kernel again on the tensors of a failing call, which its rows file holds."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.kernel_arguments import ARGUMENTS
from conformance.results.rows import RowsError, read_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray


def reproduction(file: Path, kernel: str, device: str, dtype: str, takes: Collection[str]) -> str:
    """The lines; empty where the file cannot be read or holds no call.

    `takes` are the arguments beside query, key and value that the function `kernel` ("module:function") has.
    """
    try:
        saved = read_rows(file).arrays
    except (RowsError, OSError):
        return ""
    if not {"query", "key", "value"} <= saved.keys():
        return ""
    module, _, function = kernel.partition(":")
    given = "".join(f", {name}={_argument(name, saved.get(name), device)}" for name in ARGUMENTS if name in takes)
    return "\n".join(
        [
            f"import torch, safetensors.torch, {module} as kernels",
            f"saved = safetensors.torch.load_file({str(file)!r})",
            f"query, key, value = (saved[name].to({device!r}, torch.{dtype}) for name in ('query', 'key', 'value'))",
            f"answer = kernels.{function}(query, key, value{given})",
            _shown("r" in saved),
        ]
    )


def _argument(name: str, saved: NDArray[Any] | None, device: str) -> str:
    """The argument as it was given; rows files hold it once for each row of the batch."""
    if saved is None or not len(saved):
        return "False" if name == "causal" else "None"
    return f"saved['lengths'].int().to({device!r})" if name == "lengths" else repr(saved[0].item())


def _shown(has_reference: bool) -> str:
    if has_reference:
        return "print((answer.double().cpu() - saved['r']).abs().max())  # x: the answer then; r: exact; e: ideal"
    return "print(answer.shape, answer.dtype, answer.isfinite().all())"
