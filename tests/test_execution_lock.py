"""A device has one owner at a time, whoever waits knows for whom, and a dead owner owns nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.execution import lock
from conformance.execution.deadline import Deadline
from conformance.execution.errors import DeadlineExceeded
from conformance.execution.lock import device_lock

ROOT = Path(__file__).parents[1]
HOLD = """
import sys, time
from pathlib import Path
from conformance.execution.deadline import Deadline
from conformance.execution.lock import device_lock
with device_lock(sys.argv[1], Deadline.after(9), print, folder=Path(sys.argv[2])):
    print("held", flush=True)
    time.sleep(float(sys.argv[3]))
"""


@contextmanager
def held_by_another(name: str, folder: Path, seconds: float) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD, name, str(folder), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def nobody(holder: int | None) -> None:
    raise AssertionError(f"waited for {holder}")


def test_whoever_waits_is_told_the_holder_once_and_gets_the_device_after_it(tmp_path: Path) -> None:
    told: list[int | None] = []
    with held_by_another("cuda:0", tmp_path, 0.4) as process:
        begin = time.monotonic()
        with device_lock("cuda:0", Deadline.after(9), told.append, folder=tmp_path):
            assert time.monotonic() - begin > 0.1
        assert told == [process.pid]


def test_whoever_waits_too_long_is_told_the_holder(tmp_path: Path) -> None:
    with (
        held_by_another("cuda:0", tmp_path, 60) as process,
        pytest.raises(DeadlineExceeded, match=rf"cuda:0 is still held by process {process.pid} after 0\.2 s"),
        device_lock("cuda:0", Deadline.after(0.2), lambda _: None, folder=tmp_path),
    ):
        raise AssertionError("two owners")


def test_another_device_is_free(tmp_path: Path) -> None:
    with held_by_another("cuda:0", tmp_path, 60), device_lock("cuda:1", Deadline.after(5), nobody, folder=tmp_path):
        pass


def test_a_killed_holder_leaves_the_device_free(tmp_path: Path) -> None:
    with held_by_another("cuda:0", tmp_path, 60) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        with device_lock("cuda:0", Deadline.after(5), nobody, folder=tmp_path):
            pass


def test_the_device_is_free_after_an_error(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(KeyError), device_lock("cuda:0", Deadline.after(1), nobody, folder=tmp_path):
            raise KeyError


def test_within_one_process_there_is_one_owner_too(tmp_path: Path) -> None:
    with (
        device_lock("cuda:0", Deadline.after(1), nobody, folder=tmp_path),
        pytest.raises(DeadlineExceeded, match=f"process {os.getpid()}"),
        device_lock("cuda:0", Deadline.after(0), nobody, folder=tmp_path),
    ):
        raise AssertionError("two owners")


def test_the_lock_lies_in_the_users_runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platformdirs, "user_runtime_dir", lambda name: str(tmp_path / name))
    with device_lock("cpu", Deadline.after(1), nobody):
        assert (tmp_path / "conformance" / "cpu.lock").read_text() == f"{os.getpid()}\n"


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=20), st.text(max_size=20))
def test_no_two_devices_share_a_file_and_none_lies_elsewhere(one: str, other: str) -> None:
    names = lock._file_name(one), lock._file_name(other)
    assert (names[0] == names[1]) == (one == other)
    assert not set("./\\\0") & set("".join(names))
