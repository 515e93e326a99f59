"""The journal keeps everything that was finished, whatever ended the run."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import header, result

from conformance.results.former import make_room
from conformance.results.journal import JournalError, Start, read_journal
from conformance.results.journal_writer import Journal
from conformance.results.output import OutputError, remove_former_run, write_atomically
from conformance.results.record import CaseResult, Counters
from conformance.verdict import Verdict

FIRST = result(test="test_first")
SECOND = result(Verdict.FAIL, test="test_second")
HEADER = header([FIRST, SECOND])
COST = Counters(0, 2, 1, 99.5)


def _record(folder: Path) -> bytes:
    with Journal.create(folder, HEADER) as journal:
        journal.started(FIRST.id)
        journal.finished(FIRST)
        journal.sync(FIRST.target.id, COST)
        journal.started(SECOND.id)
        journal.finished(SECOND)
    return (folder / "journal.jsonl").read_bytes()


def test_a_journal_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    _record(tmp_path)
    content = read_journal(tmp_path)
    assert content.header == HEADER
    assert content.results == (FIRST, SECOND)
    assert content.synced == (FIRST.target.id,)
    assert (content.in_flight, content.torn) == ((), False)


def test_a_case_without_a_verdict_was_in_flight(tmp_path: Path) -> None:
    with Journal.create(tmp_path, HEADER) as journal:
        journal.started(FIRST.id)
        journal.finished(FIRST)
        journal.started(SECOND.id)
    assert read_journal(tmp_path).in_flight == (SECOND.id,)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return _record(tmp_path_factory.mktemp("whole"))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_journal_cut_anywhere_gives_back_every_whole_line(
    whole: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    lines = whole.splitlines(keepends=True)
    cut = data.draw(st.integers(len(lines[0]), len(whole)))
    folder = tmp_path_factory.mktemp("cut")
    (folder / "journal.jsonl").write_bytes(whole[:cut])
    content = read_journal(folder)
    kept = whole[:cut].count(b"\n")
    assert content.torn == (not whole[:cut].endswith(b"\n"))
    assert len(content.results) == sum(b'"finished"' in line for line in lines[:kept])


def _broken(whole: bytes) -> Iterator[tuple[str, bytes, str]]:
    lines = whole.splitlines(keepends=True)
    yield "torn in the middle", b"".join([lines[0], lines[1][:9] + b"\n", *lines[2:]]), "line 2"
    yield "torn last line with an end", whole[:-9] + b"\n", "line 6"
    yield "no header", b"".join(lines[1:]), "line 1"
    yield "header cut off", lines[0][:-5], "not even the run's header"
    yield "empty", b"", "not even the run's header"
    yield "two headers", lines[0] + lines[0], "line 2"
    yield "a second verdict", whole + lines[-1], "second verdict"
    yield "launched after its verdict", whole + lines[-2], "launched again"
    yield "a case that was not planned", whole + b'{"kind": "started", "id": "x", "at": 1}\n', "no case of the plan"
    unplanned = lines[-1].replace(b"test_second[", b"test_third[")
    yield "a verdict that was not planned", b"".join([*lines[:-1], unplanned]), "no case of the plan"
    yield "no time", whole + b'{"kind": "target", "target": "x", "counters": {}}\n', "counters"
    yield "a resume without a boot", whole + b'{"kind": "resumed", "started": "", "argv": []}\n', "without 'boot_id'"
    yield (
        "a resume of the wrong type",
        whole + b'{"kind": "resumed", "started": 1, "argv": [], "boot_id": ""}\n',
        "text",
    )
    yield (
        "a resume at another time",
        whole + b'{"kind": "resumed", "started": "noon", "argv": [], "boot_id": ""}\n',
        "like",
    )
    yield "a start without a zone", lines[0].replace(b"10:00:00Z", b"10:00:00"), "like 2026-11-30T10"
    for at in (b"-1", b'"inf"', b"1e99", b"true"):
        yield f"at {at!r}", lines[0] + lines[1].replace(b'"at": ', b'"at": ' + at + b', "was": '), "at: "
    yield "deeply nested", whole + b"[" * 100_000 + b"\n", "no JSON"
    yield "unknown kind", whole + b'{"kind": "paused"}\n', "'paused'"
    yield "no kind", whole + b'{"id": "x"}\n', "'kind'"
    yield "not an object", whole + b"[1]\n", "'kind'"
    yield "no id", whole + b'{"kind": "started"}\n', "without 'id'"
    yield "an id that is none", whole + b'{"kind": "started", "id": [1]}\n', "no case of the plan"
    yield "no result", whole + b'{"kind": "finished", "result": {"id": "x"}}\n', "missing"
    yield "a header with a word too many", lines[0][:-2] + b', "more": 1}\n', "exactly"
    yield "a header of the wrong type", lines[0].replace(b'"backend": "cpu"', b'"backend": 7'), "backend is 7"


def test_every_other_damage_is_refused_with_its_line(whole: bytes, tmp_path: Path) -> None:
    for name, data, said in _broken(whole):
        (tmp_path / "journal.jsonl").write_bytes(data)
        with pytest.raises(JournalError) as caught:
            read_journal(tmp_path)
        assert said in str(caught.value), name


def test_a_missing_journal_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"journal\.jsonl"):
        read_journal(tmp_path)


def test_a_second_run_does_not_overwrite_the_first(tmp_path: Path) -> None:
    before = _record(tmp_path)
    with pytest.raises(OutputError, match="holds another run"):
        Journal.create(tmp_path, HEADER)
    assert (tmp_path / "journal.jsonl").read_bytes() == before


def test_replacing_a_run_removes_what_was_derived_from_it_and_nothing_else(tmp_path: Path) -> None:
    _record(tmp_path)
    (tmp_path / "rows").mkdir()
    for name in ("results.json", "junit.xml", "rows/0123456789abcdef.safetensors", "notes.txt"):
        (tmp_path / name).write_text("of the first run")
    remove_former_run(tmp_path)
    Journal.create(tmp_path, HEADER).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal.jsonl", "notes.txt"]
    assert read_journal(tmp_path).results == ()


def test_every_line_is_redacted_before_it_is_written(tmp_path: Path) -> None:
    def redact(value: object) -> object:
        return json.loads(json.dumps(value).replace("a processor", "<device>"))

    Journal.create(tmp_path, HEADER, redact=redact).close()
    assert b"a processor" not in (tmp_path / "journal.jsonl").read_bytes()


AGAIN = Start("2026-11-30T11:00:00Z", ("--resume",), "boot 2")
THIRD, FOURTH = result(Verdict.ENVIRONMENT, test="test_third"), result(Verdict.NOT_RUN, test="test_fourth")
FIFTH = result(Verdict.CRASH, test="test_fifth")
EVERY = header([FIRST, SECOND, THIRD, FOURTH, FIFTH], boot_id="boot 1")


def test_a_journal_that_is_resumed_keeps_verdicts_and_drops_what_could_not_run(tmp_path: Path) -> None:
    with Journal.create(tmp_path, EVERY) as journal:
        for one in (FIRST, THIRD, FOURTH, FIFTH):
            journal.finished(one)
        journal.sync(FIRST.target.id, COST)
        journal.started(SECOND.id)
    killed = read_journal(tmp_path)
    assert killed.results == (FIRST, THIRD, FOURTH, FIFTH)
    assert killed.pending == (SECOND.id, THIRD.id, FOURTH.id)
    Journal.resume(tmp_path, killed, AGAIN).close()
    resumed = read_journal(tmp_path)
    assert resumed.results == (FIRST, FIFTH) and resumed.pending == killed.pending
    assert resumed.launches == {SECOND.id: (0,)}
    assert [(start.started, start.boot_id) for start in resumed.starts] == [
        (EVERY.started, "boot 1"),
        (AGAIN.started, "boot 2"),
    ]
    assert resumed.starts[0].counters == COST
    with Journal.resume(tmp_path, resumed, AGAIN) as journal:
        journal.started(SECOND.id)
    assert read_journal(tmp_path).launches == {SECOND.id: (0, 2)}
    with Journal.resume(tmp_path, read_journal(tmp_path), AGAIN) as journal:
        for one in (SECOND, THIRD, FOURTH):
            journal.finished(one)
    assert read_journal(tmp_path).results == (FIRST, FIFTH, SECOND, THIRD, FOURTH)
    assert read_journal(tmp_path).in_flight == ()


def test_a_torn_line_is_cut_off_before_the_journal_goes_on(tmp_path: Path) -> None:
    whole = _record(tmp_path)
    lines = whole.splitlines(keepends=True)
    (tmp_path / "journal.jsonl").write_bytes(b"".join(lines[:-1]) + lines[-1][:-30])
    with Journal.resume(tmp_path, read_journal(tmp_path), AGAIN) as journal:
        journal.started(SECOND.id)
        journal.finished(SECOND)
    content = read_journal(tmp_path)
    assert content.results == (FIRST, SECOND) and not content.torn


def test_what_was_in_flight_when_the_run_was_interrupted_did_not_end_it(tmp_path: Path) -> None:
    with Journal.create(tmp_path, EVERY) as journal:
        journal.started(FIRST.id)
    with Journal.resume(tmp_path, read_journal(tmp_path), AGAIN) as journal:
        journal.started(FIRST.id)
        journal.ended(COST, interrupted=True)
    content = read_journal(tmp_path)
    assert content.launches == {FIRST.id: (0,)}  # the first time it was a death
    assert content.starts[1].interrupted and content.starts[1].counters == COST


def test_times_in_a_journal_never_go_back_though_the_clock_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0)
    _record(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()[1:]]
    times = [line["at"] for line in lines]
    assert times == sorted(times) and times[0] >= 0 and times[-1] < 60
    assert read_journal(tmp_path).starts[0].seconds == times[-1]


def test_a_journal_appears_with_its_header_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def full(descriptor: int, data: bytes) -> int:
        seen.append([path.name for path in tmp_path.iterdir()])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OutputError, match=r"journal\.jsonl: the disk is full"):
        Journal.create(tmp_path, HEADER)
    assert seen == [[".journal.jsonl.part"]] and not list(tmp_path.iterdir())


def test_a_verdict_that_finds_the_disk_full_leaves_no_case_to_blame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal.create(tmp_path, HEADER)
    journal.started(FIRST.id)
    with monkeypatch.context() as disk:
        disk.setattr(os, "write", _full)
        with pytest.raises(OutputError):
            journal.finished(FIRST)
    content = read_journal(tmp_path)
    assert (content.results, content.in_flight, content.torn) == ((), (), False)


def _full(descriptor: int, data: bytes) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def unfinished(folder: Path, *results: CaseResult) -> None:
    with Journal.create(folder, EVERY) as journal:
        for one in results:
            journal.finished(one)


def test_an_unfinished_run_is_put_aside_with_its_rows_and_can_be_resumed_there(tmp_path: Path) -> None:
    unfinished(tmp_path, FIRST)
    (tmp_path / "rows").mkdir()
    for name in ("results.json", "junit.xml", "notes.txt", "rows/0123456789abcdef.safetensors", "rows/mine.csv"):
        (tmp_path / name).write_text("of the first run")
    (tmp_path / ".results.json.a1b2c3.part").write_text("half")
    said = make_room(tmp_path)
    aside = tmp_path / "unfinished-20261130T100000"
    assert said is not None and "verdicts for 1 of 5 cases" in said and said.endswith(f"--resume --output {aside}")
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == {
        *("notes.txt", "rows/mine.csv"),
        *(f"{aside.name}/journal.jsonl", f"{aside.name}/rows/0123456789abcdef.safetensors"),
    }
    assert read_journal(aside).results == (FIRST,)
    unfinished(tmp_path, FIRST)
    assert "unfinished-20261130T100000-2" in str(make_room(tmp_path))


@pytest.mark.parametrize("results", [(), (THIRD,), (FIRST, SECOND, THIRD, FOURTH, FIFTH)])
def test_a_run_that_has_ended_or_measured_nothing_is_removed(tmp_path: Path, results: tuple[CaseResult, ...]) -> None:
    unfinished(tmp_path, *results)
    assert make_room(tmp_path) is None
    assert not list(tmp_path.iterdir())


def test_a_damaged_run_is_put_aside_too(tmp_path: Path) -> None:
    unfinished(tmp_path, FIRST)
    with (tmp_path / "journal.jsonl").open("ab") as file:
        file.write(b"\0\0\n")
    said = make_room(tmp_path)
    assert said is not None and "line 3" in said and said.endswith(f"kept in {tmp_path / 'damaged'}")
    assert [path.name for path in (tmp_path / "damaged").iterdir()] == ["journal.jsonl"]


WRITER = """
    import os, signal, sys
    sys.path[:0] = {path!r}
    from recorded import header, result
    from conformance.results.journal_writer import Journal
    from conformance.results.output import OutputError
    results = [result(test=f"test_{{i}}", message="x" * 500) for i in range(200)]
"""


def _run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    here = Path(__file__).parent
    program = textwrap.dedent(WRITER).format(path=[str(here), str(here.parent)]) + textwrap.dedent(script)
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)


def test_after_kill_9_everything_finished_is_there(tmp_path: Path) -> None:
    done = _run(
        """
        journal = Journal.create(sys.argv[1], header(results))
        for one in results[:3]:
            journal.started(one.id)
            journal.finished(one)
        journal.started(results[3].id)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        str(tmp_path),
    )
    assert done.returncode == -signal.SIGKILL
    content = read_journal(tmp_path)
    assert [one.test for one in content.results] == ["test_0", "test_1", "test_2"]
    assert len(content.in_flight) == 1


def test_a_file_that_may_not_grow_ends_in_a_sentence_and_a_readable_journal(tmp_path: Path) -> None:
    # A file size limit is the one way without privileges to a real write that stops in the middle of a line.
    done = _run(
        """
        import resource
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        journal = Journal.create(sys.argv[1], header(results))
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
        try:
            for count, one in enumerate(results):
                journal.finished(one)
        except OutputError as error:
            print(count, error)
        try:
            journal.finished(one)
        except OutputError as error:
            print(error)
        """,
        str(tmp_path),
    )
    first, second = done.stdout.splitlines()
    count, _, sentence = first.partition(" ")
    assert sentence.startswith(f"cannot write {tmp_path / 'journal.jsonl'}: the file may not grow")
    assert "could not be written before" in second
    content = read_journal(tmp_path)
    assert len(content.results) == int(count) > 5
    assert not content.torn


def test_a_full_disk_is_named_and_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.create(tmp_path, HEADER)
    journal.finished(FIRST)
    real = os.write
    calls = []

    def full(descriptor: int, data: bytes) -> int:
        calls.append(data)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, bytes(data)[:50])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OutputError, match="the disk is full; free space"):
        journal.finished(SECOND)
    journal.close()
    assert read_journal(tmp_path).results == (FIRST,)
    assert not read_journal(tmp_path).torn


def test_an_output_that_is_no_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for output in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OutputError, match="give --output a") as caught:
            Journal.create(output, HEADER)
        assert str(tmp_path / "file") in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="permission is denied"):
        Journal.create(tmp_path, HEADER)


def test_a_failed_write_leaves_the_old_file_whole_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.json"
    write_atomically(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"results\.json: the disk is full"):
        write_atomically(path, b"new")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("results.json", b"old")]
