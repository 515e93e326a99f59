"""What earlier runs teach: medians of what ran to its end, from a file that may be missing, damaged or in the way."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import SDPA, document, result

from conformance.cache import cache_folder
from conformance.timings import FILE, KEPT, Timing, Timings, load, save, timings_of
from conformance.verdict import Verdict

KEY = ("toy", "engine/plain/float32", "tiny", "words")
BOTH = ("test_one", "test_two")


def took(seconds: float, tests: tuple[str, ...] = BOTH, device: str = "Toy 1") -> Timing:
    backend, target, model, suite = KEY
    return Timing(backend, target, model, suite, device, tests, seconds, "2026-11-30T10:00:00Z")


def test_a_run_teaches_how_long_each_suite_took_on_each_target_and_model() -> None:
    cases = [
        result(test="test_one", duration_s=2.0),
        result(Verdict.FAIL, test="test_two", duration_s=0.5),
        result(test="test_one", model="other", duration_s=4.0),
        result(Verdict.ENVIRONMENT, suite="reward"),
    ]
    found = timings_of(document(cases))
    assert [(one.key, one.tests, one.seconds, one.device) for one in found] == [
        (("cpu", SDPA.id, "qwen3-0.6", "embedding"), BOTH, 2.5, "a processor"),
        (("cpu", SDPA.id, "other", "embedding"), ("test_one",), 4.0, "a processor"),
    ]


@pytest.mark.parametrize("verdict", [Verdict.CRASH, Verdict.TIMEOUT, Verdict.ERROR, Verdict.NOT_SUPPORTED])
def test_a_suite_in_which_something_broke_down_teaches_nothing(verdict: Verdict) -> None:
    broken = result(verdict, test="test_two", attempts=1, duration_s=300.0)
    assert timings_of(document([result(test="test_one"), broken])) == []


def test_cases_that_were_started_twice_teach_nothing() -> None:
    assert timings_of(document([result(attempts=2)])) == []


def test_the_estimate_is_the_median_of_the_last_runs() -> None:
    runs = Timings(tuple(took(seconds) for seconds in (900.0, *[900.0] * KEPT, 3.0, 1.0, 2.0, 50.0, 2.5)))
    assert runs.seconds(KEY, BOTH, "Toy 1") == 2.5
    assert runs.seconds((*KEY[:3], "pairs"), BOTH, "Toy 1") is None


def test_runs_on_the_same_device_count_before_those_on_others() -> None:
    runs = Timings((took(5.0), took(1.0, device="Toy 2")))
    assert [runs.seconds(KEY, BOTH, device) for device in ("Toy 1", "Toy 2", "")] == [5.0, 1.0, 1.0]


def test_a_part_of_the_tests_takes_at_most_what_all_took_and_all_take_more_than_a_part() -> None:
    runs = Timings((took(5.0), took(1.0, ("test_one",))))
    assert runs.seconds(KEY, ("test_one",), "Toy 1") == 1.0
    assert runs.seconds(KEY, ("test_two",), "Toy 1") == 5.0
    assert runs.seconds(KEY, (*BOTH, "test_new"), "Toy 1") is None


def test_old_runs_are_forgotten_and_runs_of_a_part_do_not_push_out_the_whole() -> None:
    timings = Timings()
    for seconds in range(1, 4 * KEPT):
        timings = timings.with_run(document([result(duration_s=float(seconds))]))
    assert [one.seconds for one in timings.entries] == [
        float(4 * KEPT - 1 - 2 * KEPT + n) for n in range(1, 2 * KEPT + 1)
    ]


TIMINGS = st.builds(
    Timing,
    *(st.text(max_size=8) for _ in range(5)),
    tests=st.lists(st.text(max_size=8), max_size=3).map(tuple),
    seconds=st.floats(min_value=0.001, max_value=1e6),
    ended=st.just("2026-11-30T10:00:00Z"),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(TIMINGS, max_size=4))
def test_what_is_saved_is_loaded(tmp_path_factory: pytest.TempPathFactory, entries: list[Timing]) -> None:
    folder = tmp_path_factory.mktemp("cache") / "not" / "there"
    save(folder, Timings(tuple(entries)))
    assert load(folder) == Timings(tuple(entries))
    assert [file.name for file in folder.iterdir()] == [FILE]


def test_without_a_file_nothing_is_known_and_nothing_is_wrong(tmp_path: Path) -> None:
    assert load(tmp_path) == Timings()


GOOD: dict[str, Any] = {"version": 1, "timings": [{**vars(took(1.0)), "tests": list(BOTH)}]}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        "\xff",
        "[]",
        "{}",
        json.dumps({**GOOD, "version": 2}),
        json.dumps({**GOOD, "timings": None}),
        json.dumps({**GOOD, "timings": [3]}),
        json.dumps({**GOOD, "timings": [{}]}),
        *(
            json.dumps({**GOOD, "timings": [{**GOOD["timings"][0], **change}]})
            for change in (
                {"seconds": -1},
                {"seconds": float("nan")},
                {"seconds": 10**400},
                {"seconds": True},
                {"suite": 3},
                {"tests": "ab"},
            )
        ),
        json.dumps({**GOOD, "timings": [{**GOOD["timings"][0], "tests": [3]}]}),
    ],
)
def test_a_damaged_file_is_ignored_said_and_replaced_by_the_next_run(tmp_path: Path, text: str) -> None:
    path = tmp_path / FILE
    path.write_bytes(text.encode("latin-1"))
    found = load(tmp_path)
    assert found.entries == () and str(path) in found.fault and "nothing was learnt" in found.fault
    save(tmp_path, found.with_run(document([result()])))
    assert len(load(tmp_path).entries) == 1


def test_the_good_file_of_these_tests_is_one(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps(GOOD))
    assert load(tmp_path) == Timings((took(1.0),))


def test_a_folder_that_cannot_be_written_is_an_os_error_and_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    save(tmp_path, Timings((took(1.0),)))
    (tmp_path / "file").touch()
    with pytest.raises(OSError):
        save(tmp_path / "file", Timings())
    assert load(tmp_path) == Timings((took(1.0),))


def test_the_cache_folder_is_the_users_unless_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONFORMANCE_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("CONFORMANCE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert cache_folder() == tmp_path / "user" / "conformance"


def test_entries_of_one_key_are_found_whatever_lies_between() -> None:
    others = tuple(replace(took(9.0), suite=f"s{index}") for index in range(20))
    assert Timings((took(1.0), *others)).seconds(KEY, BOTH, "") == 1.0
