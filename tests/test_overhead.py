"""benchmarks/overhead.py: what it judges, what it refuses to measure, and that the bare script does the run's work."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay import embedded, recorded

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import default_run  # noqa: E402
import growth  # noqa: E402
import one_by_one  # noqa: E402
import overhead  # noqa: E402
from figures import Figure, report  # noqa: E402
from programs import Measured, NotMeasured, measure  # noqa: E402

TARGET = {"engine": "transformers", "attention": "sdpa", "dtype": "bfloat16"}


def bare(wall: float = 10.0, peak: float = 500.0, forwards: int = 8) -> default_run.Bare:
    done = [{"model": "m", "attention": "sdpa", "dtype": "bfloat16", "forwards": {"vectors": forwards}}]
    return default_run.Bare(Measured(wall, wall, peak), {"done": done})


def ran(wall: float = 12.0, parent: float = 60.0, worker_mib: float = 450.0, forwards: int = 8) -> default_run.Ran:
    case = {"model": "m", "target": TARGET, "effective": {"forwards": forwards}}
    run = {"counters": {"peak_worker_mib": worker_mib}}
    return default_run.Ran(Measured(wall, wall, parent), {"run": run, "cases": [case]})


@pytest.mark.parametrize(
    ("value", "must_be", "ok"),
    [(1.3, "at most", True), (1.31, "at most", False), (3.0, "at least", True), (2.9, "at least", False)],
)
def test_a_figure_keeps_its_limit_or_breaks_it(value: float, must_be: Any, ok: bool) -> None:
    assert Figure("it", value, 1.3 if must_be == "at most" else 3, must_be).ok is ok


@pytest.mark.parametrize("must_be", ["at most", "at least"])
def test_a_figure_that_is_no_number_keeps_no_limit(must_be: Any) -> None:
    assert not Figure("it", math.nan, 1, must_be).ok


def test_a_figure_without_a_number_is_null_in_json_and_not_ok() -> None:
    told = json.loads(json.dumps(Figure("it", math.inf, 1).to_json(), allow_nan=False))
    assert told["value"] is None
    assert told["ok"] is False


def test_the_report_says_of_each_figure_whether_it_is_too_much_or_too_little() -> None:
    figures = [
        Figure("this", 1, 2, note="made of that"),
        Figure("that", 3, 2, unit="MB"),
        Figure("else", 1, 2, "at least"),
    ]
    assert report(figures).splitlines() == [
        "ok          this: 1 (at most 2)",
        "            made of that",
        "TOO MUCH    that: 3 MB (at most 2 MB)",
        "TOO LITTLE  else: 1 (at least 2)",
    ]


def test_a_run_within_its_limits_breaks_none() -> None:
    assert [figure.ok for figure in default_run.judged([bare()], [ran()])] == [True] * 4


@pytest.mark.parametrize(
    ("changed", "broken"),
    [
        ({"wall": 13.1}, "wall time"),
        ({"forwards": 9}, "observations with other forward passes"),
        ({"parent": 301.0}, "peak memory of the suite's own process"),
        ({"worker_mib": 600.0}, "peak memory of the largest worker"),
    ],
)
def test_a_run_that_costs_too_much_breaks_the_limit_of_what_it_costs(changed: dict[str, Any], broken: str) -> None:
    found = [figure.name for figure in default_run.judged([bare()], [ran(**changed)]) if not figure.ok]
    assert len(found) == 1
    assert found[0].startswith(broken)


def test_the_least_of_several_times_counts_and_the_most_of_several_peaks() -> None:
    figures = default_run.judged([bare(10), bare(20)], [ran(30), ran(11, parent=301)])
    assert figures[0].value == pytest.approx(1.1)
    assert not figures[2].ok


def test_differing_passes_are_named_with_model_and_target() -> None:
    found = default_run.differing_passes(bare(forwards=7).told, ran().document)
    assert found == ["m on sdpa/bfloat16: [7] in the bare script, [8] in the run"]


def test_a_case_that_a_quirk_skipped_made_no_passes() -> None:
    document = ran().document
    skipped = {**document["cases"][0], "effective": None}
    assert not default_run.differing_passes(bare().told, {**document, "cases": [*document["cases"], skipped]})


def test_a_model_that_the_bare_script_left_out_differs() -> None:
    assert default_run.differing_passes({"done": []}, ran().document)


@settings(max_examples=30, deadline=None)
@given(constant=st.floats(0, 100), slope=st.floats(0.01, 10))
def test_linear_growth_passes_whatever_the_constant_share(constant: float, slope: float) -> None:
    sizes = (50, 100, 200, 400)
    figure = growth.judged("case", sizes, [constant + slope * size for size in sizes])
    assert figure.ok
    assert figure.value == pytest.approx(1)


@settings(max_examples=30, deadline=None)
@given(constant=st.floats(0, 1000), sizes=st.sampled_from([(50, 100, 200, 400), (1000, 2000, 4000)]))
def test_quadratic_growth_fails_whatever_the_constant_share(constant: float, sizes: tuple[int, ...]) -> None:
    assert not growth.judged("case", sizes, [constant + 1e-4 * size**2 for size in sizes]).ok


def test_times_that_fall_while_sizes_grow_show_no_growth_and_so_fail() -> None:
    assert not growth.judged("case", (1, 2, 4), (3.0, 2.0, 4.0)).ok


def test_the_exponent_is_that_of_the_power_law() -> None:
    assert growth.exponent((1, 2, 4, 8), (3, 12, 48, 192)) == pytest.approx(2)


def test_the_pattern_upstream_is_estimated_for_each_kind_of_case() -> None:
    samples = [
        one_by_one.Sample("embedding", "m", "vectors", 10, (2.0, 4.0)),
        one_by_one.Sample("generation", "n", "greedy", 2, (20.0,)),
    ]
    figure = one_by_one.judged(samples, run_s=10)
    assert figure.value == pytest.approx((10 * 3 + 2 * 20) / 10)
    assert figure.ok
    assert "3 of 12 cases" in figure.note
    assert "60 s if all" in figure.note
    assert not one_by_one.judged(samples, run_s=24).ok


@pytest.mark.torch
def test_every_case_is_run_upstream_with_the_observation_that_it_judges() -> None:
    found = one_by_one.strata(default_run.planned(["embedding"]))
    counts = {kind: len(members) for kind, members in found.items()}
    assert counts == {
        ("embedding", "embedding-qwen3", "vectors"): 28,
        ("embedding", "embedding-qwen3", "shortened"): 12,
        ("embedding", "embedding-xlmr", "vectors"): 28,
        ("embedding", "embedding-qwen3", "alone"): 8,
        ("embedding", "embedding-qwen3", "in_eights"): 8,
        ("embedding", "embedding-xlmr", "alone"): 8,
        ("embedding", "embedding-xlmr", "in_eights"): 12,
    }


def test_the_peak_is_that_of_the_program_and_not_of_what_it_starts() -> None:
    child = "import sys; x = b'x' * 300_000_000"
    cost = measure(
        ["-c", f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {child!r}]); time.sleep(0.1)"],
        os.environ,
    )
    assert 5 < cost.peak_mb < 100
    assert measure(["-c", f"{child}; import time; time.sleep(0.1)"], os.environ).peak_mb > 300


def test_a_program_that_fails_is_not_measured_and_its_words_are_told() -> None:
    with pytest.raises(NotMeasured, match="exit code 3\nno such luck"):
        measure(["-c", "print('no such luck'); raise SystemExit(3)"], os.environ)


def test_a_program_that_hangs_is_ended() -> None:
    with pytest.raises(NotMeasured, match=r"had not ended after 0\.1 s"):
        measure(["-c", "import time; time.sleep(60)"], os.environ, limit_s=0.1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "growht"], "unknown measurement 'growht'; did you mean 'growth'?"),
        (["--quikc"], "unknown option '--quikc'; did you mean '--quick'?"),
        (["--json", "no/such/file.json"], "there is no folder no/such"),
    ],
)
def test_wrong_usage_exits_with_4_and_says_what_would_be_right(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert overhead.main(arguments) == 4
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("error", "code"), [(NotMeasured("no luck"), 3), (KeyboardInterrupt(), 2)])
def test_what_was_measured_before_it_ended_early_is_reported_and_written(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def some(folder: Path, scale: overhead.Scale, found: overhead.Found) -> None:
        found.figures.append(Figure("this", 1, 2))
        raise error

    monkeypatch.setattr(overhead, "MEASUREMENTS", {"some": some})
    assert overhead.main(["--json", str(tmp_path / "found.json")]) == code
    document = json.loads((tmp_path / "found.json").read_text())
    assert document["complete"] is False
    assert [figure["name"] for figure in document["figures"]] == ["this"]
    assert "this" in capsys.readouterr().out


@pytest.mark.parametrize(("value", "code"), [(2, 0), (3, 1)])
def test_a_broken_limit_makes_the_exit_code_1(value: float, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overhead, "MEASUREMENTS", {"it": lambda *_: _[2].figures.append(Figure("it", value, 2))})
    assert overhead.main([]) == code


def test_growth_is_measured_reported_and_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = overhead.Scale((), repeats=0, sampled=1, cases=(10, 20, 30), prompts=(160, 320, 480))
    monkeypatch.setattr(overhead, "QUICK", tiny)
    monkeypatch.setattr(overhead, "FEW_CASES", 10)
    code = overhead.main(["--quick", "--only", "growth", "--json", str(tmp_path / "found.json")])
    document = json.loads((tmp_path / "found.json").read_text())
    assert code == (0 if all(figure["ok"] for figure in document["figures"]) else 1)
    assert [figure["limit"] for figure in document["figures"]] == [growth.LIMIT] * 2
    grown = document["raw"]["growth"].values()
    sizes = [[(one["size"]["cases"], one["size"]["prompts"]) for one in axis] for axis in grown]
    assert sizes == [[(10, 160), (20, 160), (30, 160)], [(10, 160), (10, 320), (10, 480)]]
    assert document["environment"]["cores"] >= 1
    assert len(capsys.readouterr().out.splitlines()) == 4


@pytest.mark.torch
def test_the_bare_script_answers_every_observation_of_every_role_of_the_plan() -> None:
    from bare_roles import ROLES

    for group in default_run.planned([]):
        suite = group.suite()
        assert list(ROLES[suite.role].answers) == list(suite.observations()), (
            f"benchmarks/bare_roles.py should ask for what {suite.role} observes"
        )


@pytest.mark.torch
def test_a_role_that_the_bare_script_lacks_is_an_error_that_says_where_to_add_it() -> None:
    from bare_roles import role

    with pytest.raises(LookupError, match=r"no role 'paint', only embedding\.last.*bare_roles\.py"):
        role("paint")


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "observation"),
    [("rerank-xlmr", "scores"), ("classification-qwen2", "logits"), ("reward-qwen3", "rewards")],
)
def test_the_bare_script_computes_what_the_run_judges(name: str, observation: str) -> None:
    found, _ = _bare_answer(name, observation)
    reference = recorded(name, "float32", "ieee")[0][observation]
    assert np.allclose(found.reshape(np.shape(reference.values)), reference.values, atol=1e-3)  # type: ignore[attr-defined]


@pytest.mark.torch
def test_the_bare_script_generates_the_run_s_tokens_in_as_many_passes() -> None:
    found, forwards = _bare_answer("generation-qwen3", "stopped")
    reference: Any = recorded("generation-qwen3", "float32", "ieee")[0]["stopped"]
    assert [tuple(ids) for ids in found] == list(reference.token_ids)
    assert forwards == max(len(ids) for ids in reference.token_ids)


def _bare_answer(name: str, observation: str) -> tuple[Any, int]:
    import torch
    from bare_model import Asked
    from bare_roles import role

    group = next(one for one in default_run.planned([]) if one.first.model.name == name)
    assert embedded()[name][1].role == group.suite().role
    kind = role(group.suite().role)
    asked = Asked(default_run.work(group), kind.auto, is_decoder=kind.is_decoder)
    with torch.no_grad():
        return kind.answers[observation](asked), asked.forwards
