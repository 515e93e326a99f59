"""The arrays that a failing case was judged on, kept so that it can be judged again without the device.

One safetensors file a case, `rows/<first 16 hex digits of the SHA-256 of the case's id>.safetensors`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.judgement import Figure, Judgement
from conformance.results.output import ROWS, write_atomically
from conformance.results.plain import RecordError
from conformance.results.record import figure_from_json, figure_to_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEFAULT_CAP = 8 * 2**20  # bytes of arrays a case


class RowsError(ValueError):
    """A rows file is damaged or was not written by `write_rows`."""


@dataclass(frozen=True)
class Rows:
    """The content of a rows file. `arrays` share their leading axis, which has the first `kept` of `total` rows."""

    case: str
    criterion: str
    dtype: str
    figures: tuple[Figure, ...]
    kept: int
    total: int
    arrays: Mapping[str, NDArray[Any]]


def rows_path(case_id: str) -> str:
    """Where a case's rows lie, relative to the output folder."""
    return f"{ROWS}/{hashlib.sha256(case_id.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}.safetensors"


def write_rows(
    output: Path | str, case_id: str, judgement: Judgement, dtype: str, *, cap: int = DEFAULT_CAP
) -> str | None:
    """Keep the judgement's arrays and return the file's path relative to `output`; None if it has no arrays.

    Floats keep their width; token ids stay integers. Where the arrays are larger than `cap` bytes together, as many
    whole leading rows are kept as fit, one at least, and the file says how many there were. A later judgement of the
    same case replaces an earlier one. Raises ValueError for arrays that do not share a leading axis or hold no
    numbers, `OutputError` where the file cannot be written.
    """
    if not judgement.rows:
        return None
    import safetensors.numpy

    arrays = {name: _storable(name, array, judgement.criterion) for name, array in sorted(judgement.rows.items())}
    lengths = {name: array.shape[0] if array.ndim else None for name, array in arrays.items()}
    total = next(iter(lengths.values()))
    if total is None or any(length != total for length in lengths.values()):
        shapes = {name: array.shape for name, array in arrays.items()}
        raise ValueError(f"rows of {judgement.criterion}: shapes are {shapes}, but one leading axis must be common")
    row_bytes = sum(array.nbytes for array in arrays.values()) // total if total else 0
    kept = min(total, max(1, cap // row_bytes)) if row_bytes else total  # one attention call may be larger
    metadata = {
        "case": case_id,
        "criterion": judgement.criterion,
        "dtype": dtype,
        "figures": json.dumps([figure_to_json(figure) for figure in judgement.figures]),
        "kept": str(kept),
        "total": str(total),
    }
    data = safetensors.numpy.save({name: _contiguous(array[:kept]) for name, array in arrays.items()}, metadata)
    path = rows_path(case_id)
    write_atomically(Path(output) / path, data)
    return path


def read_rows(path: Path | str) -> Rows:
    """Read a rows file. Raises `RowsError` for a damaged or foreign file, OSError where it cannot be read."""
    import safetensors

    with Path(path).open("rb"):
        pass  # a missing or unreadable file is the system's own error, with its path
    try:
        with safetensors.safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is no mapping
    except safetensors.SafetensorError as error:
        raise RowsError(f"{path}: no safetensors file: {error}") from error
    missing = [name for name in ("case", "criterion", "dtype", "figures", "kept", "total") if name not in metadata]
    if missing:
        raise RowsError(f"{path}: metadata lacks {missing}; this file was not written by a run")
    try:
        figures = tuple(figure_from_json(item, "figures") for item in json.loads(metadata["figures"]))
        kept, total = int(metadata["kept"]), int(metadata["total"])
    except (RecordError, ValueError, TypeError) as error:
        raise RowsError(f"{path}: damaged metadata: {error}") from error
    short = {name: array.shape for name, array in arrays.items() if array.shape[:1] != (kept,)}
    if short or kept > total:
        raise RowsError(f"{path}: says {kept} of {total} rows, but holds {short}")
    return Rows(metadata["case"], metadata["criterion"], metadata["dtype"], figures, kept, total, arrays)


def _storable(name: str, array: Any, criterion: str) -> NDArray[Any]:
    import numpy as np

    values = np.asarray(array)
    if values.dtype.kind not in "biuf":
        raise ValueError(f"rows of {criterion}: {name!r} has dtype {values.dtype}; numbers or booleans can be kept")
    if values.dtype.kind == "f" and values.dtype.itemsize > 8:
        values = values.astype(np.float64)
    return values


def _contiguous(array: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(little)
