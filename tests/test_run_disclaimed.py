"""`run --probe-disclaimed`: what a profile disclaims is called once, last, and alone; it must refuse."""

from __future__ import annotations

import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest
import zenith_site
from zenith_site import Ran

from conformance.results.output import JUNIT

SLOW = (
    '\n[[disclaimed]]\nengine = "zenith"\nattention = "slow"\nwhat = "slow attention"\nreason = "it is slow"\n'
    '\n[[disclaimed]]\nengine = "zenith"\ndtype = "float16"\nwhat = "float16"\nreason = "it is narrow"\n'
)
CASE = "disclaimed.test_is_refused[zenith/slow/bfloat16][generation-qwen3]"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zenith_site.install(tmp_path_factory.mktemp("zenith") / "site")


def probed(site: Path, folder: Path, engine: str = "", *arguments: Any, add: str = SLOW) -> Ran:
    text = zenith_site.profile(engine=engine, add=add)
    return zenith_site.run(site, folder, "--probe-disclaimed", "-k", "disclaimed", *arguments, text=text)


def misdeed(occasion: str, name: str) -> str:
    return f'options = {{ misdeeds = {{ {occasion} = "{name}" }} }}'


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (misdeed("load", "not_supported"), "refused: this build knows no colours"),
        (misdeed("load", "raise"), "refused: load raised ValueError: the engine lost its way"),
        (misdeed("attention", "raise"), "refused: attention raised ValueError: the engine lost its way"),
        (misdeed("attention", "raise_in_call"), "refused: raised TypeError: no kernel for this [zenith.py, line 3]"),
    ],
)
def test_a_refusal_passes(site: Path, tmp_path: Path, engine: str, said: str) -> None:
    done = probed(site, tmp_path, engine)
    (case,) = done.document["cases"]
    assert (case["id"], case["verdict"], case["reason"]) == (CASE, "PASS", said)
    assert done.code == 0
    assert not any("Only these" in sentence for sentence in done.document["not_covered"])


@pytest.mark.parametrize(("engine", "numbers"), [("", "are right"), (misdeed("attention", "halve"), "are not right")])
def test_an_answer_is_a_failure_that_says_whether_its_numbers_were_right(
    site: Path, tmp_path: Path, engine: str, numbers: str
) -> None:
    done = probed(site, tmp_path, engine)
    (case,) = done.document["cases"]
    assert case["verdict"] == "XPASS"
    assert case["reason"] == f"disclaimed, but slow answered (zenith::slow ran), and its numbers {numbers}"
    assert case["judgements"][0]["criterion"] == "attention.agrees"
    assert (done.code, done.junit) == (1, {"testcase": 1, "failure": 1, "error": 0, "skipped": 0})


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("segfault", (), "not refused, but CRASH: the worker was killed by SIGSEGV while running attention"),
        ("hang", ("--deadline", "1"), "not refused, but TIMEOUT: attention had not ended"),
        ("out_of_memory", (), "not refused, but CRASH: attention raised MemoryError"),
    ],
)
def test_a_lost_worker_is_recorded_and_no_failure(
    site: Path, tmp_path: Path, name: str, arguments: tuple[str, ...], said: str
) -> None:
    done = probed(site, tmp_path, misdeed("attention", name), *arguments)
    (case,) = done.document["cases"]
    assert case["verdict"] == "XFAIL"
    assert case["reason"].startswith(said)
    assert (done.code, done.junit["skipped"]) == (0, 1)


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("options = { single_calls = false }", "makes no single attention calls"),
        (misdeed("load", "unavailable"), "this build needs a newer driver"),
    ],
)
def test_what_shows_nothing_is_incomplete(site: Path, tmp_path: Path, engine: str, said: str) -> None:
    done = probed(site, tmp_path, engine)
    (case,) = done.document["cases"]
    assert case["verdict"] == "ENVIRONMENT"
    assert said in case["reason"]
    assert done.code == 5  # nothing else was selected


def test_it_comes_after_all_else_which_it_leaves_as_it_was(site: Path, tmp_path: Path) -> None:
    engine = misdeed("attention", "segfault")
    text = zenith_site.profile(engine=engine, add=SLOW)
    done = zenith_site.run_plain(site, tmp_path, "--probe-disclaimed", text=text)
    *others, last = done.document["cases"]
    assert last["id"] == CASE
    assert {case["verdict"] for case in others} == {"PASS"}
    assert done.code == 0
    names = [case.get("name") for case in xml.etree.ElementTree.parse(done.output / JUNIT).iter("testcase")]
    assert names[-1] == "test_is_refused[zenith/slow/bfloat16][generation-qwen3]"
    assert "slow attention" in done.said


def test_it_is_not_done_unless_it_is_asked_for(site: Path, tmp_path: Path) -> None:
    done = zenith_site.run_plain(site, tmp_path, text=zenith_site.profile(add=SLOW))
    assert CASE not in {case["id"] for case in done.document["cases"]}


def test_a_probe_that_ended_is_not_made_again_by_resuming(site: Path, tmp_path: Path) -> None:
    text = zenith_site.profile(add=SLOW)
    first = zenith_site.run_plain(site, tmp_path, "--probe-disclaimed", text=text)
    again = zenith_site.run_plain(site, tmp_path, "--probe-disclaimed", "--resume", text=text)
    assert "nothing to resume" in again.said
    assert again.verdicts == first.verdicts
    assert "XPASS" in again.verdicts.values()


def test_a_profile_that_disclaims_no_attention_backend_is_told(site: Path, tmp_path: Path) -> None:
    done = zenith_site.run_plain(site, tmp_path, "--probe-disclaimed", text=zenith_site.profile())
    assert done.code == 0
    assert "nothing is called, for the selection has no [[disclaimed]] entry" in done.said
    assert not any(case["suite"] == "disclaimed" for case in done.document["cases"])


def test_the_dtype_that_is_named_is_the_one_that_is_called(site: Path, tmp_path: Path) -> None:
    named = SLOW.replace('attention = "slow"\n', 'attention = "slow"\ndtype = "float32"\n')
    done = probed(site, tmp_path, misdeed("load", "raise"), add=named)
    assert [case["target"]["dtype"] for case in done.document["cases"]] == ["float32"]


def test_explain_says_how_to_call_it_alone(site: Path, tmp_path: Path) -> None:
    (tmp_path / "profile.toml").write_text(zenith_site.profile(add=SLOW))
    ran = zenith_site.conformance(
        site, "explain", "--profile", tmp_path / "profile.toml", "--probe-disclaimed", "disclaimed"
    )
    assert ran.returncode == 0, ran.stderr
    assert "--probe-disclaimed -k 'disclaimed.test_is_refused[" in ran.stdout
