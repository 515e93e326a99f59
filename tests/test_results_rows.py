"""The arrays of a failure are kept whole or as whole leading rows, and read back as they were."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from conformance.judgement import Figure, Judgement
from conformance.results.output import OutputError
from conformance.results.rows import RowsError, read_rows, rows_path, write_rows
from conformance.verdict import Verdict

CASE = "embedding.test_vectors_agree[transformers/sdpa/bfloat16][qwen3]"
FIGURES = (Figure("pooled ratio", float("nan"), 1.25, "max", "measured"),)


def _judgement(**rows: NDArray[np.generic]) -> Judgement:
    return Judgement("vector.agrees", Verdict.FAIL, "far off", FIGURES, rows)


@settings(max_examples=30, deadline=None)
@given(
    dtype=st.sampled_from(["float64", "float32", "float16", ">f8", "int64", "int32", "uint8", "bool"]),
    shape=st.sampled_from([(3,), (3, 4), (3, 2, 2), (0, 4), (3, 0)]),
    backwards=st.booleans(),
)
def test_arrays_come_back_with_their_values_and_widths(
    tmp_path_factory: pytest.TempPathFactory, dtype: str, shape: tuple[int, ...], backwards: bool
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    array = (np.arange(np.prod(shape)).reshape(shape) % 2).astype(dtype)
    array = array[::-1] if backwards else array
    path = write_rows(folder, CASE, _judgement(x=array, r=array.astype("float64")), "bfloat16")
    assert path is not None
    rows = read_rows(folder / path)
    np.testing.assert_array_equal(rows.arrays["x"], array)
    assert rows.arrays["x"].dtype == np.dtype(dtype).newbyteorder("=")
    assert rows.arrays["r"].dtype == np.float64
    assert (rows.kept, rows.total) == (shape[0], shape[0])


def test_a_rows_file_says_what_it_belongs_to(tmp_path: Path) -> None:
    path = write_rows(tmp_path, CASE, _judgement(x=np.ones(3)), "bfloat16")
    assert path == rows_path(CASE)
    rows = read_rows(tmp_path / path)
    assert (rows.case, rows.criterion, rows.dtype) == (CASE, "vector.agrees", "bfloat16")
    assert repr(rows.figures) == repr(FIGURES)


def test_one_row_is_kept_however_large_it_is(tmp_path: Path) -> None:
    x = np.arange(20.0).reshape(2, 10)
    path = write_rows(tmp_path, CASE, _judgement(x=x), "float32", cap=7)
    assert path is not None
    found = read_rows(tmp_path / path)
    assert (found.kept, found.total) == (1, 2)
    np.testing.assert_array_equal(found.arrays["x"], x[:1])


def test_arrays_above_the_cap_keep_whole_leading_rows(tmp_path: Path) -> None:
    x = np.arange(40.0).reshape(10, 4)
    path = write_rows(tmp_path, CASE, _judgement(x=x, ids=np.arange(10, dtype=np.int32)), "float32", cap=36 * 7 + 35)
    assert path is not None
    rows = read_rows(tmp_path / path)
    assert (rows.kept, rows.total) == (7, 10)
    np.testing.assert_array_equal(rows.arrays["x"], x[:7])
    np.testing.assert_array_equal(rows.arrays["ids"], np.arange(7))


def test_a_judgement_without_arrays_writes_nothing(tmp_path: Path) -> None:
    assert write_rows(tmp_path, CASE, _judgement(), "float32") is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"x": np.zeros(3), "r": np.zeros(4)}, "one leading axis"),
        ({"x": np.float64(1.0)}, "one leading axis"),
        ({"x": np.array(["a"])}, "numbers or booleans"),
        ({"x": np.array([1 + 2j])}, "numbers or booleans"),
        ({"x": np.array([None])}, "numbers or booleans"),
    ],
)
def test_arrays_that_cannot_be_kept_are_refused(
    rows: dict[str, NDArray[np.generic]], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=said):
        write_rows(tmp_path, CASE, _judgement(**rows), "float32")


def _file(path: Path, **changes: str) -> Path:
    metadata = {"case": "c", "criterion": "k", "dtype": "float32", "figures": "[]", "kept": "2", "total": "2"}
    metadata = {key: value for key, value in {**metadata, **changes}.items() if value}
    safetensors.numpy.save_file({"x": np.zeros((2, 3))}, path, metadata)
    return path


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"case": ""}, "lacks"),
        ({"figures": "[{}]"}, "damaged metadata"),
        ({"figures": "7"}, "damaged metadata"),
        ({"kept": "many"}, "damaged metadata"),
        ({"kept": "3", "total": "3"}, "says 3 of 3"),
        ({"total": "1"}, "says 2 of 1"),
    ],
)
def test_a_foreign_or_damaged_file_is_refused(changes: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(RowsError, match=said):
        read_rows(_file(tmp_path / "rows.safetensors", **changes))


def test_what_is_no_safetensors_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.safetensors").write_bytes(b"\x80\x04pickle")
    with pytest.raises(RowsError, match="no safetensors file"):
        read_rows(tmp_path / "rows.safetensors")
    with pytest.raises(FileNotFoundError):
        read_rows(tmp_path / "absent.safetensors")


def test_an_output_that_is_no_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="give --output a folder"):
        write_rows(tmp_path / "file", CASE, _judgement(x=np.ones(3)), "float32")


def test_importing_the_results_needs_neither_numpy_nor_safetensors_nor_jsonschema() -> None:
    program = (
        "import sys, conformance.results.rows, conformance.results.document, conformance.results.redact\n"
        "print(sorted({'numpy', 'safetensors', 'jsonschema', 'torch', 'rich', 'xmlrunner'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=Path(__file__).parent.parent
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
