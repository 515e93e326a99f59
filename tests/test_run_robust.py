"""What goes wrong around a run: the disk, the device, the clock, the terminal. Each costs what it must, and no more."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zenith_site
from background import eventually, in_flight
from zenith_site import PLAIN, Ran, profile, quirk
from zenith_site import run_plain as run

from conformance.results.journal import read_journal
from conformance.results.validation import read_document

KINDS = "test_kinds_are_complete"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zenith_site.install(tmp_path_factory.mktemp("vendor") / "site")


def command(folder: Path, *arguments: str) -> list[str]:
    return [
        *(sys.executable, "-m", "conformance", "--backend", "zenith", "--suite", "colours"),
        *(*PLAIN, "--output", str(folder / "out"), *arguments),
    ]


def limited(site: Path, folder: Path, size: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A run none of whose files may grow beyond this size: what it writes stops as on a full disk."""
    return zenith_site.executed(site, command(folder, *arguments), file_limit=size)


def altered_start(site: Path, folder: Path, code: str, *arguments: Any, **more: str) -> Ran:
    """A run in an interpreter that has executed `code` first."""
    script = folder / "altered_start.py"
    script.write_text(f"{code}\nimport sys\nfrom conformance.__main__ import main\nsys.exit(main())\n")
    process = zenith_site.executed(
        site,
        [sys.executable, str(script), *map(str, arguments), "--suite", "colours", "--output", str(folder / "out")],
        PYTHONPATH=f"{site}{os.pathsep}{zenith_site.ROOT}",
        **more,
    )
    return Ran(process, folder / "out")


# The disk.


def test_a_journal_that_fills_the_disk_goes_on_when_there_is_room_again(site: Path, tmp_path: Path) -> None:
    whole = run(site, tmp_path / "whole")
    lines = (whole.output / "journal.jsonl").read_bytes().splitlines(keepends=True)
    finished = [number for number, line in enumerate(lines) if b'"kind": "finished"' in line]
    size = len(b"".join(lines[: finished[2] + 1])) - 100  # the third verdict does not fit
    done = limited(site, tmp_path, size)
    assert done.returncode == 3 and "journal.jsonl: the file may not grow further" in done.stderr, done.stderr
    assert "--resume goes on" in done.stderr and "Traceback" not in done.stderr
    left = read_journal(tmp_path / "out")
    assert len(left.results) == 2 and left.in_flight == () and not left.torn
    again = run(site, tmp_path, "--resume")
    assert (again.code, set(again.verdicts.values())) == (0, {"PASS"}), again.said
    assert {case["attempts"] for case in again.cases.values()} == {1}


def test_a_record_that_fills_the_disk_is_made_from_the_journal_when_there_is_room_again(
    site: Path, tmp_path: Path
) -> None:
    whole = run(site, tmp_path / "whole")
    journal, record = ((whole.output / name).stat().st_size for name in ("journal.jsonl", "results.json"))
    assert journal + 500 < record
    done = limited(site, tmp_path, journal + 500)
    assert done.returncode == 3 and "results.json: the file may not grow" in done.stderr, done.stderr
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"journal.jsonl", ".lock"}
    again = run(site, tmp_path, "--resume")
    assert (again.code, again.junit["testcase"]) == (0, 5), again.said
    assert "nothing to resume" in again.process.stdout


def has_mounts() -> bool:
    """Whether this user may mount a file system in a name space of their own."""
    probe = ["unshare", "--mount", "--map-root-user", "mount", "-t", "tmpfs", "none", "/mnt"]
    with contextlib.suppress(FileNotFoundError):
        return subprocess.run(probe, capture_output=True, check=False).returncode == 0
    return False


@pytest.mark.skipif(not has_mounts(), reason="no mounts without privileges here; the limits above stand in for them")
def test_a_tiny_disk_that_is_full_is_said_and_the_run_goes_on_after_it_was_freed(site: Path, tmp_path: Path) -> None:
    """All in one mount name space, because a tmpfs ends with it: a run on a full disk, room, and the run resumed."""
    disk = tmp_path / "out"
    disk.mkdir()
    whole = run(site, tmp_path / "whole")
    room = (whole.output / "journal.jsonl").stat().st_size * 4 // 10
    pages = room // 4096 + 1
    script = f"""
mount -t tmpfs -o size=1m none {disk}
head -c $((1048576 - {pages} * 4096 - 8192)) /dev/zero > {disk}/ballast
"$@"
echo "code $?"
cp {disk}/journal.jsonl {tmp_path}/journal.jsonl
rm {disk}/ballast
"$@" --resume
echo "code $?"
cp {disk}/results.json {tmp_path}/results.json
"""
    mounting = ["unshare", "--mount", "--map-root-user", "sh", "-c", script, "sh", *command(tmp_path)]
    done = zenith_site.executed(site, mounting, seconds=120)
    assert [line for line in done.stdout.splitlines() if line.startswith("code")] == ["code 3", "code 0"], done
    assert "the disk is full; free space on it or give --output a folder on another one" in done.stderr
    left = read_journal(tmp_path)
    assert len(left.results) < 5 and left.in_flight == () and not left.torn
    assert {case["verdict"] for case in read_document(tmp_path / "results.json")["cases"]} == {"PASS"}


# The device.


@pytest.mark.parametrize(
    ("deed", "verdict"),
    [("lose_device_and_raise", "ERROR"), ("lose_device_and_hang", "TIMEOUT"), ("lose_device_and_crash", "CRASH")],
)
def test_a_device_that_disappears_costs_one_case_and_the_rest_is_not_launched(
    site: Path, tmp_path: Path, deed: str, verdict: str
) -> None:
    deeds = f'options = {{ misdeeds = {{ classify = "{deed}", load = "need_device" }} }}'
    text = profile(device="zenith", engine=deeds)
    begin = time.monotonic()
    gone = str(tmp_path / "gone")
    done = zenith_site.run(site, tmp_path, "--deadline", "2", text=text, ZENITH_GONE=gone)
    assert time.monotonic() - begin < 40
    verdicts = list(done.verdicts.values())
    assert (done.code, verdicts) == (1, ["PASS", "PASS", verdict] + ["ENVIRONMENT"] * 7), done.said
    reason = "the zenith device disappeared during the run: torch 2.13.0 sees no zenith device on this machine"
    assert all(case["reason"].startswith(reason) for case in list(done.cases.values())[3:])
    assert done.process.stdout.count("nothing more is launched") == 1
    assert (done.output / "journal.jsonl").read_text().count('"kind": "started"') == 3
    more = ("--deadline", "2", "--resume")
    refused = zenith_site.run(site, tmp_path, *more, text=text, ZENITH_GONE=gone)
    assert refused.code == 4 and "device.available: true then, false now" in refused.process.stderr, refused.said
    again = zenith_site.run(site, tmp_path, *more, text=text, ZENITH_GONE=str(tmp_path / "goes later"))
    verdicts = [*("PASS", "PASS", verdict, "PASS", "PASS"), *("PASS", "PASS", verdict, "ENVIRONMENT", "ENVIRONMENT")]
    assert list(again.verdicts.values()) == verdicts, again.said


def test_a_device_that_is_gone_when_a_model_is_loaded_is_noticed_too(site: Path, tmp_path: Path) -> None:
    loses = quirk('attention = "quick"', 'options = { misdeeds = { load = "lose_device_and_refuse" } }')
    text = profile(device="zenith", add=loses)
    done = zenith_site.run(site, tmp_path, text=text, ZENITH_GONE=str(tmp_path / "gone"))
    assert list(done.verdicts.values()) == ["PASS"] * 5 + ["ENVIRONMENT"] * 5, done.said
    assert (done.output / "journal.jsonl").read_text().count('"kind": "started"') == 6


def test_an_engine_that_fails_on_a_device_that_is_there_goes_on(site: Path, tmp_path: Path) -> None:
    text = profile(device="zenith", engine='options = { misdeeds = { score_pairs = "raise", classify = "segfault" } }')
    done = zenith_site.run(site, tmp_path, text=text)
    assert set(done.verdicts.values()) == {"ERROR", "CRASH", "PASS"}, done.said
    assert "disappeared" not in done.said


@pytest.fixture
def taken(site: Path) -> Iterator[None]:
    """The device's lock is held, by this very process."""
    folder = site.parent / "runtime" / "conformance"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "zenith%3a0.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write("4711\n")
        file.flush()
        yield
        file.truncate(0)


def test_a_device_that_nobody_gives_back_leaves_results_that_say_so(site: Path, tmp_path: Path, taken: None) -> None:
    (tmp_path / "profile.toml").write_text(profile(device="zenith"))
    code = "import conformance.execution.device as device\ndevice.LOCK_SECONDS = 0.3"
    done = altered_start(site, tmp_path, code, "--profile", tmp_path / "profile.toml")
    assert (done.code, set(done.verdicts.values())) == (5, {"ENVIRONMENT"}), done.said
    reasons = {case["reason"] for case in done.cases.values()}
    assert reasons == {"the device zenith:0 is still held by process 4711 after 0.3 s"}
    assert "waiting for the zenith device, which process 4711 is testing" in done.process.stdout
    assert done.junit == {"testcase": 10, "failure": 0, "error": 0, "skipped": 10}


def test_a_machine_without_a_place_for_locks_is_measured_and_told(site: Path, tmp_path: Path) -> None:
    (tmp_path / "profile.toml").write_text(profile(device="zenith"))
    code = "from conformance.execution import lock\nlock._runtime_folder = lambda: lock.Path('/dev/null/x')"
    done = altered_start(site, tmp_path, code, "--profile", tmp_path / "profile.toml")
    assert (done.code, set(done.verdicts.values())) == (0, {"PASS"}), done.said
    assert "the zenith device is used without a lock" in done.process.stdout
    assert "Not a directory: '/dev/null/x'" in done.process.stdout


# The clock.

JUMPING = """
import datetime, itertools, time
jumps, real = itertools.cycle([0, -3600, 3600, 0, 7200]), datetime.datetime
class Jumping(real):
    @classmethod
    def now(cls, zone=None):
        return real.now(zone) + datetime.timedelta(seconds=next(jumps))
datetime.datetime = Jumping
wall = time.time
time.time = lambda: wall() + next(jumps)
"""


def test_a_clock_that_jumps_makes_no_time_negative_and_no_journal_unreadable(site: Path, tmp_path: Path) -> None:
    done = altered_start(site, tmp_path, JUMPING, "--backend", "zenith")
    assert (done.code, set(done.verdicts.values())) == (0, {"PASS"}), done.said
    record = done.document["run"]
    assert 0 < record["duration_s"] < 60 and record["started"] <= record["finished"]
    assert all(0 <= case["duration_s"] < 60 for case in done.cases.values())
    started = [case["started"] for case in done.cases.values()]
    assert started != sorted(started)  # it did jump
    times = [json.loads(line).get("at", 0) for line in (done.output / "journal.jsonl").read_text().splitlines()]
    assert times == sorted(times)
    assert len(read_journal(done.output).results) == 10


def test_a_lock_whose_time_is_wrong_is_still_free_when_its_holder_has_gone(site: Path, tmp_path: Path) -> None:
    first = run(site, tmp_path)
    for age in (-(10**8), 10**8):
        os.utime(first.output / ".lock", (time.time() + age, time.time() + age))
        assert run(site, tmp_path).code == 0


# The terminal.


@contextlib.contextmanager
def on_a_terminal(site: Path, folder: Path, text: str, *, nohup: bool) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A run whose controlling terminal it is; the answer is the process and the terminal's other end."""
    (folder / "profile.toml").write_text(text)
    ours, theirs = pty.openpty()

    def own_terminal() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "conformance", "--profile", str(folder / "profile.toml"), "--suite", "colours"),
            *(*PLAIN, "--output", str(folder / "out")),
        ],
        cwd=zenith_site.ROOT,
        env=zenith_site.environment(site, TERM="xterm", ZENITH_MARKER=str(folder / "marker")),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=own_terminal,
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait(10)


def test_a_terminal_that_closes_interrupts_the_run_and_what_had_ended_is_written(site: Path, tmp_path: Path) -> None:
    text = profile(engine='options = { misdeeds = { classify = "hang" } }')
    with on_a_terminal(site, tmp_path, text, nohup=False) as (process, terminal):
        assert eventually(lambda: in_flight(tmp_path, KINDS))
        os.close(terminal)
        assert process.wait(20) == 2
    record = read_document(tmp_path / "out" / "results.json")
    assert record["run"]["interrupted"] and [case["verdict"] for case in record["cases"]] == ["PASS", "PASS"]
    assert read_journal(tmp_path / "out").in_flight == ()


def test_under_nohup_a_terminal_that_closes_ends_nothing(site: Path, tmp_path: Path) -> None:
    text = profile(engine='options = { misdeeds = { classify = "wait_for_marker" } }')
    with on_a_terminal(site, tmp_path, text, nohup=True) as (process, terminal):
        assert eventually(lambda: in_flight(tmp_path, KINDS))
        os.close(terminal)
        (tmp_path / "marker").touch()
        assert process.wait(30) == 0
    record = read_document(tmp_path / "out" / "results.json")
    assert [case["verdict"] for case in record["cases"]] == ["PASS"] * 5


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("subcommand", [("list",), ("list", "--json"), ("validate",)])
def test_what_cannot_be_printed_is_said_on_the_other_stream(
    site: Path, subcommand: tuple[str, ...], unbuffered: str
) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "conformance", *subcommand, "--backend", "zenith"],
            cwd=zenith_site.ROOT,
            env=zenith_site.environment(site, PYTHONUNBUFFERED=unbuffered),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 3
    assert done.stderr == "conformance: standard output cannot be written: No space left on device\n"
