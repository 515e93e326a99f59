"""`conformance attention`: one function is measured without engine and model, and whatever it does is a verdict."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from zenith_site import Ran

from conformance.results.rows import read_rows

pytestmark = pytest.mark.torch

TESTS = Path(__file__).parent
IN_PAGES = {
    *("test_queries_see_their_pages", "test_keys_are_found_on_pages"),
    *("test_paged_outputs_agree", "test_paged_sliding_outputs_agree"),
}
"""Promises about pages, which a function that is given all keys has none of."""
ANSWERED = ("-k", "calls_are_answered", "--dtype", "bfloat16")


def attention(folder: Path, kernel: str, *arguments: str) -> Ran:
    output = folder / "out"
    process = subprocess.run(
        [sys.executable, "-m", "conformance", "attention", "--kernel", kernel, "--output", str(output), *arguments],
        cwd=TESTS.parent,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return Ran(process, output)


def test_the_example_in_the_docs_keeps_every_promise(tmp_path: Path) -> None:
    claims = ("--claims", "deterministic=true", "masked_rows=zero", "denormals=true")
    done = attention(tmp_path, "docs.examples.tiled_attention:attention", "--dtype", "bfloat16", *claims)
    assert done.code == 0, done.said
    assert {name for name, verdict in done.verdicts.items() if verdict != "PASS"} == IN_PAGES
    assert {done.verdicts[name] for name in IN_PAGES} == {"NOT_SUPPORTED"}
    assert len(done.verdicts) >= 15 + len(IN_PAGES)
    assert "ATT-090 outputs agree" in done.process.stdout
    assert "Only these targets were run: kernel/docs.examples.tiled_attention:attention/bfloat16" in done.said
    assert "models were run" not in done.said


def test_what_a_function_does_not_take_is_not_asked_of_it(tmp_path: Path) -> None:
    done = attention(tmp_path, "trial_kernels.wrong:fixed_scale", "--dtype", "bfloat16")
    assert done.code == 0, done.said
    assert "takes no scale, no window, no softcap, no lengths: calls that need it are not made" in done.said
    left_out = {name for name, verdict in done.verdicts.items() if verdict == "NOT_SUPPORTED"}
    assert {"test_scaled_outputs_agree", "test_sliding_outputs_agree", "test_ragged_outputs_agree"} <= left_out
    assert done.verdicts["test_outputs_agree"] == done.verdicts["test_queries_see_their_keys"] == "PASS"


def test_a_wrong_mask_fails_and_its_call_is_kept_and_can_be_made_again(tmp_path: Path) -> None:
    done = attention(tmp_path, "trial_kernels.wrong:mask_off_by_one", "--dtype", "bfloat16", "-k", "see_their_keys")
    (case,) = done.document["cases"]
    assert (done.code, case["verdict"]) == (1, "FAIL")
    kept = read_rows(done.output / case["rows_file"]).arrays
    assert {"query", "key", "value", "x", "r", "causal"} <= kept.keys()
    lines = done.process.stdout.split("the call itself, in Python:\n")[1].splitlines()[:5]
    code = "\n".join(line.strip() for line in lines)
    again = subprocess.run(
        [sys.executable, "-c", code],
        cwd=TESTS.parent,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert again.returncode == 0, again.stderr
    assert "tensor(" in again.stdout


@pytest.mark.parametrize(
    ("kernel", "verdict", "said"),
    [
        ("crashes", "CRASH", "killed by SIGSEGV while running attention"),
        ("hangs", "TIMEOUT", "attention had not ended when its deadline"),
        ("raises", "FAIL", "raised ValueError: no kernel for"),
        ("wrong_shape", "FAIL", "shape is ["),
        ("writes", "FAIL", "wrote into its key, but inputs should be left as they are"),
    ],
)
def test_whatever_a_kernel_does_is_a_verdict(tmp_path: Path, kernel: str, verdict: str, said: str) -> None:
    done = attention(tmp_path, f"trial_kernels.wrong:{kernel}", *ANSWERED, "--deadline", "8")
    (case,) = done.document["cases"]
    assert (done.code, case["verdict"]) == (1, verdict)
    assert said in case["message"]
    assert "\x1b" not in done.said
    assert done.junit["testcase"] == 1


def test_what_is_left_unwritten_is_found(tmp_path: Path) -> None:
    done = attention(
        tmp_path, "trial_kernels.wrong:leaves_unwritten", "--dtype", "bfloat16", "-k", "test_repeats_agree"
    )
    (case,) = done.document["cases"]
    assert (done.code, case["verdict"]) == (1, "FAIL")
    assert "NaN" in case["message"]


def test_a_module_whose_import_ends_its_process_is_a_crash(tmp_path: Path) -> None:
    done = attention(tmp_path, "trial_kernels.dies:attention", *ANSWERED)
    assert (done.code, set(done.verdicts.values())) == (1, {"CRASH"})


def test_a_measurement_that_ended_is_told_again_by_resume_and_another_is_refused(tmp_path: Path) -> None:
    first = attention(tmp_path, "trial_kernels.wrong:wrong_shape", *ANSWERED)
    again = attention(tmp_path, "trial_kernels.wrong:wrong_shape", *ANSWERED, "--resume")
    assert (again.code, again.verdicts) == (first.code, first.verdicts) == (1, {"test_calls_are_answered": "FAIL"})
    assert "nothing to resume" in again.said
    other = attention(tmp_path, "trial_kernels.wrong:right", *ANSWERED, "--resume")
    assert other.code == 4
    assert "is another one than this would be" in other.process.stderr


def test_a_device_that_is_not_there_is_said_and_nothing_was_executed(tmp_path: Path) -> None:
    done = attention(tmp_path, "trial_kernels.wrong:right", *ANSWERED, "--device", "xpu")
    assert done.code == 5
    assert "sees no xpu device" in done.said or "knows no device" in done.said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("trial_kernels.wrong:rihgt",), "'rihgt'; did you mean 'right'?"),
        (("trial_kernels.broken:attention",), "RuntimeError: nvcc not found"),
        (("trial_kernels/wrong.py:right",), "should look like MODULE:FUNCTION, e.g. trial_kernels.wrong:right"),
        (("trial_kernels.wrong",), "should look like MODULE:FUNCTION"),
        (("trial_kernels.wrong:right", "--dtype", "bfloat61"), "unknown dtype 'bfloat61'; did you mean 'bfloat16'?"),
        (("trial_kernels.wrong:right", "--shapes", "quik"), "unknown set of shapes 'quik'; did you mean 'quick'?"),
        (("trial_kernels.wrong:right", "--device", "cuad"), "unknown device 'cuad'; did you mean 'cuda'?"),
        (("trial_kernels.wrong:right", "--claims", "determinstic=true"), "did you mean 'deterministic'?"),
        (("trial_kernels.wrong:right", "--kernal", "x:y"), "unknown option '--kernal'; did you mean '--kernel'?"),
    ],
)
def test_what_cannot_be_is_a_usage_error_with_what_would_be_right(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = attention(tmp_path, *arguments)
    assert done.code == 4
    assert said in done.process.stderr
    assert not (tmp_path / "out").exists()


def test_a_pattern_that_selects_nothing_executes_nothing(tmp_path: Path) -> None:
    done = attention(tmp_path, "trial_kernels.wrong:right", "-k", "no_such_promise")
    assert done.code == 5
    assert "no promise's id matches -k" in done.process.stderr
