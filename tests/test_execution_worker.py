"""Whatever an engine does to its worker, the parent learns what happened, and nothing is left running."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from conformance.codec import ProtocolError
from conformance.execution.caller import ask_facts
from conformance.execution.channel import Channel
from conformance.execution.deadline import Deadline
from conformance.execution.errors import (
    DeadlineExceeded,
    EnvironmentLacking,
    ExecutionError,
    OutOfMemory,
    RemoteFailure,
    ServerDied,
    WorkerCrashed,
    WorkerError,
    WorkerGone,
)
from conformance.execution.exit_status import ExitStatus
from conformance.execution.process import WorkerPool
from conformance.execution.remote import RemoteRunner
from conformance.runner import LoadRequest, NotSupported

ROOT = Path(__file__).parents[1]
ENGINES = Path(__file__).parent / "engines"
FAKE = "fake_runner:FakeRunner"
Start = Literal["fork", "spawn"]


def pool_of(log_dir: Path, start: Start = "fork", **environment: str) -> WorkerPool:
    # Any warning about forking, or anything else, ends the server.
    environment = {"PYTHONPATH": str(ENGINES), "PYTHONWARNINGS": "error", **environment}
    preload = ["fake_runner"] if start == "fork" else []
    return WorkerPool(sys.executable, environment=environment, preload=preload, start=start, log_dir=log_dir)


def request(**options: Any) -> LoadRequest:
    return LoadRequest("fake", "/nowhere", "embedding", "cpu", "none", "float32", options=options)


def runner(pool: WorkerPool, engine_class: str = FAKE, *, call_seconds: float = 20, **options: Any) -> RemoteRunner:
    return RemoteRunner(request(**options), pool, engine_class, load_seconds=20, call_seconds=call_seconds)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    folder = tmp_path_factory.mktemp("fork")
    with pool_of(folder) as pool:
        yield pool
    assert (folder / "server.log").read_text() == ""  # no warning about a fork with threads, nor any other


@pytest.fixture(scope="module")
def spawning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    folder = tmp_path_factory.mktemp("spawn")
    with pool_of(folder, "spawn") as pool:
        yield pool
    assert (folder / "server.log").read_text() == ""


def is_running(pid: int) -> bool:
    """Whether there is such a process; a zombie that nobody reaps has ended."""
    with contextlib.suppress(FileNotFoundError):
        return re.search(r"^State:\s+[ZX]", Path(f"/proc/{pid}/status").read_text(), re.M) is None
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return not Path("/proc/self").exists()
    return False


def eventually(holds: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = Deadline.after(seconds)
    while not holds():
        if deadline.has_passed:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_remote_runner_answers_as_the_runner_in_the_worker_does(start: str, request: pytest.FixtureRequest) -> None:
    pool = request.getfixturevalue("pool" if start == "fork" else "spawning")
    with runner(pool) as remote:
        assert remote.capabilities == {"embed", "classify", "generate", "reward"}
        vectors = remote.embed(("one", "three"), dimensions=7)
        assert vectors.prompt_token_ids == (tuple(b"one"), tuple(b"three"))
        assert vectors.values.tolist() == [[3, 7], [5, 7]] and vectors.values.dtype == np.float32
        image = np.full((2, 2, 3), 5, np.uint8)
        text = remote.generate([(1, 2), [3]], max_tokens=4, top_k=2, images=[[image], [image * 2]])
        assert text.token_ids == ((60,), (120,)) and text.prompt_token_ids == ((1, 2), (3,))
        assert text.texts == ("\ud800 é \x00",) * 2 and np.isnan(text.top_logprobs).all()
        worker = remote.worker
    assert worker.wait(Deadline.after(1)) == ExitStatus(0, None)
    assert "loading fake" in worker.log_tail()


@pytest.mark.parametrize(
    ("misdeed", "kind", "message"),
    [
        ("value_error", WorkerError, "classify raised ValueError: a tensor of the wrong shape"),
        ("memory_error", OutOfMemory, "MemoryError"),
        ("torch_memory_error", OutOfMemory, "Tried to allocate"),
        ("memory_error_below", OutOfMemory, "the engine core failed"),
        ("system_exit", WorkerError, "SystemExit: 9"),
        ("wrong_field", WorkerError, r"ProtocolError: value\.ok: ClassLogits\.values is list"),
        ("object", WorkerError, "ProtocolError: .* is a object, which does not travel"),
    ],
)
def test_what_an_engine_raises_arrives_with_its_traceback_and_the_worker_lives_on(
    pool: WorkerPool, misdeed: str, kind: type[RemoteFailure], message: str
) -> None:
    with runner(pool) as remote:
        with pytest.raises(kind, match=message) as raised:
            remote.classify([misdeed])
        assert type(raised.value) is kind
        assert "Traceback" in raised.value.remote_traceback and raised.value.type_name in raised.value.remote_traceback
        assert remote.dead is None
        assert len(remote.embed(["still here"]).values) == 1


def test_not_supported_arrives_as_itself(pool: WorkerPool) -> None:
    with runner(pool) as remote:
        with pytest.raises(NotSupported, match="no classes in this model"):
            remote.classify(["not_supported"])
        with pytest.raises(NotSupported, match="FakeRunner does not offer score_pairs; it offers classify, embed"):
            remote.score_pairs([("q", "d")])


def test_an_answer_of_another_kind_is_refused(pool: WorkerPool) -> None:
    with runner(pool) as remote, pytest.raises(ProtocolError, match="reward answered Vectors, but should answer Scal"):
        remote.reward([[{"role": "user", "content": "hi"}]])


def test_an_argument_that_cannot_travel_is_refused_and_the_worker_lives_on(pool: WorkerPool) -> None:
    with runner(pool) as remote:
        with pytest.raises(ProtocolError, match=r"value\.args\[0\]\[0\] is a bytes"):
            remote.embed([b"bytes"])  # type: ignore[list-item]
        assert len(remote.embed(["text"]).values) == 1


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize(
    ("misdeed", "status", "message"),
    [
        ("segfault", ExitStatus(None, signal.SIGSEGV), r"killed by SIGSEGV while running classify; last output"),
        ("abort", ExitStatus(None, signal.SIGABRT), r"killed by SIGABRT while running classify"),
        ("exit 3", ExitStatus(3, None), r"exited with code 3 while running classify"),
        ("exit 0", ExitStatus(0, None), r"exited with code 0 while running classify"),
        ("sigkill", ExitStatus(None, signal.SIGKILL), r"SIGKILL \(most likely by the kernel's out-of-memory killer\)"),
        ("flood_and_exit", ExitStatus(4, None), r"noise\nthe very last line$"),
    ],
)
def test_a_crash_is_told_with_its_cause_and_every_later_call_refers_to_it(
    start: str, misdeed: str, status: ExitStatus, message: str, request: pytest.FixtureRequest
) -> None:
    pool = request.getfixturevalue("pool" if start == "fork" else "spawning")
    with runner(pool) as remote:
        with pytest.raises(WorkerCrashed, match=message) as raised:
            remote.classify([misdeed])
        assert raised.value.status == status and len(str(raised.value)) < 6_000
        assert remote.dead == f"{status} while running classify"
        for _ in range(2):
            with pytest.raises(WorkerGone, match=f"embed was not run, because the worker {status} while running class"):
                remote.embed(["x"])
        assert remote.close() == {}
    with runner(pool) as fresh:
        assert len(fresh.embed(["x"]).values) == 1


def test_a_crash_in_python_code_shows_its_stack(pool: WorkerPool) -> None:
    with runner(pool) as remote, pytest.raises(WorkerCrashed, match=r"(?s)Segmentation fault.*in classify"):
        remote.classify(["segfault"])


@pytest.mark.parametrize("misdeed", ["hang", "hang_in_c"])
def test_a_hang_ends_at_the_deadline_with_the_worker_killed_and_its_stack_shown(pool: WorkerPool, misdeed: str) -> None:
    with runner(pool, call_seconds=0.5) as remote:
        worker = remote.worker
        begin = time.monotonic()
        with pytest.raises(DeadlineExceeded, match=r"(?s)classify .*deadline of 0\.5 s passed.*fake_runner\.py.*_hang"):
            remote.classify([misdeed])
        assert time.monotonic() - begin < 5
        assert worker.poll() == ExitStatus(None, signal.SIGKILL) and not is_running(worker.pid)
        with pytest.raises(WorkerGone, match=r"was killed because classify missed its deadline of 0\.5 s"):
            remote.classify(["hang"])


def test_the_deadline_of_a_case_cuts_that_of_a_call(pool: WorkerPool) -> None:
    with runner(pool, call_seconds=60) as remote:
        remote.deadline = Deadline.after(0.3)
        with pytest.raises(DeadlineExceeded, match=r"deadline of 0\.3 s"):
            remote.classify(["hang"])


def test_a_load_that_hangs_ends_at_its_deadline(pool: WorkerPool) -> None:
    remote = RemoteRunner(request(), pool, "fake_runner:SlowToLoad", load_seconds=0.3, call_seconds=9)
    with pytest.raises(DeadlineExceeded, match="load had not ended"):
        remote.__enter__()
    assert not is_running(remote.worker.pid)


@pytest.mark.parametrize("misdeed", ["fork_and_crash", "fork_and_hang"])
def test_the_children_of_a_worker_end_with_it(pool: WorkerPool, tmp_path: Path, misdeed: str) -> None:
    note = tmp_path / "pid"
    with runner(pool, call_seconds=1) as remote:
        begin = time.monotonic()
        with pytest.raises(WorkerCrashed if misdeed == "fork_and_crash" else DeadlineExceeded):
            remote.classify([f"{misdeed} {note}"])
        assert time.monotonic() - begin < 5
    grandchild = int(note.read_text())
    assert eventually(lambda: not is_running(grandchild))


def test_what_is_written_to_the_standard_descriptors_does_not_disturb_the_protocol(pool: WorkerPool) -> None:
    with runner(pool) as remote:
        with pytest.raises(WorkerError, match="after the flood"):
            remote.classify(["flood"])
        tail = remote.worker.log_tail()
        assert tail.endswith("the very last line") and len(tail) < 5_000 and "\x1b" not in tail
        assert len(remote.embed(["x"]).values) == 1


def test_a_worker_that_breaks_the_protocol_is_killed(pool: WorkerPool) -> None:
    with runner(pool) as remote:
        with pytest.raises(ProtocolError, match="not this protocol"):
            remote.classify(["break_protocol"])
        assert remote.dead == "sent a malformed answer to classify and was killed"
        assert not is_running(remote.worker.pid)


@pytest.mark.parametrize(
    ("engine_class", "kind", "message"),
    [
        ("fake_runner:NoDevice", EnvironmentLacking, "Found no accelerator driver"),
        ("fake_runner:NoPackage", EnvironmentLacking, "a_package_that_nobody_has"),
        ("no_such_module:Runner", EnvironmentLacking, "No module named 'no_such_module'"),
        ("fake_runner:Missing", EnvironmentLacking, "module fake_runner has no Missing"),
        ("fake_runner:NoRunner", WorkerError, "should be a subclass of conformance.runner.Runner"),
        ("fake_runner:ClaimsTooMuch", WorkerError, r"claims the capabilities \['divine'\]"),
        ("fake_runner", WorkerError, "should have the form module:attribute"),
    ],
)
def test_a_runner_that_cannot_be_loaded_says_why_and_leaves_no_worker(
    pool: WorkerPool, engine_class: str, kind: type[RemoteFailure], message: str
) -> None:
    remote = runner(pool, engine_class)
    with pytest.raises(kind, match=message):
        remote.__enter__()
    assert not is_running(remote.worker.pid)


def test_a_crash_while_closing_is_told(pool: WorkerPool) -> None:
    remote = runner(pool, on_exit="segfault").__enter__()
    with pytest.raises(WorkerCrashed, match="SIGSEGV while running close"):
        remote.__exit__(None, None, None)


def test_a_crash_while_closing_does_not_hide_the_error_that_led_there(pool: WorkerPool) -> None:
    with pytest.raises(KeyError), runner(pool, on_exit="segfault"):
        raise KeyError


def test_an_interrupted_call_kills_the_worker(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Channel, deadline: Deadline) -> None:
        raise KeyboardInterrupt

    with runner(pool) as remote:
        with monkeypatch.context() as patch:
            patch.setattr(type(remote.worker.channel), "receive", interrupted)
            patch.setattr(remote.worker, "kill", lambda: None)  # which asks the server through the same class
            with pytest.raises(KeyboardInterrupt):
                remote.embed(["x"])
        assert remote.dead == "was killed because embed was interrupted"
        remote.worker.kill()


def test_a_worker_ignores_an_interrupt(pool: WorkerPool) -> None:
    with runner(pool) as remote:
        os.kill(remote.worker.pid, signal.SIGINT)
        assert len(remote.embed(["x"]).values) == 1


def test_a_worker_leads_its_own_session(pool: WorkerPool) -> None:
    with runner(pool) as remote:
        assert os.getsid(remote.worker.pid) == os.getpgid(remote.worker.pid) == remote.worker.pid


def test_facts_tell_the_peak_of_resident_memory_and_what_a_probe_finds(pool: WorkerPool) -> None:
    with runner(pool) as remote:
        facts = remote.facts("fake_runner:probe")
        assert facts["device"] == "none" and 5 < facts["peak_resident_mib"] < 10_000
    assert remote.last_facts["peak_resident_mib"] >= facts["peak_resident_mib"]
    assert ask_facts(pool, "fake_runner:probe", 20)["device"] == "none"
    with pytest.raises(EnvironmentLacking):
        ask_facts(pool, "no_such_module:probe", 20)


def test_the_environment_reaches_the_worker_and_idle_threads_are_passive(tmp_path: Path) -> None:
    with pool_of(tmp_path, "spawn", A_SETTING="of the target") as pool, pool.start_worker() as worker:
        environment = Path(f"/proc/{worker.pid}/environ").read_bytes().split(b"\0")
        assert b"A_SETTING=of the target" in environment and b"OMP_WAIT_POLICY=PASSIVE" in environment


def test_the_server_has_one_thread_when_it_has_forked(pool: WorkerPool) -> None:
    with pool.start_worker():
        assert len(list(Path(f"/proc/{pool.server_pid}/task").iterdir())) == 1


def test_a_preload_that_starts_a_thread_is_refused(tmp_path: Path) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(9,)).start()"
    )
    with WorkerPool(
        sys.executable, environment={"PYTHONPATH": str(tmp_path)}, preload=["threaded"], log_dir=tmp_path
    ) as pool:
        for _ in range(2):
            with pytest.raises(ServerDied, match=r"could not import threaded: .*threaded started the threads"):
                pool.start_worker()


def test_a_preload_that_opens_a_device_is_refused(tmp_path: Path) -> None:
    (tmp_path / "device.py").write_text("import pty; ends = pty.openpty(); file = open('/dev/fuse')")
    if not os.access("/dev/fuse", os.R_OK):
        pytest.skip("there is no device file here that anyone may open")
    with (
        WorkerPool(
            sys.executable, environment={"PYTHONPATH": str(tmp_path)}, preload=["device"], log_dir=tmp_path
        ) as pool,
        pytest.raises(ServerDied, match=r"importing device opened \['/dev/fuse'\]"),
    ):
        pool.start_worker()


def test_a_preload_that_cannot_be_imported_is_told(tmp_path: Path) -> None:
    with (
        WorkerPool(sys.executable, environment={}, preload=["no_such_module"], log_dir=tmp_path) as pool,
        pytest.raises(ServerDied, match="could not import no_such_module: ModuleNotFoundError"),
    ):
        pool.start_worker()


def test_an_interpreter_that_does_not_exist_is_told(tmp_path: Path) -> None:
    with pytest.raises(ServerDied, match="/no/such/python cannot be started"):
        WorkerPool("/no/such/python", environment={}, log_dir=tmp_path).__enter__()


def test_a_pool_refuses_options_that_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="should be 'fork' or 'spawn'"):
        WorkerPool(sys.executable, environment={}, start="threads", log_dir=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="preload should be empty"):
        WorkerPool(sys.executable, environment={}, preload=["json"], start="spawn", log_dir=tmp_path)


def test_a_pool_that_was_not_entered_starts_nothing(tmp_path: Path) -> None:
    with pytest.raises(ExecutionError, match="was not entered"):
        WorkerPool(sys.executable, environment={}, log_dir=tmp_path).start_worker()


def test_when_the_server_is_killed_the_error_says_so_and_the_workers_are_gone(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    with pool_of(tmp_path) as pool:
        remote, other = runner(pool, call_seconds=0.5).__enter__(), runner(pool).__enter__()
        os.kill(pool.server_pid, signal.SIGKILL)
        with pytest.raises(ServerDied, match=r"the worker server .* was killed by SIGKILL; its workers went with it"):
            remote.classify([f"fork_and_hang {note}"])
        with pytest.raises((WorkerGone, ServerDied)):
            remote.embed(["x"])
        with pytest.raises(ServerDied, match="was killed by SIGKILL"):
            pool.start_worker()
        with pytest.raises(ServerDied, match="was killed by SIGKILL"):
            other.close()
        assert eventually(lambda: not is_running(remote.worker.pid) and not is_running(other.worker.pid))
        assert eventually(lambda: not note.exists() or not is_running(int(note.read_text() or 0)))


PARENT = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_execution_worker import pool_of, runner
with pool_of(Path({log_dir!r}), {start!r}) as pool, runner(pool) as idle, runner(pool, call_seconds=600) as busy:
    print(pool.server_pid, idle.worker.pid, busy.worker.pid, flush=True)
    busy.classify(["fork_and_hang {note}"])
"""


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize("victims", ["the parent", "parent and server"])
def test_when_the_parent_is_killed_server_workers_and_their_children_go(
    tmp_path: Path, start: str, victims: str
) -> None:
    note = tmp_path / "pid"
    code = PARENT.format(tests=str(Path(__file__).parent), log_dir=str(tmp_path), start=start, note=note)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 3 and eventually(lambda: note.exists() and note.read_text() != "")
        parent.kill()
        if victims == "parent and server":
            os.kill(pids[0], signal.SIGKILL)  # the kernel then ends the workers, but not the children of theirs
            os.kill(int(note.read_text()), signal.SIGKILL)
        pids.append(int(note.read_text()))
        assert eventually(lambda: not any(map(is_running, pids))), pids


def test_leaving_a_pool_ends_workers_that_were_forgotten(tmp_path: Path) -> None:
    with pool_of(tmp_path) as pool:
        pids = [pool.server_pid, pool.start_worker().pid, pool.start_worker().pid]
    assert not any(map(is_running, pids))


def test_leaving_a_pool_does_not_wait_for_its_imports(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(60)")
    begin = time.monotonic()
    with WorkerPool(sys.executable, environment={"PYTHONPATH": str(tmp_path)}, preload=["slow"], log_dir=tmp_path):
        pass
    assert time.monotonic() - begin < 5


def test_imports_that_take_too_long_are_given_up(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(60)")
    environment = {"PYTHONPATH": str(tmp_path)}
    with (
        WorkerPool(
            sys.executable, environment=environment, preload=["slow"], log_dir=tmp_path, ready_seconds=0.3
        ) as pool,
        pytest.raises(DeadlineExceeded, match=r"the worker server has not answered within 0\.3 s"),
    ):
        pool.start_worker()


def test_waiting_for_a_worker_that_runs_on_ends_at_the_deadline(pool: WorkerPool) -> None:
    with pool.start_worker() as worker:
        assert worker.poll() is None
        with pytest.raises(DeadlineExceeded, match="has not ended within"):
            worker.wait(Deadline.after(0.05))
        assert worker.kill() == worker.kill() == ExitStatus(None, signal.SIGKILL)


def test_a_worker_whose_channel_is_closed_ends_by_itself(pool: WorkerPool) -> None:
    worker = pool.start_worker()
    worker.channel.close()
    assert worker.wait(Deadline.after(10)) == ExitStatus(0, None)


def test_nothing_of_the_pools_descriptors_leaks(pool: WorkerPool) -> None:
    def count(pid: int | str) -> int:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))

    with pool.start_worker():
        pass
    before = count("self"), count(pool.server_pid)
    for _ in range(3):
        with pool.start_worker():
            pass
    assert (count("self"), count(pool.server_pid)) == before


def test_an_exit_status_names_its_signal() -> None:
    assert str(ExitStatus.of(3)) == "exited with code 3"
    assert str(ExitStatus.of(-signal.SIGSEGV)) == "was killed by SIGSEGV"
    assert str(ExitStatus.of(-40)) == "was killed by signal 40"


@pytest.mark.torch
def test_forked_workers_compute_with_two_threads_of_torch_after_the_fork(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    environment = {"PYTHONPATH": str(ENGINES)}
    with WorkerPool(sys.executable, environment=environment, preload=["torch"], log_dir=tmp_path) as pool:
        for _ in range(2):
            facts = ask_facts(pool, "fake_runner:torch_probe", 60)
            assert facts["sum"] == 2 * 512 * 512 and facts["threads"] == 2 and facts["wait_policy"] == "PASSIVE"
