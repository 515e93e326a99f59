"""`tools/ratio_by_size.py` finds correct attention within its limits at any size, and says where one is not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
ROOT = Path(__file__).resolve().parent.parent
TOOL = ROOT / "tools" / "ratio_by_size.py"


def ran(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    start = f"import runpy, sys; sys.argv[1:] = {list(arguments)!r}"
    code = f"{start}\n{before}\nrunpy.run_path({str(TOOL)!r}, run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=250
    )


def test_small_models_are_within_their_limits_and_a_kernel_that_refuses_says_so(tmp_path: Path) -> None:
    file = tmp_path / "sizes.json"
    size = ("--layers", "2", "--widths", "128", "--attention", "eager", "sdpa", "sdpa:cudnn")
    process = ran("--device", "cpu", *size, "--output", str(file), "--markdown", str(tmp_path / "sizes.md"))
    assert process.returncode == 0, process.stderr
    rows = json.loads(file.read_text())["rows"]
    measured = [row for row in rows if "refused" not in row]
    assert {(row["attention"], row["dtype"], row["kind"]) for row in measured} == {
        (attention, dtype, kind)
        for attention in ("eager", "sdpa")
        for dtype in ("bfloat16", "float32")
        for kind in ("vector", "logprobs")
    }
    assert all(row["holds"] and 0.2 < row["R"] <= row["limit"] for row in measured)
    assert {row["attention"] for row in rows if "refused" in row} == {"sdpa:cudnn"}
    assert "| 2 x 128 | 1 (1) |" in (tmp_path / "sizes.md").read_text()  # eager in bfloat16 is the yardstick itself


WRONG = """
import torch
right = torch.nn.functional.scaled_dot_product_attention
def wrong(query, *args, **kwargs):
    return right(query * 1.05, *args, **kwargs)
torch.nn.functional.scaled_dot_product_attention = wrong
"""


def test_a_wrong_scale_is_beyond_its_limit() -> None:
    size = ("--layers", "2", "--widths", "128", "--attention", "sdpa", "--dtypes", "float32")
    process = ran("--device", "cpu", *size, before=WRONG)
    assert process.returncode == 1
    assert "2 ratios, 2 beyond their limits" in process.stdout


def test_a_width_without_whole_heads_is_refused() -> None:
    process = ran("--device", "cpu", "--widths", "100")
    assert process.returncode == 2 and "multiples of 128" in process.stderr
