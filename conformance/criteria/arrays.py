"""The gate before any figure: shapes, counts and finiteness of what an engine, the reference and the yardstick gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float64 = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Triple:
    """Engine x, reference r and yardstick e: float64, one shape, at least one prompt."""

    x: Float64
    r: Float64
    e: Float64

    @property
    def rows(self) -> dict[str, NDArray[Any]]:
        """The arrays as a judgement keeps them."""
        return {"x": self.x, "r": self.r, "e": self.e}

    def __getitem__(self, index: Mask) -> Triple:
        """The same three arrays at the chosen prompts."""
        return Triple(self.x[index], self.r[index], self.e[index])


def own(name: str, values: ArrayLike, axes: Sequence[str], *, counted: Mask | None = None) -> Float64:
    """The suite's own numbers (r or e) as float64 [axes].

    Raises ValueError for another number of axes or values that are not finite: that is the suite's fault, no
    engine's. With `counted`, a mask over the leading axes, only those values need be finite.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != len(axes):
        raise ValueError(f"{name} has shape {list(array.shape)}, but must be [{', '.join(axes)}]")
    if not np.isfinite(array if counted is None else array[counted]).all():
        raise ValueError(f"{name} holds NaN or infinity; it must be finite wherever it is compared")
    return array


def engine(
    values: ArrayLike, shape: Sequence[int], axes: Sequence[str], *, counted: Mask | None = None
) -> Float64 | str:
    """The engine's numbers as float64 of the given shape, or a sentence that says what is wrong with them."""
    array = as_float64(values)
    if isinstance(array, str):
        return array
    if tuple(array.shape) != tuple(shape):
        return (
            f"the engine's values have shape {list(array.shape)}, "
            f"but must be {list(shape)} ({' x '.join(axes)}), as the reference's are"
        )
    if array.shape[0] == 0:
        return "there is no prompt at all: an empty batch shows nothing"
    compared = array if counted is None else np.where(_spread(counted, array), array, 0.0)
    return not_finite(compared) or array


def as_float64(values: ArrayLike) -> Float64 | str:
    """The values as float64, or a sentence that says why they are no array of numbers."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        return f"the engine's values are no array of numbers ({error})"


def not_finite(array: Float64) -> str:
    """A sentence that counts and locates NaN and infinity, or an empty string."""
    bad = ~np.isfinite(array)
    if not bad.any():
        return ""
    kinds = f"{int(np.isnan(array).sum())} NaN and {int(np.isinf(array).sum())} infinite"
    first = [int(i) for i in np.argwhere(bad)[0]]
    prompts = sorted({int(i) for i in np.nonzero(bad)[0]})
    return (
        f"{kinds} of {array.size} values, in {len(prompts)} of {array.shape[0]} prompts; the first at {first}; "
        "every value must be finite"
    )


def triple(
    x: ArrayLike, r: ArrayLike, e: ArrayLike, axes: Sequence[str], *, counted: Mask | None = None
) -> Triple | str:
    """All three, or a sentence that says what is wrong with the engine's.

    Raises ValueError where the reference or the yardstick is at fault.
    """
    reference = own("r (reference)", r, axes, counted=counted)
    yardstick = own("e (yardstick)", e, axes, counted=counted)
    if reference.shape != yardstick.shape:
        raise ValueError(f"r has shape {list(reference.shape)} and e {list(yardstick.shape)}; they must be equal")
    values = engine(x, reference.shape, axes, counted=counted)
    return values if isinstance(values, str) else Triple(values, reference, yardstick)


def _spread(mask: Mask, array: Float64) -> Mask:
    return np.broadcast_to(mask.reshape(mask.shape + (1,) * (array.ndim - mask.ndim)), array.shape)
