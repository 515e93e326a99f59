"""`list`, `explain` and `validate` as a person types them, from the checkout's root, with a vendor's package."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import vendor

from conformance.__main__ import main
from conformance.cli import explain, validate
from conformance.profile import SCHEMA

ROOT = Path(__file__).resolve().parent.parent
CASE = "colours.test_red_is_red[transformers/acme_flash/bfloat16][acme-colours]"
HEAVY = ("torch", "numpy", "transformers", "safetensors")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vendor.install(tmp_path_factory.mktemp("site"))


def conformance(site: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "conformance", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(site), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def facts(folder: Path, **device: object) -> str:
    path = folder / "facts.json"
    path.write_text(json.dumps({"device": {"type": "acme", **device}, "engines": ["transformers"]}))
    return str(path)


def test_list_prints_the_plan_grouped_by_target(site: Path, tmp_path: Path) -> None:
    done = conformance(site, "list", "--backend", "acme", "--suite", "colours", "--facts", facts(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "transformers/acme_flash/bfloat16  (fused; 1 case)" in done.stdout
    assert "colours.test_red_is_red[acme-colours]  COL-010  undecided: quirk acme-colours" in done.stdout


def test_list_as_json_holds_every_field_and_is_stable(site: Path) -> None:
    arguments = ("list", "--backend", "acme", "--suite", "colours", "--json")
    one, two = conformance(site, *arguments), conformance(site, *arguments)
    assert one.stdout == two.stdout
    record = json.loads(one.stdout)
    assert [case["id"] for case in record["cases"]] == [CASE]
    assert record["cases"][0]["requirement"] == {"id": "COL-010", "statement": "Red MUST be red."}
    assert record["cases"][0]["kernels"] == ["acme::flash"]


def test_list_plans_for_the_machine_that_facts_describe(site: Path, tmp_path: Path) -> None:
    base = ("list", "--backend", "acme", "--suite", "colours", "--json", "--facts")
    skipped = json.loads(conformance(site, *base, facts(tmp_path, name="Acme 1000")).stdout)["cases"]
    runs = json.loads(conformance(site, *base, facts(tmp_path, name="Acme 2000")).stdout)["cases"]
    absent = json.loads(conformance(site, *base, facts(tmp_path, available=False, reason="no Acme")).stdout)["cases"]
    assert [case["verdict"] for case in (*skipped, *runs, *absent)] == ["SKIPPED", None, "ENVIRONMENT"]
    assert absent[0]["reason"] == "no Acme"
    assert {case["id"] for case in (*skipped, *runs, *absent)} == {CASE}


def test_a_selection_without_cases_exits_5(site: Path) -> None:
    done = conformance(site, "list", "--backend", "acme", "-k", "nothing like it")
    assert (done.returncode, "leaves no case" in done.stdout) == (5, True)


def test_explain_says_everything_and_how_to_run_the_case(site: Path, tmp_path: Path) -> None:
    done = conformance(site, "explain", "--backend", "acme", "red_is_red", "--facts", facts(tmp_path, name="Acme 1000"))
    assert done.returncode == 0, done.stderr
    for part in (
        CASE,
        "COL-010: Red MUST be red.",
        "fused (16 bit in, 32 bit accumulated), as claimed for transformers/acme_flash",
        "expected: acme::flash, and no other",
        "SKIPPED: quirk acme-colours",
        "acme issue 7",
        "expires 2027-02-28",
        "colours on the Acme 1",
        f"python -m conformance run --backend acme -k '{CASE}'",
    ):
        assert part in done.stdout


@pytest.mark.parametrize(
    ("case", "message"),
    [("red_is_rde", "no case matches 'red_is_rde'"), ("test_red_is_rad", "did you mean 'test_red_is_red'")],
)
def test_explain_of_an_unknown_case_suggests(site: Path, case: str, message: str) -> None:
    done = conformance(site, "explain", "--backend", "acme", case)
    assert (done.returncode, message in done.stderr) == (4, True), done.stderr


def test_the_command_that_runs_a_case_alone_finds_a_tower_on_another_backend(site: Path) -> None:
    case = "multimodal.test_grids_agree[transformers/sdpa/bfloat16/vision=eager][multimodal-qwen2vl]"
    done = conformance(site, "explain", "--backend", "cpu", "--vision-attention", "eager", case)
    assert "vision tower eager; kernels expected of it: aten::_softmax, and no other" in done.stdout, done.stderr
    command = done.stdout.splitlines()[-1].partition("conformance run ")[2]
    listed = conformance(site, "list", "--json", *shlex.split(command))
    assert [each["id"] for each in json.loads(listed.stdout)["cases"]] == [case], listed.stderr


def test_every_precision_that_a_profile_may_claim_is_explained() -> None:
    claim = json.loads(SCHEMA.read_text())["$defs"]["claim"]["properties"]["precision"]["additionalProperties"]
    assert list(explain.PRECISIONS) == claim["enum"]
    assert all(f"{name}: {meaning}" in claim["description"] for name, meaning in explain.PRECISIONS.items())


def test_validate_finds_every_backend_of_the_tree_fine(site: Path) -> None:
    done = conformance(site, "validate")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split(": ")[1][:4] for line in done.stdout.splitlines()] == ["fine"] * 4


def test_validate_prints_every_fault_and_exits_1(site: Path, tmp_path: Path) -> None:
    path = tmp_path / "profile.toml"
    path.write_text(vendor.PROFILE.replace("device =", "devise =", 1).replace("skip = true", "skipp = true"))
    done = conformance(site, "validate", "--profile", str(path))
    assert done.returncode == 1
    assert f"{path}: backend: unknown key 'devise'; did you mean 'device'?" in done.stdout
    assert "quirks[0].effect: unknown key 'skipp'; did you mean 'skip'?" in done.stdout


def test_validate_exits_1_on_an_expired_quirk(site: Path) -> None:
    done = conformance(site, "validate", "--backend", "acme", "--as-of", "2027-03-01")
    assert done.returncode == 1
    assert "expired on 2027-02-28" in done.stdout


def test_validate_rejects_a_quirk_that_matches_no_case(site: Path, tmp_path: Path) -> None:
    path = tmp_path / "profile.toml"
    path.write_text(vendor.PROFILE.replace('suite = "colours"', 'suite = "colors"'))
    done = conformance(site, "validate", "--profile", str(path))
    assert done.returncode == 1
    assert "no case of the full plan matches; suite: 'colors' matches nothing; did you mean 'colours'?" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lst"], "unknown subcommand 'lst'; did you mean 'list'?"),
        (["list", "--bakend", "cpu"], "unknown option '--bakend'; did you mean '--backend'?"),
        (["list", "--backend", "cqu"], "unknown backend 'cqu'; did you mean 'cpu'?"),
        (["list"], "name a backend: --backend cpu"),
        (["list", "--backend", "cpu", "--as-of", "soon"], "'soon' is no date"),
        (["list", "--backend", "cpu", "--dtype", "float33", "--suite", "rernk"], "did you mean 'rerank'?"),
        (["list", "--backend", "cpu", "more"], "unexpected 'more'"),
        (["list", "--backend", "cpu", "--profile", "x"], "not allowed with"),
        (["validate", "--profile", "no/such.toml"], "there is no profile no/such.toml"),
        (["list", "--backend", "cpu", "--model", "embedding.lst=./x/y"], "did you mean 'embedding.last'"),
        (
            ["list", "--backend", "cpu", "--model", "embedding=./x/y"],
            "is embedding.encoder and embedding.last; name the",
        ),
        (["--bakend", "cpu"], "unknown option '--bakend'"),
        ([], "usage: python -m conformance"),
    ],
)
def test_a_usage_error_exits_4_with_what_would_be_right(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(arguments) == 4
    assert message in capsys.readouterr().err


def test_help_names_the_subcommands_and_exits_0(site: Path) -> None:
    done = conformance(site, "--help")
    assert done.returncode == 0
    assert "explain" in done.stdout


@pytest.mark.parametrize(
    "arguments", [["list", "--backend", "acme", "--json"], ["validate"], ["explain", "--backend", "acme", "red_is_red"]]
)
def test_planning_imports_neither_torch_nor_numpy(site: Path, arguments: list[str]) -> None:
    code = (
        "import sys; from conformance.__main__ import main; code = main(sys.argv[1:]); "
        f"heavy = sorted(set({HEAVY!r}) & set(sys.modules)); sys.exit(f'imported {{heavy}}' if heavy else code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_reader_that_has_seen_enough_is_no_error(site: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "conformance", "list", "--backend", "acme", "--json"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(site)},
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_internal_error_is_one_line_and_exits_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(options: object) -> int:
        raise RuntimeError("a\x1b[31m\ndefect")

    monkeypatch.setattr(validate, "main", broken)
    monkeypatch.delenv("CONFORMANCE_DEBUG", raising=False)
    assert main(["validate"]) == 3
    assert capsys.readouterr().err == (
        "conformance: internal error: RuntimeError: a[31m defect (CONFORMANCE_DEBUG=1 shows the trace)\n"
    )
    monkeypatch.setenv("CONFORMANCE_DEBUG", "1")
    with pytest.raises(RuntimeError, match="defect"):
        main(["validate"])


def test_an_interrupt_exits_2(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(validate, "main", interrupted)
    assert main(["validate"]) == 2
