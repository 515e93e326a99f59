"""One loaded model for all suites of a target and model; variants of an engine, loaded in its place."""

from __future__ import annotations

from pathlib import Path

import pytest
import zenith_site
from zenith_site import PLAIN, Ran, profile

CHUNKED = "[engines.zenith.variants.chunked]\noptions = {{ {options} }}\n"
GRAPH = "[engines.zenith.variants.graph]\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = zenith_site.install(tmp_path_factory.mktemp("vendor") / "site")
    zenith_site.write_metadata(found, "zenith-shades", "[conformance.suites]\nshades = zenith.shades\n")
    return found


def run(site: Path, folder: Path, *arguments: str, text: str, **more: str) -> Ran:
    return zenith_site.run(
        site, folder, *PLAIN, "--suite", "shades", *arguments, text=text, ZENITH_DIARY=str(folder / "diary"), **more
    )


def ran(done: Ran) -> dict[str, str]:
    """The verdicts, without those of variants that the profile does not claim."""
    return {name: verdict for name, verdict in done.verdicts.items() if verdict != "NOT_SUPPORTED"}


def diary(folder: Path) -> list[str]:
    return (folder / "diary").read_text().splitlines()


def misdeed(occasion: str, name: str) -> str:
    return f'misdeeds = {{ {occasion} = "{name}" }}'


def test_two_suites_on_one_model_load_it_once(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, text=profile())
    assert (done.code, set(ran(done).values()), len(ran(done))) == (0, {"PASS"}, 6), done.said
    assert done.document["run"]["counters"]["models_loaded"] == 1
    assert done.document["run"]["counters"]["workers_started"] == 2  # one to learn the facts
    assert diary(tmp_path) == ["load usual", "close usual"]


def test_another_environment_is_another_load(site: Path, tmp_path: Path) -> None:
    quirk = zenith_site.quirk('suite = "shades"', 'environment = { SHADE = "1" }')
    done = run(site, tmp_path, text=profile(add=quirk))
    assert set(ran(done).values()) == {"PASS"}, done.said
    assert done.document["run"]["counters"]["models_loaded"] == 2
    assert diary(tmp_path) == ["load usual", "close usual"] * 2


def test_crashes_of_a_model_count_across_suites(site: Path, tmp_path: Path) -> None:
    text = profile(engine=f"options = {{ {misdeed('score_pairs', 'segfault')} }}")
    done = run(site, tmp_path, text=text)
    assert done.code == 1
    verdicts = list(done.verdicts.values())
    assert verdicts.count("CRASH") == 2, done.verdicts
    assert done.verdicts["test_0_usual_is_complete"] == "NOT_RUN"
    assert done.cases["test_0_usual_is_complete"]["reason"] == "the target was given up after 2 crashes"


def test_a_model_that_cannot_be_loaded_is_not_loaded_again_for_the_next_suite(site: Path, tmp_path: Path) -> None:
    text = profile(engine=f"options = {{ {misdeed('load', 'unavailable')} }}")
    done = run(site, tmp_path, text=text)
    assert set(ran(done).values()) == {"ENVIRONMENT"}
    assert done.document["run"]["counters"]["models_loaded"] == 1


def test_a_variant_is_loaded_in_place_of_the_usual_one_and_kept_until_another_is_asked_for(
    site: Path, tmp_path: Path
) -> None:
    done = run(site, tmp_path, "--suite", "shades", text=profile(add=CHUNKED.format(options="") + GRAPH))
    assert set(done.verdicts.values()) == {"PASS"}, done.said
    loaded = ["usual", "chunked", "usual", "graph"]  # one after the other, and chunks are known the second time
    assert diary(tmp_path) == [f"{what} {which}" for which in loaded for what in ("load", "close")]


def test_a_variant_that_is_not_claimed_is_not_supported_before_anything_is_loaded(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, "-k", "graph", text=profile(add=CHUNKED.format(options="")))
    assert done.verdicts == {"test_4_graph_is_complete": "NOT_SUPPORTED"}
    reason = done.cases["test_4_graph_is_complete"]["reason"]
    assert reason == "the profile claims no variant 'graph' of zenith; known are chunked"
    assert done.document["run"]["counters"]["models_loaded"] == 0


def test_a_variants_crash_costs_the_cases_that_asked_and_is_named(site: Path, tmp_path: Path) -> None:
    text = profile(add=CHUNKED.format(options=misdeed("score_pairs", "segfault")) + GRAPH)
    done = run(site, tmp_path, text=text)
    shades = {name: verdict for name, verdict in done.verdicts.items() if name.startswith("test_")}
    assert shades["test_0_usual_is_complete"] == shades["test_4_graph_is_complete"] == "PASS"
    assert shades["test_1_chunks_are_complete"] == shades["test_2_usual_is_complete_after_chunks"] == "CRASH"
    assert shades["test_3_chunks_are_complete_once_more"] == "NOT_RUN"
    case = done.cases["test_1_chunks_are_complete"]
    assert case["reason"].startswith("variant 'chunked': the worker was killed by SIGSEGV while running score_pairs")
    reason = done.cases["test_3_chunks_are_complete_once_more"]["reason"]
    assert reason == "variant 'chunked': the variant was given up after 2 crashes"


def test_a_variant_that_cannot_be_loaded_costs_the_cases_that_asked_and_is_tried_once(
    site: Path, tmp_path: Path
) -> None:
    done = run(site, tmp_path, text=profile(add=CHUNKED.format(options=misdeed("load", "raise")) + GRAPH))
    assert (
        done.verdicts["test_1_chunks_are_complete"] == done.verdicts["test_3_chunks_are_complete_once_more"] == "ERROR"
    )
    assert done.verdicts["test_0_usual_is_complete"] == done.verdicts["test_4_graph_is_complete"] == "PASS"
    assert done.cases["test_1_chunks_are_complete"]["reason"].startswith("variant 'chunked': load raised ValueError: ")
    assert diary(tmp_path).count("load chunked") == 1


def test_a_variants_hang_is_ended_by_the_time_of_the_case(site: Path, tmp_path: Path) -> None:
    text = profile(add=CHUNKED.format(options=misdeed("score_pairs", "hang")) + GRAPH)
    done = run(site, tmp_path, "--deadline", "1", "-k", "*test_[14]_*", text=text)
    assert done.verdicts == {"test_1_chunks_are_complete": "TIMEOUT", "test_4_graph_is_complete": "PASS"}
