"""Attention calls made on one kernel, each answer looked at before any of its numbers is."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from conformance.runner import RAISED, AttentionCall

if TYPE_CHECKING:
    from conformance.runner import Floats

Kernel = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, AttentionCall], object]
"""From query, key, value in the served dtype on the device, and the call they are of, to the answer."""

_BLOCKS = 4
"""So many blocks are poisoned: a kernel may allocate others (a scaled query) before its output."""
_SMALL = 1 << 20
"""Bytes up to which four times as many are: the C library has more places that they could come from."""
_NAN_IN_EVERY_FLOAT = 0xFF
_FAR_TOO_MANY = 64
"""Times as many numbers as should be are not looked at: a view of one number can claim more than memory holds."""
_MESSAGE_LIMIT = 500
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_NOTHING = np.zeros(0, np.float32)


def perform(
    calls: Sequence[AttentionCall],
    kernel: Kernel,
    *,
    device: torch.device | str,
    dtype: torch.dtype,
    repeats: int = 1,
    poison: bool = False,
) -> tuple[tuple[Floats, ...], tuple[tuple[str, ...], ...]]:
    """Values and faults of every call, as `AttentionOutputs` holds them; each call is made `repeats` times in a row.

    A value is float32 (float64 where float64 was returned), in the shape that was returned, and empty where nothing
    was. What `kernel` raises is a fault of its call; only running out of memory passes through, because nobody knows
    what of the device's memory is left after it. With `poison`, freed memory of the output's size holds NaN when the
    kernel is called.
    """
    values: list[Floats] = []
    faults: list[tuple[str, ...]] = []
    for call in calls:
        given = [torch.from_numpy(np.array(each)).to(device, dtype) for each in (call.query, call.key, call.value)]
        for _ in range(repeats):
            found, wrong = _answer(kernel, given, call, poison)
            values.append(found)
            faults.append(wrong)
    return tuple(values), tuple(faults)


def _answer(
    kernel: Kernel, given: Sequence[torch.Tensor], call: AttentionCall, poison: bool
) -> tuple[Floats, tuple[str, ...]]:
    query, key, value = copies = [each.clone() for each in given]
    held = _poison(query) if poison else None
    try:
        with torch.no_grad():
            answer = kernel(query, key, value, call)
        if query.device.type != "cpu":  # a kernel that fails later than it returns must not be the next one's fault
            torch.get_device_module(query.device).synchronize()
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except (Exception, SystemExit) as error:
        return _NOTHING, (_raised(error),)
    del held
    try:
        written = [
            f"wrote into its {name}, but inputs should be left as they are"
            for name, passed, kept in zip(("query", "key", "value"), copies, given, strict=True)
            if not _is_same(passed, kept)
        ]
        if not isinstance(answer, torch.Tensor):
            return _NOTHING, (*written, f"returned {_kind(answer)}, but should return a torch.Tensor")
        wrong = _form_faults(answer, query)
        told = _NOTHING if wrong and answer.numel() > _FAR_TOO_MANY * query.numel() else _numbers(answer)
        return told, (*wrong, *written)
    except (RuntimeError, NotImplementedError, TypeError) as error:  # of a sparse tensor, say, or a resized input
        return _NOTHING, (f"left tensors that cannot be read: {_said(error)}",)


def _form_faults(answer: torch.Tensor, query: torch.Tensor) -> list[str]:
    """What is wrong with an answer's shape, dtype and device: all three should be the query's."""
    pairs = {
        "shape": (list(answer.shape), list(query.shape)),
        "dtype": (str(answer.dtype).removeprefix("torch."), str(query.dtype).removeprefix("torch.")),
        "device": (str(answer.device), str(query.device)),
    }
    return [f"{what} is {is_}, but should be {should}" for what, (is_, should) in pairs.items() if is_ != should]


def _numbers(answer: torch.Tensor) -> Floats:
    if answer.device.type == "meta" or answer.is_complex():  # no numbers, or none that a comparison would take
        return _NOTHING
    wide = torch.float64 if answer.dtype == torch.float64 else torch.float32
    found: Floats = answer.detach().to("cpu", wide).contiguous().numpy()
    return found.copy() if answer.data_ptr() == found.ctypes.data else found  # a kernel may return one buffer always


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether both hold the same bits: NaN, which padding may hold, equals nothing."""
    bits = _BITS[one.element_size()]
    return one.shape == other.shape and torch.equal(one.view(bits), other.view(bits))


def _poison(like: torch.Tensor) -> torch.Tensor:
    """Leave freed blocks of this tensor's size, and of a float32 tensor's of its shape, full of NaN.

    A caching allocator hands them out again. The C library gives a block that it mapped for itself back to the system,
    but takes blocks of that size from its own memory from then on, so the second round is what stays; and it gives back
    the end of its memory where that is free, so the last block there is returned, to be held meanwhile. It still hands
    out other memory in a few calls of a hundred: repeat them.
    """
    held = like
    for _ in range(2):
        blocks = [
            torch.full((size,), _NAN_IN_EVERY_FLOAT, dtype=torch.uint8, device=like.device)
            for size in {like.nbytes, 4 * like.numel()}
            for _ in range(_BLOCKS if size > _SMALL else 4 * _BLOCKS)
        ]
        held = max(blocks, key=torch.Tensor.data_ptr)
        del blocks
    return held


def _raised(error: Exception | SystemExit) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{RAISED}{_said(error)} [{where.filename}, line {where.lineno}]"


def _said(error: Exception | SystemExit) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: " + (text if len(text) <= _MESSAGE_LIMIT else f"{text[:_MESSAGE_LIMIT]} ...")


def _kind(answer: object) -> str:
    return "None" if answer is None else f"a {type(answer).__name__}"
