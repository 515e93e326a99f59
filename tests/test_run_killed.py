"""A run that is killed at any moment, and resumed, gives what an undisturbed run gives; nothing finished is lost."""

from __future__ import annotations

import contextlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
import zenith_site
from background import eventually

from conformance.results.journal import JournalContent, JournalError, read_journal
from conformance.results.validation import read_document
from conformance.verdict import Verdict

Job, Answer = TypeVar("Job"), TypeVar("Answer")
KILLS = 100
ADDRESS = re.compile(r"0x[0-9a-f]+|(?<=worker )\d+")
DEEDS = {
    "amber": 'options = { misdeeds = { score_pairs = "off_by_a_third" } }',
    "black": 'options = { misdeeds = { classify = "segfault" } }',
    "coral": 'options = { misdeeds = { score_pairs = "segfault" } }',
    "dim": 'options = { misdeeds = { load = "unavailable" } }',
    "earth": 'options = { misdeeds = { generate = "not_supported" } }',
    "flax": "skip = true",
}


def colourful_profile() -> str:
    """Eight attention backends: two that are right, one that is given up, and every other kind of verdict."""
    text = zenith_site.profile()
    for name in DEEDS:
        text += f'\n[engines.zenith.attention.{name}]\nprecision = {{ bfloat16 = "fused" }}\nkernels = ["{name}"]\n'
    return text + "".join(zenith_site.quirk(f'attention = "{name}"', deed, name) for name, deed in DEEDS.items())


class Run:
    """The same run, wherever it writes; `mark` is in the environment of all its processes."""

    def __init__(self, site: Path, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.profile = folder.parent / "profile.toml"
        self.output = folder / "out"
        self.mark = uuid.uuid4().hex
        self._site = site

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "conformance", "--profile", str(self.profile), "--suite", "colours"]
        return subprocess.Popen(
            [*command, "--output", str(self.output), *arguments],
            cwd=zenith_site.ROOT,
            env=zenith_site.environment(self._site, ZENITH_MARK=self.mark),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def left_behind(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("ZENITH_MARK") == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def leaves_nothing_behind(self, seconds: float = 20) -> bool:
        return eventually(lambda: not self.left_behind(), seconds)


def told(output: Path) -> Any:
    """results.json without what differs between two undisturbed runs: times, places in memory, memory itself."""
    document = read_document(output / "results.json")
    for key in ("argv", "started", "finished", "duration_s", "resumed", "estimate", "counters"):
        del document["run"][key]
    del document["facts"]
    for case in document["cases"]:
        for key in ("started", "duration_s", "attempts", "log_tail"):
            del case[key]
        case["message"], case["reason"] = (ADDRESS.sub("0x", case[key]) for key in ("message", "reason"))
        assert case["rows_file"] is None or (output / case["rows_file"]).is_file()
    return document


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zenith_site.install(tmp_path_factory.mktemp("vendor") / "site")


def journal(output: Path) -> JournalContent | None:
    try:
        return read_journal(output)
    except JournalError as error:
        assert not (output / "journal.jsonl").exists(), error  # a killed run explains no other damage
        return None


def kept(content: JournalContent | None) -> dict[str, Any]:
    results = () if content is None else content.results
    again = (Verdict.ENVIRONMENT, Verdict.NOT_RUN)
    return {result.id: result.to_json() for result in results if result.verdict not in again}


def both(do: Callable[[Job], Answer], jobs: Sequence[Job]) -> list[Answer]:
    """Two at a time."""
    with ThreadPoolExecutor(2) as two:
        return list(two.map(do, jobs))


def run_whole(run: Run) -> tuple[Any, float, float]:
    """What an undisturbed run tells, and how many seconds it takes, in all and since its journal began."""
    begin = time.monotonic()
    said, _ = (process := run.start()).communicate(timeout=120)
    seconds = time.monotonic() - begin
    assert process.returncode == 1, said
    return told(run.output), seconds, read_journal(run.output).starts[0].seconds


def kill_and_resume(run: Run, moment: float, measuring: bool, undisturbed: Any) -> str:
    """One kill, so long after the process or, if `measuring`, the journal began; the answer is where it hit."""
    process = run.start()
    if measuring:
        assert eventually((run.output / "journal.jsonl").exists)
    time.sleep(moment)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    was_killed = process.returncode == -signal.SIGKILL
    assert run.leaves_nothing_behind(), "a worker outlives its run"
    before = journal(run.output)
    resumed = run.start("--resume")
    said, _ = resumed.communicate(timeout=120)
    if before is None:
        assert resumed.returncode == 4 and "nothing to resume" in said, said
        resumed = run.start()
        said, _ = resumed.communicate(timeout=120)
    assert resumed.returncode == undisturbed["run"]["exit_code"], said
    assert run.leaves_nothing_behind()
    after = journal(run.output)
    assert after is not None and not after.in_flight
    assert kept(after).items() >= kept(before).items()
    assert told(run.output) == undisturbed
    document = read_document(run.output / "results.json")
    went_on = before is not None and bool(before.pending)
    assert len(document["run"]["resumed"]) == went_on
    in_flight = () if before is None else before.in_flight
    assert {case["id"] for case in document["cases"] if case["attempts"] == 2} == set(in_flight)
    assert not list(run.output.glob(".*.part"))
    if not was_killed:
        return "after its end"
    return "before the header" if before is None else "in a case" if in_flight else "between cases"


def test_a_run_killed_at_any_moment_and_resumed_equals_an_undisturbed_one(site: Path, tmp_path: Path) -> None:
    (tmp_path / "profile.toml").write_text(colourful_profile())
    (undisturbed, length, measured), (another, *_) = both(
        run_whole, [Run(site, tmp_path / name) for name in ("one", "two")]
    )
    assert undisturbed == another and len(undisturbed["cases"]) == 40
    verdicts = set(undisturbed["summary"]["verdicts"])
    assert verdicts == {"PASS", "FAIL", "CRASH", "NOT_SUPPORTED", "ENVIRONMENT", "SKIPPED", "NOT_RUN"}
    moments = random.Random(20261130)
    jobs = [  # half over the whole length, most of which is imports, and half over what comes then
        (Run(site, tmp_path / str(number)), moments.uniform(0, measured if number % 2 else length), bool(number % 2))
        for number in range(KILLS)
    ]
    hits = both(lambda job: kill_and_resume(*job, undisturbed), jobs)
    # Where the hundred hit depends on the machine's load; that both kinds of place are hit does not.
    print({hit: hits.count(hit) for hit in sorted(set(hits))})
    assert all(hits.count(hit) >= KILLS // 20 for hit in ("before the header", "in a case")), hits
    assert hits.count("after its end") <= KILLS // 2, hits


def test_a_run_killed_while_its_engine_is_imported_leaves_nothing_behind(site: Path, tmp_path: Path) -> None:
    slow = Path(shutil.copytree(site, tmp_path / "slow"))
    engine = slow / "zenith" / "engine.py"
    marker = tmp_path / "importing"
    text = engine.read_text().replace("import ctypes\n", f"open({str(marker)!r}, 'w').close()\nimport ctypes\n", 1)
    engine.write_text(text.replace("import time\n", "import time\ntime.sleep(60)\n", 1))
    (tmp_path / "profile.toml").write_text(zenith_site.profile())
    run = Run(slow, tmp_path / "run")
    process = run.start()
    assert eventually(marker.exists)
    assert len(run.left_behind()) == 2
    process.kill()
    process.communicate(timeout=20)
    assert run.leaves_nothing_behind(10)
